"""Progress of delegated work: callers get the same items over REST, the client, the library and the
command line.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from remit import TaskResult
from remit.bootstrap.library import Remit
from remit.bootstrap.local_host import WorkspaceHost
from remit.catalog import Caller
from remit.client import RemitClient
from remit.domain.llm.messages import Request
from remit.domain.task.task import State
from remit.errors import InvalidParam, RemitError, Unavailable
from remit.surfaces.mcp.server import mcp_server
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage
from tests.engine.fleet import ANN
from tests.patience import patient
from tests.surfaces.http import TOKEN, Silent, Site, site
from tests.surfaces.sse import Block, listening

SLOW_AND_QUICK = ["Be slow", "Be quick", {"objective": "x", "subagent_type": "nobody"}]


class Play(Stage):
    """A stage with a server, and a model that looks into the folder and then waits wherever it
    is told to be slow.
    """

    served: Site
    gate: Gate


@asynccontextmanager
async def play(url: str, folder: Path, heartbeat: float = 15.0) -> AsyncIterator[Play]:
    """A stage on the store that a URL names, and a server on the same."""
    gate = Gate()

    def rule(request: Request) -> Any:
        told = request.messages[0].text
        if "Ask" in told and not results(request):
            return calls(("ask_user", {"question": "Which one?", "options": ["a", "b"]}))
        if "Delegate" in told and not results(request):
            return calls(("task", {"objective": "Be slow below", "subagent_type": "explore"}))
        if "slow" in told and not results(request):
            return calls(("LS", {"path": str(folder)}))
        return gate.then(says("Slow.")) if "slow" in told else says("Quick.")

    async with (
        asyncio.timeout(patient(40)),
        stage(url, folder, rule) as at,
        site(at.team.core.store, heartbeat=heartbeat) as served,
    ):
        found = Play(at.team, at.folder, at.script)
        found.served, found.gate = served, gate
        yield found


async def until(
    blocks: AsyncGenerator[Block, None], seen: list[Any], **wanted: Any
) -> dict[str, Any]:
    """Read on until an item has these values; it and what came before is remembered."""
    async for block in blocks:
        if block.data:
            assert block.json["type"] == block.event
            seen.append(block.json)
            if all(block.json.get(name) == value for name, value in wanted.items()):
                return dict(block.json)
    raise AssertionError(f"It ended without {wanted}: {seen}")


async def test_results_arrive_as_they_settle_with_progress_in_between(
    any_url: str, tmp_path: Path
) -> None:
    seen: list[dict[str, Any]] = []
    async with (
        play(any_url, tmp_path) as at,
        listening(at.served, "/api/delegate/parallel", body={"tasks": SLOW_AND_QUICK}) as blocks,
    ):
        refused = await until(blocks, seen, type="result")
        assert (refused["index"], refused["task_id"], refused["result"]["error"]["code"]) == (
            2,
            None,
            "INVALID_PARAM",
        )
        quick = await until(blocks, seen, type="result")
        assert (quick["index"], quick["task_id"], quick["result"]["data"]["result"]) == (
            1,
            "2",
            "Quick.",
        )
        working = (
            seen
            if any(item.get("tool") == "LS" for item in seen)
            else [await until(blocks, seen, tool="LS")]
        )
        tool = next(item for item in working if item.get("tool") == "LS")
        assert (
            tool["index"],
            tool["task_id"],
            tool["state"],
            tool["tool_calls"],
            tool["tokens"],
        ) == (0, "1", "running", 1, 15)
        at.gate.open.set()
        slow = await until(blocks, seen, type="result")
        assert (slow["index"], slow["task_id"], slow["result"]["data"]["result"]) == (
            0,
            "1",
            "Slow.",
        )
        end = await until(blocks, seen, type="end")
        assert end == {
            "type": "end",
            "answer": {"results": [slow["result"], quick["result"], refused["result"]]},
        }
        with pytest.raises(StopAsyncIteration):
            await anext(blocks)
    assert [item["task_id"] for item in seen if item["type"] == "task_started"] == ["1", "2"]
    assert {item["type"] for item in seen} <= {
        "task_started",
        "task_progress",
        "task_updated",
        "result",
        "end",
    }
    states = [item["state"] for item in seen if item.get("task_id") == "1" and "state" in item]
    assert states[-1] == "done"
    assert "running" in states


async def test_one_piece_of_work_is_followed_to_its_end(any_url: str, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    async with (
        play(any_url, tmp_path) as at,
        listening(at.served, "/api/delegate", body={"objective": "Be quick"}) as blocks,
    ):
        end = await until(blocks, seen, type="end")
        assert end["answer"]["data"]["result"] == "Quick."
        assert seen[-2] == {
            "type": "result",
            "index": 0,
            "task_id": "1",
            "result": end["answer"],
            "about": end["about"],
        }


async def test_a_question_reaches_the_waiting_caller(any_url: str, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    async with (
        play(any_url, tmp_path) as at,
        listening(at.served, "/api/delegate", body={"objective": "Ask"}) as blocks,
    ):
        asking = await until(
            blocks,
            seen,
            questions=[
                {
                    "id": "1-q1",
                    "question": "Which one?",
                    "options": ["a", "b"],
                    "allow_other": False,
                }
            ],
        )
        assert asking["type"] in ("task_updated", "task_started")
        if asking["state"] != "waiting":
            await until(blocks, seen, state="waiting")
        await at.call("respond", interaction_id="1-q1", answer="a")
        await until(blocks, seen, type="end")
    assert (
        next(item for item in reversed(seen) if item.get("task_id") == "1" and "questions" in item)[
            "questions"
        ]
        == []
    )


async def test_progress_includes_subtasks(any_url: str, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    async with play(any_url, tmp_path) as at:
        works = {"tasks": ["Be quick", {"objective": "Delegate", "subagent_type": "build"}]}
        async with listening(at.served, "/api/delegate/parallel", body=works) as blocks:
            child = await until(blocks, seen, parent_id="2", tool="LS")
            assert (child["index"], child["owner"], child["state"]) == (1, "explore", "running")
            at.gate.open.set()
            await until(blocks, seen, type="end")
    assert [item["parent_id"] for item in seen if item["type"] == "task_started"] == [
        None,
        None,
        "2",
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/api/delegate", {"objective": "x", "subagent_type": "nobody"}, 422, "INVALID_PARAM"),
        ("/api/delegate", {}, 422, "INVALID_PARAM"),
        ("/api/delegate/parallel", {"tasks": "x"}, 422, "INVALID_PARAM"),
        (
            "/api/delegate/launch",
            {"description": "x", "prompt": "x", "subagent_type": "explore", "model": "huge"},
            422,
            "INVALID_PARAM",
        ),
        ("/api/tasks/9/subtasks", {"title": "x", "owner": "explore"}, 404, "NOT_FOUND"),
    ],
)
async def test_a_refused_call_is_not_streamed(
    tmp_path: Path, path: str, body: Any, status: int, code: str
) -> None:
    async with play("memory:", tmp_path) as at:
        answer = await at.served.ask("POST", path, body, Accept="text/event-stream")
        assert (answer.status, answer.code) == (status, code)
        if "delegate" in path:
            told = answer.json
            assert (told["status"], told["data"]["status"], told["data"]["task_id"]) == (
                "error",
                "failed",
                None,
            )
            assert told["context"]["params_input"] == body


async def test_a_call_without_a_worker_does_not_wait(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(patient(20)),
        stage("memory:", tmp_path, [], workers=0) as at,
        site(at.team.core.store) as served,
    ):
        for path, body in (
            ("/api/delegate", {"objective": "x"}),
            ("/api/delegate/parallel", {"tasks": ["x"]}),
        ):
            answer = await served.ask("POST", path, body, Accept="text/event-stream")
            assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        parent = await served.create()
        fields = {"title": "Below", "owner": "explore", "wait": "block"}
        assert (
            await served.ask("POST", f"/api/tasks/{parent}/subtasks", fields)
        ).code == "UNAVAILABLE"


async def test_disconnecting_cancels_nothing(any_url: str, tmp_path: Path) -> None:
    async with play(any_url, tmp_path) as at:
        async with listening(at.served, "/api/delegate", body={"objective": "Be slow"}) as blocks:
            await until(blocks, [], tool="LS")
            await reached(at.gate)
        at.gate.open.set()
        assert (await at.team.ended("1")).state is State.DONE
        assert "TaskCanceled" not in await at.team.events("1")


async def test_comments_keep_a_silent_stream_alive(tmp_path: Path) -> None:
    async with (
        play("memory:", tmp_path, heartbeat=0.02) as at,
        listening(at.served, "/api/delegate", body={"objective": "Be slow"}) as blocks,
    ):
        await until(blocks, [], tool="LS")
        while not (await anext(blocks)).comment:
            pass
        at.gate.open.set()
        await until(blocks, [], type="end")


async def test_a_server_that_stops_ends_the_stream_and_not_the_work(tmp_path: Path) -> None:
    async with play("memory:", tmp_path) as at, RemitClient(at.served.url, TOKEN) as client:
        items = client.attend("task", objective="Be slow")
        while (await anext(items)).get("tool") != "LS":
            pass
        await at.served.stop()
        with pytest.raises(Unavailable, match="task_output"):
            await _drained(items)
        at.gate.open.set()
        assert (await at.team.ended("1")).state is State.DONE


async def test_problems_during_a_wait_are_reported(tmp_path: Path) -> None:
    async with play("memory:", tmp_path) as at, RemitClient(at.served.url, TOKEN) as client:
        for error, expected in (
            (Unavailable("The database is gone."), "database is gone"),
            (RuntimeError("secret"), "Internal error."),
        ):
            async with aclosing(
                client.attend(
                    "task_output", task_id=await at.served.create(), wait_seconds=patient(20)
                )
            ) as items:
                await anext(items)
                working, at.served.core.store = at.served.core.store, Silent(error)
                broken = asyncio.ensure_future(_drained(items))
                await at.call("create_task", title="Rings the bell")
                with pytest.raises(RemitError, match=expected):
                    await broken
                at.served.core.store = working


async def _drained(items: AsyncGenerator[Any, None]) -> list[Any]:
    return [item async for item in items]


async def test_the_client_and_the_library_get_the_same_items(any_url: str, tmp_path: Path) -> None:
    async with play(any_url, tmp_path) as at, RemitClient(at.served.url, TOKEN) as client:
        at.gate.open.set()
        library = Remit(at.team.core, Caller(actor=ANN))
        shapes: list[Any] = []
        for remit in (client, library):
            items = await _drained(
                remit.attend("task_parallel", tasks=SLOW_AND_QUICK, format="flat")
            )
            assert [result["status"] for result in items[-1]["answer"]["results"][:2]] == [
                "completed",
                "completed",
            ]
            shapes.append(
                {
                    item["type"]: item.keys()
                    for item in items
                    if item["type"] in ("task_started", "result", "end")
                }
            )
            results = await _drained(
                remit.stream_parallel(["Be quick", "Be slow"], timeout_seconds=patient(30))
            )
            assert sorted(item.index for item in results) == [0, 1]
            assert sorted(item.result.text for item in results) == ["Quick.", "Slow."]
            with pytest.raises(InvalidParam, match="unknown agent"):
                await _drained(remit.attend("task", objective="x", subagent_type="nobody"))
            with pytest.raises(
                InvalidParam, match="get_task, which does not wait; expected one of"
            ):
                await _drained(remit.attend("get_task", task_id="1"))
        assert shapes[0] == shapes[1]


FLAT = [
    "task_id",
    "objective",
    "agent_type",
    "status",
    "result",
    "error",
    "duration",
    "started_at",
    "completed_at",
]


async def test_a_result_can_be_had_flat_everywhere(durable_url: str, tmp_path: Path) -> None:
    """As `to_dict()` in Python, in the process and over HTTP, and by `format` in the body or the
    query elsewhere.
    """
    async with play(durable_url, tmp_path) as at, RemitClient(at.served.url, TOKEN) as client:
        at.gate.open.set()
        for remit in (Remit(at.team.core, Caller(actor=ANN)), client):
            one = await remit.task("Be quick", subagent_type="explore")
            several = (
                await remit.task_parallel(
                    [
                        "Be quick",
                        {"objective": "Be slow"},
                        {"objective": "x", "subagent_type": "nobody"},
                    ]
                )
            ).results
            streamed = [item.result for item in await _drained(remit.stream_parallel(["Be quick"]))]
            task_id = one.task_id
            output = await remit.task_output(task_id)
            exact = await remit.Task("Look", "Be quick", "explore")
            found = [one, *several, *streamed, output, exact]
            assert all(
                isinstance(result, TaskResult) and list(result.to_dict()) == FLAT
                for result in found
            )
            quick = one.to_dict()
            assert (
                quick
                == output.to_dict()
                == await remit.call("task_output", task_id=task_id, format="flat")
                == (await at.served.ask("GET", f"/api/tasks/{task_id}/result?format=flat")).json
            )
            assert [quick[name] for name in FLAT[:6]] == [
                task_id,
                "Be quick",
                "explore",
                "completed",
                "Quick.",
                None,
            ]
            assert (one.text, quick["started_at"] <= quick["completed_at"]) == ("Quick.", True)
            refused = several[2].to_dict()
            assert [refused[name] for name in FLAT[:5]] == [None, "x", "nobody", "failed", None]
            assert "unknown agent" in refused["error"]
        body = {"tasks": ["Be quick", 5, {"objective": "x", "subagent_type": "nobody"}]}
        answers = [
            (await at.served.ask("POST", "/api/delegate/parallel?format=flat", body)).json[
                "results"
            ],
            (
                await at.served.ask("POST", "/api/delegate/parallel", {**body, "format": "flat"})
            ).json["results"],
        ]
        assert [[(list(item), item["status"]) for item in results] for results in answers] == [
            [(FLAT, "completed"), (FLAT, "failed"), (FLAT, "failed")]
        ] * 2
        assert answers[0][1]["error"].startswith("tasks[1].objective: is a number; expected text.")
        for target, sent in (
            ("/api/delegate?format=flat", {}),
            ("/api/delegate", {"format": "flat"}),
            ("/api/delegate?format=flat", {"format": "flat"}),
        ):
            assert (
                list((await at.served.ask("POST", target, {"objective": "Be quick", **sent})).json)
                == FLAT
            )
        clash = await at.served.ask(
            "POST", "/api/delegate?format=flat", {"objective": "Be quick", "format": "envelope"}
        )
        assert (clash.status, clash.code) == (422, "INVALID_PARAM")
        assert "format: is 'envelope', but 'flat' in the query" in clash.json["error"]["message"]
        for route in ("", "/parallel", "/launch"):
            for raw in (b"{", b"[1]", b"\xff", b'{"a": 1, "a": 2}'):
                for accept in ("application/json", "text/event-stream"):
                    told = await at.served.ask(
                        "POST", f"/api/delegate{route}", raw=raw, Accept=accept
                    )
                    assert (
                        told.status,
                        told.code,
                        told.json["status"],
                        told.json["data"]["status"],
                    ) == (422, "INVALID_PARAM", "error", "failed")
                    assert told.json["error"]["message"] == told.json["text"]
        odd = await at.served.ask("POST", "/api/delegate?format=round", {"objective": "Be quick"})
        assert (odd.status, odd.json["error"]["message"]) == (
            422,
            "format: is 'round'; expected one of envelope, flat.",
        )


async def test_delegation_is_the_same_over_every_surface(
    any_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_TOKEN", TOKEN)
    async with (
        play(any_url, tmp_path) as at,
        RemitClient(at.served.url, TOKEN) as client,
        mcp_client(at) as tools,
    ):
        library, host = (
            Remit(at.team.core, Caller(actor=ANN)),
            WorkspaceHost({"workspace": str(tmp_path), "url": at.served.url}),
        )

        async def through_mcp(name: str, **fields: Any) -> Any:
            return (await tools.call_tool(name, fields)).structured_content

        surfaces: dict[str, Any] = {
            "library": library.call,
            "rest": client.call,
            "mcp": through_mcp,
            "command line": lambda name, **fields: asyncio.to_thread(host.call, name, fields),
        }
        for name, call in surfaces.items():
            assert data_of(await call("task", objective="Be quick"))["result"] == "Quick.", name
            two = await call(
                "task_parallel", tasks=["Be quick", {"objective": "x", "subagent_type": "nobody"}]
            )
            assert [data_of(item)["status"] for item in two["results"]] == [
                "completed",
                "failed",
            ], name
            exact = await call(
                "Task",
                description="Look",
                prompt="Be quick",
                subagent_type="explore",
                model="light",
            )
            assert exact["text"] == "Subagent (explore, light) completed.\n\nQuick.", name
            asking = data_of(await call("task", objective="Ask", wait=False))["task_id"]
            waiting = await at.team.until(
                asking, lambda task: bool(task.questions) and task.run is None
            )
            await call("respond", interaction_id=waiting.questions[0].id, answer="a")
            found = await call("task_output", task_id=asking, wait_seconds=patient(20))
            assert data_of(found)["result"] == "Quick.", name
            parent = (
                await call("create_task", title="Be quick", owner="general", completion="explicit")
            )["task_id"]
            part = await call(
                "create_subtask", task_id=parent, title="Be quick", owner="explore", wait="block"
            )
            assert (
                part["task"]["state"],
                part["task"].get("final_message", part.get("result")),
            ) == ("done", "Quick."), name
            rested = await at.team.until(
                parent,
                lambda task: task.state is State.WAITING and task.children[0].settled is not None,
            )
            await call("run_task", task_id=parent)
            await at.team.until(
                parent,
                lambda task, runs=rested.counts.runs: task.counts.runs > runs and task.run is None,  # type: ignore[misc]
            )
            draft = (
                await call(
                    "create_task",
                    title="Later",
                    status="draft",
                    parent_session=name.replace(" ", "-"),
                )
            )["task_id"]
            assert (await call("send_message", task_id=draft, message="Hurry."))[
                "update_id"
            ] == f"{draft}-u1", name
            assert (await call("cancel_all", session_id=name.replace(" ", "-")))["canceled"] == [
                draft
            ], name
            await at.call("cancel_task", task_id=parent)


def data_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The content of an envelope, which MCP clients get without the envelope."""
    found: dict[str, Any] = answer.get("data", answer)
    return found


def mcp_client(at: Play) -> Client:
    return Client(mcp_server(at.team.core, Caller(actor=ANN), "1"))


async def test_a_plain_call_of_the_client_waits_longer_than_a_request_may_take(
    tmp_path: Path,
) -> None:
    seconds = patient(0.1)
    async with (
        play("memory:", tmp_path) as at,
        RemitClient(at.served.url, TOKEN, timeout_seconds=seconds) as client,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(client.call("task", objective="Be slow"))
        await asyncio.wait([waiting], timeout=5 * seconds)
        assert not waiting.done()
        at.gate.open.set()
        assert (await waiting)["data"]["result"] == "Slow."


async def test_a_command_that_goes_through_a_server_hears_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play("memory:", tmp_path) as at:
        at.gate.open.set()
        monkeypatch.setenv("REMIT_TOKEN", TOKEN)
        host = WorkspaceHost({"workspace": str(tmp_path), "url": at.served.url})
        items = await asyncio.to_thread(
            lambda: list(
                host.delegate("task", {"objective": "Be slow", "model": None}, lambda _: None)
            )
        )
    types = [item["type"] for item in items]
    assert (types[:2], types[-2:]) == (["opened", "task_started"], ["result", "end"])
    assert items[-1]["answer"]["data"]["result"] == "Slow."
    assert items[-3]["tool"] == "LS"


async def test_events_are_followed_from_the_beginning_by_both(any_url: str, tmp_path: Path) -> None:
    async with play(any_url, tmp_path) as at, RemitClient(at.served.url, TOKEN) as client:
        await at.create()
        expected = (await at.call("get_events", task_id="1"))["events"][0]
        for remit in (client, Remit(at.team.core, Caller(actor=ANN))):
            for start in ("", "0"):
                async with aclosing(remit.events(after=start)) as events:
                    assert (await anext(events)).to_dict() == expected


async def test_a_result_is_waited_for_with_progress_and_not_longer_than_asked(
    any_url: str, tmp_path: Path
) -> None:
    async with play(any_url, tmp_path) as at:
        task = (await at.call("task", objective="Be slow", wait=False))["data"]["task_id"]
        await reached(at.gate)
        seen: list[dict[str, Any]] = []
        async with listening(at.served, f"/api/tasks/{task}/result?wait=0.2") as blocks:
            end = await until(blocks, seen, type="end")
        assert (end["answer"]["data"]["status"], seen[0]["type"], seen[0]["tool"]) == (
            "running",
            "task_started",
            "LS",
        )
        async with listening(at.served, f"/api/tasks/{task}/result?wait=30") as blocks:
            await until(blocks, seen, type="task_started")
            at.gate.open.set()
            assert (await until(blocks, seen, type="end"))["answer"]["data"]["result"] == "Slow."


async def test_an_outside_caller_waits_for_its_blocking_subtask(
    any_url: str, tmp_path: Path
) -> None:
    async with play(any_url, tmp_path) as at:
        parent = await at.create(owner=None)
        made = asyncio.create_task(
            at.call(
                "create_subtask", task_id=parent, title="Be slow", owner="explore", wait="block"
            )
        )
        await reached(at.gate)
        assert not made.done()
        assert (await at.team.task(parent)).state is State.PENDING
        at.gate.open.set()
        answer = await made
        assert (answer["task"]["state"], answer["task"]["final_message"]) == ("done", "Slow.")
