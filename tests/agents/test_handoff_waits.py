"""A task that is handed to another agent while a caller waits for it: the caller gets the result
of the successor.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.bootstrap import open_core
from remit.catalog import Caller, attend, call
from remit.domain.llm.messages import Request, Response
from tests.agents.stage import Gate, Stage, reached, says, stage
from tests.engine.fleet import ANN
from tests.modelserver import ModelServer, Reply, Say, Silent
from tests.patience import patient
from tests.surfaces.mcp_http import MODERN, ok, over_http
from tests.surfaces.planner import asked, model_of, remit_in

ANSWER = "By the other agent."


@asynccontextmanager
async def waiting_agent(url: str, folder: Path) -> AsyncIterator[tuple[Stage, Gate]]:
    """A stage on which `general` never answers and `explore` does at once."""
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        return says(ANSWER) if request.agent == "explore" else gate.then(says("Too late."))

    async with stage(url, folder, rule) as at, asyncio.timeout(patient(60)):
        yield at, gate


async def hand_over(at: Stage, gate: Gate, task_id: str = "1") -> None:
    """Give a running task to another agent."""
    await gate.reached.wait()
    await at.call("update_task", task_id=task_id, owner="explore")


def must_be_by_successor(answer: dict[str, Any], task_id: str = "2") -> None:
    """The result is the successor's, in an envelope or in the lean form of MCP."""
    found = answer.get("data", answer)
    assert (found["status"], found["task_id"], found["result"]) == ("completed", task_id, ANSWER)


async def test_a_delegation_gets_the_result_of_the_successor(
    durable_url: str, tmp_path: Path
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        answer, _ = await asyncio.gather(at.call("task", objective="Go"), hand_over(at, gate))
        must_be_by_successor(answer)


async def test_a_delegation_follows_several_handoffs(durable_url: str, tmp_path: Path) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):

        async def twice() -> None:
            await gate.reached.wait()
            await at.call("update_task", task_id="1", owner="plan")
            await at.team.until("2", lambda task: task.run is not None)
            await at.call("update_task", task_id="2", owner="explore")

        answer, _ = await asyncio.gather(at.call("task", objective="Go"), twice())
        must_be_by_successor(answer, "3")


async def test_each_of_several_results_keeps_its_place(durable_url: str, tmp_path: Path) -> None:
    works: list[Any] = [{"objective": "A"}, {"objective": "B", "subagent_type": "explore"}]
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        answer, _ = await asyncio.gather(at.call("task_parallel", tasks=works), hand_over(at, gate))
        first, second = answer["results"]
        must_be_by_successor(first, "3")
        must_be_by_successor(second, "2")


async def test_task_output_returns_the_result_of_the_successor(
    durable_url: str, tmp_path: Path
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        await at.call("task", objective="Go", wait=False)
        wait = at.call("task_output", task_id="1", wait_seconds=600)
        answer, _ = await asyncio.gather(wait, hand_over(at, gate))
        must_be_by_successor(answer)
        must_be_by_successor(await at.call("task_output", task_id="1"))
        must_be_by_successor(await at.call("task_output", task_id="1", wait_seconds=600))


async def test_task_output_shows_a_successor_that_has_not_ended(
    durable_url: str, tmp_path: Path
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        await at.call("task", objective="Go", wait=False)
        await gate.reached.wait()
        await at.call("update_task", task_id="1", owner="plan")
        found = (await at.call("task_output", task_id="1"))["data"]
        assert (found["status"], found["task_id"], found["subagent_type"]) == (
            "running",
            "2",
            "plan",
        )


async def test_a_caller_that_waits_for_a_subtask_gets_its_successor(
    durable_url: str, tmp_path: Path
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        parent = await at.create(status="draft")
        fields = {"task_id": parent, "title": "Below", "owner": "general", "wait": "block"}
        answer, _ = await asyncio.gather(
            at.call("create_subtask", **fields), hand_over(at, gate, "2")
        )
        assert (answer["task_id"], answer["task"]["state"]) == ("3", "done")


async def test_the_same_key_finds_the_successor(durable_url: str, tmp_path: Path) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        same = {"objective": "Go", "idempotency_key": "k"}
        await asyncio.gather(at.call("task", **same), hand_over(at, gate))
        must_be_by_successor(await at.call("task", **same))


async def test_rest_and_mcp_get_the_result_of_the_successor(
    durable_url: str, tmp_path: Path
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate), over_http(at, MODERN) as client:
        body = {"objective": "Go"}
        answer, _ = await asyncio.gather(
            asked(at, "POST", "/api/delegate", body), hand_over(at, gate)
        )
        must_be_by_successor(answer)
        gate.reached.clear()
        wait = ok(client, "task", objective="Go")
        answer, _ = await asyncio.gather(wait, hand_over(at, gate, "3"))
        must_be_by_successor(answer, "4")


@pytest.mark.parametrize("operation", ["task", "task_parallel", "task_output"])
async def test_progress_continues_with_the_successor(
    durable_url: str, tmp_path: Path, operation: str
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        fields: dict[str, Any] = {"objective": "Go"}
        if operation == "task_parallel":
            fields = {"tasks": [fields]}
        if operation == "task_output":
            await at.call("task", objective="Go", wait=False)
            fields = {"task_id": "1", "wait_seconds": 600}

        items: list[dict[str, Any]] = []
        is_followed = asyncio.Event()

        async def follow() -> None:
            async for item in attend(at.team.core, operation, fields, Caller(actor=ANN)):
                items.append(item)
                if "state" in item:
                    is_followed.set()

        async def hand_over_when_followed() -> None:
            await is_followed.wait()
            await hand_over(at, gate)

        await asyncio.gather(follow(), hand_over_when_followed())
        handed = [item for item in items if item.get("superseded_by")]
        assert [(item["task_id"], item["superseded_by"]) for item in handed] == [("1", "2")]
        told = [item["task_id"] for item in items if "state" in item]
        assert told[-1] == "2"
        assert ANSWER in json.dumps(items[-1]["answer"])


class SecondThoughts(ModelServer):
    """A model that answers all requests except the first."""

    def __init__(self) -> None:
        super().__init__("openai")
        self.was_asked = asyncio.Event()

    async def _choose(self, _body: dict[str, Any]) -> Reply:
        first = not self.was_asked.is_set()
        self.was_asked.set()
        return Silent() if first else Say((ANSWER,))


@pytest.mark.parametrize("words", [["task", "run", "1"], ["task", "result", "1", "--wait", "600"]])
async def test_the_command_line_continues_with_the_successor(
    durable_url: str, tmp_path: Path, words: list[str]
) -> None:
    async with open_core(durable_url) as core, SecondThoughts().running() as server:
        assert isinstance(server, SecondThoughts)
        fields = {"title": "Go", "owner": "general"}
        await call(core, "create_task", fields, Caller(actor=ANN))
        variables = model_of(server) | {"REMIT_DATABASE_URL": durable_url}

        async def hand_over_when_asked() -> None:
            await server.was_asked.wait()
            change = {"task_id": "1", "owner": "explore"}
            await call(core, "update_task", change, Caller(actor=ANN))

        command = remit_in(tmp_path, variables, *words, "--json")
        async with asyncio.timeout(patient(60)):
            (code, out, err), _ = await asyncio.gather(command, hand_over_when_asked())
        assert (code, ANSWER in out) == (0, True), err


async def test_a_canceled_task_without_a_successor_is_cancelled(
    durable_url: str, tmp_path: Path
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):

        async def cancel() -> None:
            await gate.reached.wait()
            await at.call("cancel_task", task_id="1")
            await at.call("rerun_task", task_id="1")

        answer, _ = await asyncio.gather(at.call("task", objective="Go"), cancel())
        assert (answer["data"]["status"], answer["data"]["task_id"]) == ("cancelled", "1")


async def test_the_successor_of_a_paused_task_waits_until_it_is_resumed(
    durable_url: str, tmp_path: Path
) -> None:
    async with waiting_agent(durable_url, tmp_path) as (at, gate):
        task_id = await at.create()
        await reached(gate)
        await at.call("pause_task", task_id=task_id)
        handed = await at.call("update_task", task_id=task_id, owner="explore")
        assert handed["task"]["state"] == "paused"
        assert (await at.team.task(handed["task"]["id"])).counts.runs == 0
        await at.call("resume_task", task_id=handed["task"]["id"])
        assert (await at.team.ended(handed["task"]["id"])).summary == ANSWER
