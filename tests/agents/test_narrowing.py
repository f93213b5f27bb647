"""Tools that a parent wants to give and does not have: the child does without them, and the
parent is told so.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.domain.llm.messages import Request, Response
from remit.errors import InvalidParam
from tests.agents.stage import calls, results, says, stage

WRITER = Agent(id="writer", description="Writes.", tools=("Read", "Write"))
LACKS_BASH = "Not granted: Bash (your own task does not have it)."
ASKED = ["Read", "Bash"]

GRANTS: dict[str, tuple[tuple[str, dict[str, Any]], str]] = {
    "task": (
        ("task", {"objective": "Look", "subagent_type": "general", "tools": ASKED}),
        LACKS_BASH,
    ),
    "a receipt": (
        ("task", {"objective": "Look", "subagent_type": "general", "tools": ASKED, "wait": False}),
        LACKS_BASH,
    ),
    "task_parallel": (
        (
            "task_parallel",
            {
                "tasks": [
                    {"objective": "Look", "tools": ASKED},
                    {"objective": "R", "tools": ["Read"]},
                ]
            },
        ),
        LACKS_BASH,
    ),
    "create_subtask": (
        ("create_subtask", {"task_id": "1", "title": "Look", "owner": "general", "tools": ASKED}),
        LACKS_BASH,
    ),
    "a blocking subtask": (
        (
            "create_subtask",
            {"task_id": "1", "title": "Look", "owner": "general", "tools": ASKED, "wait": "block"},
        ),
        LACKS_BASH,
    ),
    "create_subtask_<agent>": (
        ("create_subtask_writer", {"title": "Write"}),
        "Not granted: Write (your own task does not have it).",
    ),
    "create_task": (
        ("create_task", {"title": "Look", "owner": "general", "tools": ASKED, "status": "draft"}),
        LACKS_BASH,
    ),
    "lost defaults": (
        ("task", {"objective": "Look", "subagent_type": "general"}),
        "Not granted: LS, Glob, Grep (your own task does not have them).",
    ),
    "two reasons": (
        (
            "task",
            {"objective": "Look", "subagent_type": "explore", "tools": ["Read", "Edit", "Bash"]},
        ),
        "Not granted: Edit, Bash (explore can never have them).",
    ),
    "several": (
        (
            "task",
            {"objective": "Look", "subagent_type": "general", "tools": ["Read", "Edit", "Bash"]},
        ),
        "Not granted: Edit, Bash (your own task does not have them).",
    ),
}


@pytest.mark.parametrize("kind", GRANTS)
async def test_a_parent_reads_which_tools_its_child_did_not_get(
    any_url: str, tmp_path: Path, kind: str
) -> None:
    wanted, told = GRANTS[kind]
    async with parent(any_url, tmp_path, wanted) as at:
        await at.run(owner="build", tools=["Read", "Task"])
        answers = [
            text
            for request in at.script.asked
            if request.agent == "build"
            for text in results(request)
        ]
        assert told in answers[0]
        if answers[0].startswith("{"):
            found = json.loads(answers[0])
            items = found.get("results", [found])
            assert [item["notice"] for item in items if "notice" in item] == [told]


async def test_a_parent_that_has_the_tools_gets_no_notice(any_url: str, tmp_path: Path) -> None:
    async with parent(any_url, tmp_path, ("task", {"objective": "Look", "tools": ["Read"]})) as at:
        await at.run(owner="build", tools=["Read", "Task"])
        assert "Not granted" not in str(at.script.asked)


async def test_a_person_reads_which_tools_an_agent_can_never_have(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Found.")) as at:
        never = "Not granted: Edit (explore can never have it)."
        made = await at.call(
            "create_task", title="Look", owner="explore", tools=["Read", "Edit"], status="draft"
        )
        below = await at.call(
            "create_subtask",
            task_id=made["task_id"],
            title="Look",
            owner="general",
            tools=["Read", "Edit"],
            status="draft",
        )
        result = await at.call(
            "task", objective="Look", subagent_type="explore", tools=["Read", "Edit"]
        )
        flat = await at.call(
            "task", objective="Look", subagent_type="explore", tools=["Read", "Edit"], format="flat"
        )
        assert (made["notice"], result["data"]["notice"], flat["notice"]) == (never, never, never)
        assert below["notice"] == "Not granted: Edit (its parent task does not have it)."


UNKNOWN = "Unknown tools: Bassh, read. Available: LS, Glob, Grep, Read,"


async def test_a_caller_reads_which_tools_are_unknown(any_url: str, tmp_path: Path) -> None:
    work = {"objective": "Look", "subagent_type": "general", "tools": ["Bassh", "LS", "read"]}
    async with parent(any_url, tmp_path, ("task", work)) as at:
        result = await at.call("task", **work)
        assert result["data"]["notice"].startswith(UNKNOWN)
        await at.run(owner="build", tools=["LS", "Task"])
        answers = [text for request in at.script.asked for text in results(request)]
        own = "Unknown tools: Bassh, read. Available: LS, Task."
        assert json.loads(answers[0])["notice"] == own


async def test_an_agent_that_asks_for_no_tools_reads_no_notice(
    any_url: str, tmp_path: Path
) -> None:
    work = {"objective": "Look", "subagent_type": "general", "tools": []}
    async with parent(any_url, tmp_path, ("task", work)) as at:
        await at.run(owner="build", tools=["LS", "Task"])
        (answer,) = [text for request in at.script.asked for text in results(request)]
        assert "notice" not in json.loads(answer)


WRONG = ["Raed"]
TOLD = "tools: unknown tool 'Raed'. Did you mean Read? Available: LS, Read, Task."
UNKNOWN_LISTS: dict[str, tuple[str, dict[str, Any]]] = {
    "task": ("task", {"objective": "Look", "tools": WRONG}),
    "not awaited": ("task", {"objective": "Look", "tools": WRONG, "wait": False}),
    "several": (
        "task_parallel",
        {"tasks": [{"objective": "Look", "tools": ["Read"]}, {"objective": "No", "tools": WRONG}]},
    ),
    "subtask": ("create_subtask", {"title": "Look", "owner": "general", "tools": WRONG}),
    "blocking subtask": (
        "create_subtask",
        {"title": "Look", "owner": "general", "tools": {"allow": WRONG}, "wait": "block"},
    ),
    "another task": ("create_task", {"title": "Look", "owner": "general", "tools": WRONG}),
}


@pytest.mark.parametrize("kind", UNKNOWN_LISTS)
async def test_an_agent_that_names_no_known_tool_is_refused(
    any_url: str, tmp_path: Path, kind: str
) -> None:
    """Limited to the tools of the parent, such a list would be empty, which is allowed."""
    async with parent(any_url, tmp_path, UNKNOWN_LISTS[kind]) as at:
        await at.run(owner="build", tools=["LS", "Read", "Task"])
        (answer,) = [text for request in at.script.asked for text in results(request)]
        assert answer.count(TOLD) == 1
        assert [request.agent for request in at.script.asked].count("general") == (
            kind == "several"
        )


async def test_a_person_that_names_no_known_tool_for_a_subtask_is_refused(
    any_url: str, tmp_path: Path
) -> None:
    async with stage(any_url, tmp_path, lambda _: says("Done.")) as at:
        made = await at.call("create_task", title="Look", owner="build", status="draft")
        with pytest.raises(InvalidParam, match="tools: unknown tool 'Raed'"):
            await at.call(
                "create_subtask",
                task_id=made["task_id"],
                title="Look",
                owner="general",
                tools=WRONG,
                status="draft",
            )


async def test_a_caller_reads_which_denied_tools_are_unknown(any_url: str, tmp_path: Path) -> None:
    async with parent(any_url, tmp_path, ("task", {"objective": "Look"})) as at:
        made = await at.call("create_task", title="Look", owner="general", tools={"deny": ["Reed"]})
        assert made["notice"].startswith("Unknown tools: Reed. Available: LS, Glob, Grep, Read,")


async def test_the_exact_task_tool_takes_no_further_fields(any_url: str, tmp_path: Path) -> None:
    work = {"description": "Look", "prompt": "Look", "subagent_type": "general", "tools": ["Read"]}
    async with parent(any_url, tmp_path, ("Task", work)) as at:
        task = await at.run(owner="build")
        answers = [text for request in at.script.asked for text in results(request)]
        assert "tools: is not a field here" in answers[0]
        assert task.children == ()


def parent(url: str, folder: Path, wanted: tuple[str, dict[str, Any]]) -> Any:
    """A stage on which build makes one call and answers; everybody else answers at once."""

    def rule(request: Request) -> Response:
        return says("Done.") if request.agent != "build" or results(request) else calls(wanted)

    return stage(url, folder, rule, agents=[WRITER])
