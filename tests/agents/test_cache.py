"""Results that answer again: an identical read-only task is not done twice, and anything else
is.
"""

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.adapters.tools.functions import repeatable
from remit.app.agents.registry import Agent
from remit.app.maintenance.verify import verify
from remit.domain.llm.messages import Request, Response
from remit.domain.records.record import replace
from remit.errors import InvalidParam
from tests.agents.cached import ASKED, asked
from tests.agents.stage import Gate, calls, results, says, stage


async def test_an_identical_task_returns_the_first_result_immediately(
    any_url: str, folder: Path
) -> None:
    script = [calls(("Read", {"file_path": "main.py"})), says("In main.py.")]
    async with stage(any_url, folder, script) as at:
        first = await at.call("task", **ASKED)
        again = await at.call("task", **ASKED)
        assert (first["data"]["cached"], again["data"]["cached"]) == (False, True)
        assert again == first | {"data": first["data"] | {"cached": True}}
        assert again["stats"]["tokens"] == 30
        assert (
            (await at.call("list_tasks", status="done"))["tasks"][0]["id"]
            == again["data"]["task_id"]
            == "1"
        )
        assert len(at.script.asked) == 2
        flat = await at.call("task", **ASKED, format="flat")
        assert (flat["cached"], flat["result"], flat["task_id"]) == (True, "In main.py.", "1")
        receipt = await at.call("task", **ASKED, wait=False)
        assert (receipt["data"]["status"], receipt["data"]["cached"]) == ("completed", True)
        assert (await verify(at.team.core.store)).faults == ()


async def test_nothing_is_remembered_unless_it_is_asked_for(any_url: str, folder: Path) -> None:
    async with stage(any_url, folder, lambda _: says("In main.py.")) as at:
        plain = await at.call("task", objective="Where is main?", subagent_type="explore")
        assert "cached" not in plain["data"]
        assert await asked(at) == (False, "2", 2)
        assert (
            "cached"
            not in (await at.call("task", objective="Where is main?", subagent_type="explore"))[
                "data"
            ]
        )
        assert len(at.script.asked) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"objective": "Where is the other main?"},
        {"description": "To fix it"},
        {"context": {"branch": "dev"}},
        {"subagent_type": "general"},
        {"effort": "high"},
        {"model": "main"},
        {"tools": {"allow": ["Read"]}},
        {"acceptance": ["It names a line"]},
        {
            "acceptance": [{"text": "It names a line"}],
            "outputs": [{"name": "place", "required": False}],
        },
    ],
    ids="+".join,
)
async def test_another_question_is_another_task(
    tmp_path: Path, folder: Path, changed: dict[str, Any]
) -> None:
    async with stage(f"sqlite:///{tmp_path / 'remit.db'}", folder, lambda _: says("Here.")) as at:
        assert await asked(at) == (False, "1", 1)
        assert await asked(at, **changed) == (False, "2", 2)
        assert await asked(at, **changed) == (True, "2", 2)
        assert await asked(at) == (True, "1", 2)


async def test_limits_and_priority_do_not_make_another_question(any_url: str, folder: Path) -> None:
    async with stage(any_url, folder, lambda _: says("Here.")) as at:
        await asked(at)
        assert await asked(
            at, priority=0, timeout_seconds=7, limits={"max_turns": 3}, session_id="s1"
        ) == (True, "1", 1)


async def test_every_change_in_the_workspace_but_remits_own_changes_the_key(
    any_url: str, folder: Path
) -> None:
    async with stage(any_url, folder, lambda _: says("Here.")) as at:
        await asked(at)
        (folder / ".remit" / "config.toml").write_text("")
        assert await asked(at) == (True, "1", 1)
        (folder / "main.py").write_text("def mine(): ...\n")
        assert await asked(at) == (False, "2", 2)
        (folder / "deep").mkdir()
        assert await asked(at) == (False, "3", 3)
        (folder / "deep" / "link").symlink_to("../main.py")
        assert await asked(at) == (False, "4", 4)
        (folder / "main.py").unlink()
        assert await asked(at) == (False, "5", 5)
        assert await asked(at) == (True, "5", 5)


async def test_a_file_that_changes_while_an_agent_reads_spoils_the_result_for_others(
    any_url: str, folder: Path
) -> None:
    def rule(request: Request) -> Response:
        if len(at.script.asked) == 1:
            (folder / "main.py").write_text("# meanwhile\n")
        return says("Here.")

    async with stage(any_url, folder, rule) as at:
        assert await asked(at) == (False, "1", 1)
        assert await asked(at) == (False, "2", 2)
        assert await asked(at) == (True, "2", 2)
        assert (await at.team.events("1")).count("ResultVouched") == 0


async def test_an_agent_with_another_prompt_is_another_agent(
    durable_url: str, folder: Path
) -> None:
    scout = Agent(id="scout", description="Looks around.", prompt="Look.")
    for prompt, expected in (
        ("Look.", (False, "1", 1)),
        ("Look twice.", (False, "2", 1)),
        ("Look.", (True, "1", 0)),
    ):
        async with stage(
            durable_url, folder, lambda _: says("Here."), agents=[replace(scout, prompt=prompt)]
        ) as at:
            assert await asked(at, subagent_type="scout") == expected


async def test_a_result_outlives_the_process_that_made_it(durable_url: str, folder: Path) -> None:
    async with stage(durable_url, folder, lambda _: says("In main.py.")) as at:
        await asked(at)
    async with stage(durable_url, folder, [], workers=0) as at:
        assert await asked(at) == (True, "1", 0)


async def test_a_failed_task_runs_again(any_url: str, folder: Path) -> None:
    async with stage(any_url, folder, lambda _: says("Done, I think.")) as at:
        for number in ("1", "2"):
            found = await at.call("task", **ASKED, outputs=["report"])
            assert (found["data"]["status"], found["data"]["task_id"], found["data"]["cached"]) == (
                "failed",
                number,
                False,
            )


async def test_outputs_come_with_it(any_url: str, folder: Path) -> None:
    script = [
        says("Done."),
        calls(("complete_task", {"outputs": {"report": "All is well."}, "summary": "Reported."})),
    ]
    async with stage(any_url, folder, script) as at:
        await asked(at, outputs=["report"])
        again = await at.call("task", **ASKED, outputs=["report"])
        assert (again["data"]["cached"], again["data"]["outputs"]) == (
            True,
            {"report": "All is well."},
        )


async def test_a_result_that_a_person_influenced_is_not_reused(any_url: str, folder: Path) -> None:
    gate = Gate()

    def rule(request: Request) -> Response | Awaitable[Response]:
        return gate.then(says("Here.")) if len(at.script.asked) == 1 else says("Here.")

    async with stage(any_url, folder, rule) as at:
        receipt = await at.call("task", **ASKED, wait=False)
        await gate.reached.wait()
        await at.call("send_message", task_id=receipt["data"]["task_id"], message="Look in src.")
        gate.open.set()
        await at.team.ended("1")
        assert (await asked(at))[:2] == (False, "2")


async def test_completion_by_a_person_is_not_a_result_of_an_agent(
    any_url: str, folder: Path
) -> None:
    async with stage(any_url, folder, [], workers=0) as at:
        receipt = await at.call("task", **ASKED, wait=False)
        await at.call(
            "complete_task", task_id=receipt["data"]["task_id"], summary="I did it myself."
        )
        assert (await at.call("task", **ASKED, wait=False))["data"]["cached"] is False


@repeatable
def lookup(word: str) -> str:
    """Look a word up."""
    return f"{word} means it"


def post(text: str) -> str:
    """Post a text."""
    return f"posted {text}"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": {"allow": ["Read", "Edit", "Bash"]}}, "Edit, Bash"),
        ({"subagent_type": "build"}, "Task, the capability tasks"),
        ({"tools": {"allow": ["Read", "post"]}}, "post"),
        ({"tools": {"allow": ["Teleport"]}}, "Teleport"),
    ],
)
async def test_a_task_that_could_change_something_is_refused(
    tmp_path: Path, folder: Path, fields: dict[str, Any], named: str
) -> None:
    async with stage(
        f"sqlite:///{tmp_path / 'remit.db'}", folder, [], functions=[lookup, post], workers=0
    ) as at:
        with pytest.raises(
            InvalidParam,
            match=(
                f"cache: requires a read-only task, but this one can use {named}; expected a"
                " grant of read-only tools"
            ),
        ):
            await at.call("task", **{**ASKED, "subagent_type": "general", **fields})
        for other in ({"idempotency_key": "k"}, {"depends_on": ["1"]}):
            with pytest.raises(
                InvalidParam, match=f"cache: cannot be combined with {next(iter(other))}"
            ):
                await at.call("task", **ASKED, **other)
        assert (await at.call("list_tasks"))["tasks"] == []


async def test_a_function_that_does_no_harm_may_be_granted(any_url: str, folder: Path) -> None:
    grant = {"subagent_type": "general", "tools": {"allow": ["Read", "lookup"]}}

    def rule(request: Request) -> Response:
        return (
            says(results(request)[0]) if results(request) else calls(("lookup", {"word": "remit"}))
        )

    async with stage(any_url, folder, rule, functions=[lookup]) as at:
        assert (await asked(at, **grant))[0] is False
        assert (await at.call("task", **{**ASKED, **grant}))["data"]["result"] == "remit means it"
        assert len(at.script.asked) == 2


async def test_a_workspace_too_large_to_look_at_is_worked_on_and_said_so(
    any_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "remit.adapters.tools.workspace_paths.Workspace.fingerprint", lambda *_: None
    )
    async with stage(any_url, folder, lambda _: says("Here.")) as at:
        for number in ("1", "2"):
            data = (await at.call("task", **ASKED))["data"]
            assert (data["cached"], data["task_id"]) == (False, number)
            assert data["not_cached"] == "The cache was not used: the workspace has too many files."


async def test_identical_items_of_one_call_run_once(any_url: str, folder: Path) -> None:
    async with stage(any_url, folder, lambda _: says("Here.")) as at:
        pieces = [
            ASKED,
            {**ASKED, "objective": "Another"},
            ASKED,
            {**ASKED, "cache": False},
            {**ASKED, "tools": ["Bash"], "subagent_type": "general"},
        ]
        found = (await at.call("task_parallel", tasks=pieces))["results"]
        assert [item["data"].get("cached") for item in found] == [False, False, True, None, None]
        assert [item["data"]["task_id"] for item in found] == ["1", "2", "1", "3", None]
        assert (found[4]["error"]["code"], "Bash" in found[4]["error"]["message"]) == (
            "INVALID_PARAM",
            True,
        )
        assert len(at.script.asked) == 3
        again = (await at.call("task_parallel", tasks=pieces[:3]))["results"]
        assert [(item["data"]["cached"], item["data"]["task_id"]) for item in again] == [
            (True, "1"),
            (True, "2"),
            (True, "1"),
        ]


async def test_a_piece_whose_twin_failed_does_the_work_itself(any_url: str, folder: Path) -> None:
    def rule(_: Request) -> Response:
        return (
            calls(("complete_task", {"outputs": {"report": "Done."}}))
            if len(at.script.asked) > 3
            else says("Done, I think.")
        )

    async with stage(any_url, folder, rule) as at:
        piece = {**ASKED, "outputs": ["report"]}
        found = (await at.call("task_parallel", tasks=[piece, piece, piece]))["results"]
        assert [
            (item["data"]["status"], item["data"]["cached"], item["data"]["task_id"])
            for item in found
        ] == [
            ("failed", False, "1"),
            ("completed", False, "2"),
            ("completed", True, "2"),
        ]


async def test_the_library_offers_it_and_knows_its_workspace(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LLM_MODEL_ID", "LIGHT_LLM_MODEL_ID"):
        monkeypatch.delenv(name, raising=False)
    async with Remit.open(workspace=folder) as remit:
        first = await remit.task(
            objective="Where is main defined?", subagent_type="explore", cache=True
        )
        again = await remit.task(
            objective="Where is main defined?", subagent_type="explore", cache=True
        )
        assert (first.cached, again.cached) == (False, True)
        assert again.text == first.text
    async with Remit.open(workspace=folder) as remit:
        (folder / "new.py").write_text("")
        assert (
            await remit.task(
                objective="Where is main defined?", subagent_type="explore", cache=True
            )
        ).cached is False
