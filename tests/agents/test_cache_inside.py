"""Results that answer again, for a running agent that hands out work: nothing is done twice, and
nothing is taken for what it is not.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.app.maintenance.verify import verify
from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State, Task
from tests.agents.cached import ASKED, asked
from tests.agents.delegating import boss, told
from tests.agents.endpoint import Body, RuledServer, answers, objective, tool_results, wants
from tests.agents.processes import fragile
from tests.agents.shown import prefix
from tests.agents.stage import Gate, Stage, calls, reached, results, says, stage
from tests.modelserver import Say

LEAD = Agent(id="lead", description="Leads.", tools=("Read", "LS", "Bash", "Task"))
Brief = tuple[str, bool, str]
"""Of a result: its task, whether it was there before, and its text."""


def new(task_id: str, text: str = "Where is main?") -> Brief:
    return task_id, False, f"Did: {text}"


def known(task_id: str, text: str = "Where is main?") -> Brief:
    return task_id, True, f"Did: {text}"


def brief(item: dict[str, Any]) -> Brief:
    return item["task_id"], item.get("cached", False), item["result"]


def heard(task: Task) -> list[Brief]:
    """The results of single tasks that the boss repeated."""
    return [brief(json.loads(text)) for text in told(task)]


def items(text: str) -> list[dict[str, Any]]:
    """The results of a fan-out, in order."""
    found: list[dict[str, Any]] = json.loads(text)["results"]
    return found


def briefs(text: str) -> list[Brief]:
    """The same in short, without those that were refused."""
    return [brief(item) for item in items(text) if "task_id" in item]


def refusal(item: dict[str, Any]) -> str:
    """Why an item was refused."""
    assert item["status"] == "failed"
    return str(item["error"]["message"])


async def led(at: Stage, **fields: Any) -> Task:
    task = await at.run(owner="build", instructions="Lead", **fields)
    assert task.state is State.DONE, task.failure_reason
    return task


async def test_an_identical_task_of_an_agent_is_answered_at_once_and_makes_no_subtask(
    any_url: str, folder: Path
) -> None:
    async with stage(any_url, folder, boss(("task", ASKED))) as at:
        first, again = await led(at), await led(at)
        assert (heard(first), heard(again)) == ([new("2")], [known("2")])
        assert ([child.id for child in first.children], again.children) == (["2"], ())
        assert (first.counts.runs, again.counts.runs, len(at.script.asked)) == (2, 1, 5)
        assert (await verify(at.team.core.store)).faults == ()


async def test_nothing_is_taken_unless_it_is_asked_for(any_url: str, folder: Path) -> None:
    async with stage(
        any_url, folder, boss(("task", {**ASKED, "cache": False}), ("task", ASKED))
    ) as at:
        first, again = await led(at), await led(at)
        assert heard(first) == [new("2"), new("3")]
        assert heard(again) == [new("5"), known("3")]


async def test_people_and_agents_answer_each_other(any_url: str, folder: Path) -> None:
    async with stage(
        any_url, folder, boss(("task", ASKED), ("task", {**ASKED, "objective": "Another"}))
    ) as at:
        assert (await asked(at))[:2] == (False, "1")
        assert heard(await led(at)) == [known("1"), new("3", "Another")]
        assert (await asked(at, objective="Another"))[:2] == (True, "3")


async def test_a_subtask_is_known_by_the_tools_that_it_really_gets(
    any_url: str, folder: Path
) -> None:
    narrow = {**ASKED, "subagent_type": "general", "tools": ["Read"]}
    async with stage(any_url, folder, boss(("task", {**narrow, "tools": ["Read", "Bash"]}))) as at:
        assert (await asked(at, **narrow))[:2] == (False, "1")
        assert heard(await led(at))[0][:2] == ("1", True)  # its parent has no Bash to hand on
        assert not heard(await led(at, tools={"allow": ["LS", "Task"]}))[0][1]


async def test_a_fan_out_uses_cached_results_and_runs_the_others_in_order(
    any_url: str, folder: Path
) -> None:
    gate = Gate()

    def workers(request: Request) -> Any:
        answer = says(f"Did: {request.messages[0].text}")
        return gate.then(answer) if request.messages[0].text == "New" else answer

    works = [
        {**ASKED, "objective": "New"},
        ASKED,
        {**ASKED, "cache": False},
        {**ASKED, "subagent_type": "build"},
        {**ASKED, "depends_on": ["1"]},
        {**ASKED, "objective": "Else"},
        "In a word",
    ]
    async with stage(
        any_url, folder, boss(("task_parallel", {"tasks": works}), workers=workers)
    ) as at:
        await asked(at)
        task_id = await at.create(owner="build", instructions="Lead")
        await reached(gate)
        (folder / "main.py").write_text("# what was found is found, and told when all is there\n")
        gate.open.set()
        task = await at.team.ended(task_id)
        found = items(told(task)[0])
        assert [brief(item) for item in found[:3]] == [new("3", "New"), known("1"), new("4")]
        expected = (
            "but this one can use Task, the capability tasks; expected a grant of read-only tools"
        )
        assert expected in refusal(found[3])
        assert refusal(found[4]).startswith("cache: cannot be combined with depends_on")
        assert found[4]["error"]["code"] == "INVALID_PARAM"
        assert [brief(item) for item in found[5:]] == [new("5", "Else"), new("6", "In a word")]
        assert [child.id for child in task.children] == ["3", "4", "5", "6"]
        assert (await verify(at.team.core.store)).faults == ()


async def test_a_fully_cached_fan_out_does_not_wait(any_url: str, folder: Path) -> None:
    works = [ASKED, {**ASKED, "objective": "Another"}, {"objective": ""}]
    async with stage(any_url, folder, boss(("task_parallel", {"tasks": works}))) as at:
        first, again = await led(at), await led(at)
        assert briefs(told(first)[0]) == [new("2"), new("3", "Another")]
        assert briefs(told(again)[0]) == [known("2"), known("3", "Another")]
        assert items(told(again)[0])[2] == items(told(first)[0])[2]
        assert (again.children, again.counts.runs) == ((), 1)


async def test_identical_items_run_once(any_url: str, folder: Path) -> None:
    works = [ASKED, {**ASKED, "objective": "Another"}, ASKED, {**ASKED, "priority": 0}]
    async with stage(any_url, folder, boss(("task_parallel", {"tasks": works}))) as at:
        task = await led(at)
        assert briefs(told(task)[0]) == [new("2"), new("3", "Another"), known("2"), known("2")]
        assert ([child.id for child in task.children], task.counts.runs, len(at.script.asked)) == (
            ["2", "3"],
            2,
            4,
        )


async def test_an_item_whose_twin_failed_does_the_work_itself(any_url: str, folder: Path) -> None:
    asks = 0

    def workers(_: Request) -> Response:
        nonlocal asks
        asks += 1
        return (
            calls(("complete_task", {"outputs": {"report": "Done."}, "summary": "Reported."}))
            if asks > 3
            else says("Done, I think.")
        )

    piece = {**ASKED, "outputs": ["report"]}
    async with stage(
        any_url, folder, boss(("task_parallel", {"tasks": [piece] * 3}), workers=workers)
    ) as at:
        task = await led(at)
        found = items(told(task)[0])
        ends = [(item["task_id"], item["status"], item.get("cached", False)) for item in found]
        assert ends == [("2", "failed", False), ("3", "completed", False), ("3", "completed", True)]
        assert ([child.id for child in task.children], task.counts.runs) == (["2", "3"], 3)
        assert (await verify(at.team.core.store)).faults == ()


async def test_a_twin_takes_the_result_although_another_item_has_changed_the_workspace_since(
    any_url: str, folder: Path
) -> None:
    async def workers(request: Request) -> Response:
        if request.messages[0].text != "Change" or results(request):
            return says(f"Did: {request.messages[0].text}")
        await at.team.ended("2")
        return calls(("Bash", {"command": "echo >> main.py"}))

    works = [ASKED, {"objective": "Change", "tools": ["Bash"]}, ASKED]
    rule = boss(("task_parallel", {"tasks": works}), workers=workers)
    async with stage(any_url, folder, rule, agents=[LEAD]) as at:
        task = await at.run(owner="lead", instructions="Lead")
        found = items(told(task)[0])
        assert (brief(found[0]), brief(found[2])) == (new("2"), known("2"))
        assert "\n\n" in (folder / "main.py").read_text()


async def test_a_changed_file_or_question_misses_the_cache(any_url: str, folder: Path) -> None:
    async with stage(
        any_url, folder, boss(("task", ASKED), ("task", {**ASKED, "context": {"branch": "dev"}}))
    ) as at:
        assert heard(await led(at)) == [
            new("2"),
            new("3", 'Where is main?\n\nContext:\n{"branch": "dev"}'),
        ]
        (folder / "main.py").write_text("def mine(): ...\n")
        assert [cached for _, cached, _ in heard(await led(at))] == [False, False]
        assert [cached for _, cached, _ in heard(await led(at))] == [True, True]


async def test_items_that_could_change_something_or_are_invalid_are_refused(
    any_url: str, folder: Path
) -> None:
    wanted = (
        ("task", {**ASKED, "subagent_type": "general", "tools": ["Read", "Bash"]}),
        ("task", {**ASKED, "subagent_type": "build"}),
        ("task", {**ASKED, "depends_on": ["1"]}),
        ("task", {**ASKED, "cache": "yes"}),
        ("task_parallel", {"tasks": [{**ASKED, "cache": 1}]}),
        ("task", {**ASKED, "idempotency_key": "k"}),
        ("create_subtask_explore", {"title": "Look", "cache": True}),
    )
    async with stage(any_url, folder, boss(*wanted), agents=[LEAD]) as at:
        task = await at.run(owner="lead", instructions="Lead")
        writes, hands, waits, word, number, key, other = told(task)
        assert (
            writes
            == "cache: requires a read-only task, but this one can use Bash; expected a grant of"
            " read-only tools."
        )
        assert "but this one can use Task, the capability tasks;" in hands
        assert waits.startswith(
            "cache: cannot be combined with depends_on; expected only one of them"
        )
        assert (word, number) == (
            "cache: is 'yes'; expected true or false.",
            "tasks[0].cache: is 1; expected true or false.",
        )
        assert key.startswith(
            "idempotency_key: is not a field here; expected one of acceptance, cache, context"
        )
        assert other.startswith("cache: is not a field here")
        assert task.children == ()


async def test_an_item_without_a_wait_gets_its_cached_result_immediately(
    any_url: str, folder: Path
) -> None:
    async with stage(
        any_url,
        folder,
        boss(
            ("task", {**ASKED, "wait": False}),
            ("task", {**ASKED, "objective": "New", "wait": False}),
        ),
    ) as at:
        await asked(at)
        await led(at)
        there, begun = next(found for request in at.script.asked if (found := results(request)))
        receipt = json.loads(begun)
        assert (brief(json.loads(there)), receipt["task_id"], receipt["status"]) == (
            known("1"),
            "3",
            "running",
        )
        assert receipt["note"].startswith("Get its result with task_output")
        await at.team.ended("3")
        assert heard(await led(at)) == [known("1"), known("3", "New")]


async def test_a_workspace_too_large_to_look_at_is_worked_on_and_said_so(
    any_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "remit.adapters.tools.workspace_paths.Workspace.fingerprint", lambda *_: None
    )
    async with stage(
        any_url, folder, boss(("task", ASKED), ("task_parallel", {"tasks": ["Plain", ASKED]}))
    ) as at:
        said = "The cache was not used: the workspace has too many files."
        one, many = told(await led(at))
        first = json.loads(one)
        assert (brief(first), first["not_cached"]) == (new("2"), said)
        assert [item.get("not_cached") for item in items(many)] == [None, said]


async def test_existing_results_are_returned_when_no_more_subtasks_are_allowed(
    any_url: str, folder: Path
) -> None:
    more = {**ASKED, "objective": "More"}
    wanted = ("task_parallel", {"tasks": [more, ASKED, more, "Also"]})
    async with stage(
        any_url, folder, boss(("task", {"objective": "First", "subagent_type": "explore"}), wanted)
    ) as at:
        await asked(at)
        task = await led(at, limits={"max_children": 1})
        found = items(told(task)[1])
        refused = [
            "subtasks, the maximum" in item.get("error", {}).get("message", "") for item in found
        ]
        assert (brief(found[1]), refused) == (known("1"), [True, False, True, True])
        assert {item["error"]["code"] for item in found if "error" in item} == {"LIMIT_EXCEEDED"}
        assert len(task.children) == 1


async def test_a_conversation_reads_the_same_in_every_run(any_url: str, folder: Path) -> None:
    turns = [
        calls(("task", ASKED)),
        calls(
            (
                "task_parallel",
                {
                    "tasks": [
                        {**ASKED, "objective": "Another"},
                        ASKED,
                        {**ASKED, "objective": "Another"},
                        "Else",
                    ]
                },
            )
        ),
        calls(("ask_user", {"question": "Go on?"})),
        says("Done."),
    ]

    def rule(request: Request) -> Response:
        return (
            turns.pop(0)
            if request.messages[0].text == "Lead"
            else says(f"Did: {request.messages[0].text}")
        )

    async with stage(any_url, folder, rule) as at:
        await asked(at)
        task_id = await at.create(owner="build", instructions="Lead")
        asking = await at.team.until(
            task_id, lambda task: bool(task.questions) and task.state is State.WAITING
        )
        await at.call("respond", interaction_id=asking.questions[0].id, answer="Yes")
        await at.team.ended(task_id)
        assert at.script.line is not None
        bodies = [
            sent.body for sent in at.script.line.server.asked if objective(sent.body) == "Lead"
        ]
        assert (len(bodies), brief(json.loads(tool_results(bodies[-1])[0]))) == (4, known("1"))
        for earlier, later in pairwise(bodies):
            assert json.dumps(prefix(later)[: len(prefix(earlier))]) == json.dumps(prefix(earlier))


async def test_agents_are_offered_it_where_it_works(any_url: str, folder: Path) -> None:
    async with stage(any_url, folder, lambda _: says("Done.")) as at:
        await at.run(owner="build")
        shown = {tool.name: tool.schema["properties"] for tool in at.script.asked[0].tools}
        assert shown["task"]["cache"]["type"] == "boolean"
        assert "fields of task" in shown["task_parallel"]["tasks"]["description"]
        assert "cache" not in shown["create_subtask"] | shown["create_subtask_explore"]


async def test_cached_results_are_kept_when_workers_die(durable_url: str, folder: Path) -> None:
    """Each worker dies when it has begun something: a fan-out, what a twin could not share, and
    items one by one because one is refused.
    """
    one, two = (
        {"objective": f"Work {number}", "subagent_type": "explore", "cache": True}
        for number in (1, 2)
    )
    wanted = (
        wants("c1", "task", **one),
        wants("c2", "task_parallel", tasks=[two, one, two, {"objective": ""}]),
        wants(
            "c3",
            "task_parallel",
            tasks=[two, "Work 3", {"objective": "Never", "depends_on": ["99"]}, "Work 4"],
        ),
    )
    seen: list[str] = []

    async def lead(body: Body) -> Say:
        if (asked_for := objective(body)) != "Lead":
            if asked_for in {"Work 2", "Work 3"} - set(seen):
                (folder / "main.py").write_text(
                    f"# since {asked_for}, nothing is as it was before\n"
                )
            seen.append(asked_for)
            return Say((f"Did: {asked_for}",))
        done = answers(body)
        return (
            Say(calls=(wanted[done],))
            if done < len(wanted)
            else Say((json.dumps(tool_results(body)),))
        )

    async with (
        RuledServer(lead).running() as server,
        stage(durable_url, folder, [], workers=0) as at,
    ):
        task_id = await at.create(owner="build", instructions="Lead", limits={"max_attempts": 20})
        async with fragile(folder, durable_url, server.url, ("SubtaskAwaited",) * 5):
            done = await at.team.ended(task_id)
        happened = await at.team.events(task_id)
        assert done.state is State.DONE, done.failure_reason
        first, many, more = json.loads(done.final_message or "")
        assert brief(json.loads(first)) == new("2", "Work 1")
        assert briefs(many) == [new("3", "Work 2"), known("2", "Work 1"), new("4", "Work 2")]
        assert "objective: is missing" in refusal(items(many)[3])
        assert briefs(more) == [known("4", "Work 2"), new("5", "Work 3"), new("6", "Work 4")]
        assert "99, which does not exist" in refusal(items(more)[2])
        assert (seen, happened.count("SubtaskLinked"), happened.count("RunLost")) == (
            [f"Work {number}" for number in (1, 2, 2, 3, 4)],
            5,
            5,
        )
        assert (await verify(at.team.core.store)).faults == ()
