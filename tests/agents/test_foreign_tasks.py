"""Which tasks a run may change: its own, those below it and those it created.

Another task is refused, and never mistaken for its own.
"""

from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.domain.llm.messages import Request, Response, ToolResult
from remit.domain.task.task import State, Task
from tests.agents.shown import told
from tests.agents.stage import Gate, Stage, calls, says, stage

LEAD = Agent(id="lead", description="Leads.", tools=("Read", "Task"), capabilities=("tasks",))
FOREIGN, ANCESTOR, OWN, CREATED, BELOW = "1", "2", "3", "4", "5"
"""A task of the same agent that a person made.

The parent of the run's task; that task; a task made beside it; its subtask.
"""

OK, REFUSED = "ok", "refused"
WORK = {OWN: OK, BELOW: OK, CREATED: OK, FOREIGN: REFUSED, ANCESTOR: REFUSED}
TERMS = {OWN: REFUSED, BELOW: OK, CREATED: REFUSED, FOREIGN: REFUSED, ANCESTOR: REFUSED}
FOR_ITSELF = {OWN: OK, BELOW: REFUSED, CREATED: REFUSED, FOREIGN: REFUSED, ANCESTOR: REFUSED}
FOR_OTHERS = WORK | {OWN: REFUSED}
"""A message to itself would be read as a change of its own instructions.

Its giver sets its owner and priority.
"""

OPERATIONS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("update_steps", {"steps": ["New"]}, WORK),
    ("update_step", {"index": 0, "done": True}, WORK),
    ("complete_task", {"summary": "Finished."}, WORK),
    ("fail_task", {"message": "No way."}, WORK),
    ("cancel_task", {}, WORK),
    ("send_message", {"message": "Hello."}, FOR_OTHERS),
    ("add_resource", {"type": "url", "value": "https://example.org/"}, WORK),
    ("update_task", {"title": "Another title"}, TERMS),
    ("update_task", {"labels": ["seen"]}, WORK),
    ("update_task", {"priority": 0}, FOR_OTHERS),
    ("update_task", {"owner": "explore"}, FOR_OTHERS),
    ("update_task", {"metadata": {"seen": 3}}, WORK),
    ("update_task", {"metadata": {"context": "Something else."}}, TERMS),
    ("update_task", {"instructions": "Something else."}, TERMS),
    ("update_task", {"description": "Something else."}, TERMS),
    ("update_task", {"acceptance": []}, TERMS),
    ("update_task", {"outputs": ["more"]}, TERMS),
    ("update_task", {"limits": {"max_turns": 9}}, TERMS),
    (
        "create_subtask",
        {"title": "More", "owner": "explore", "status": "draft", "wait": "none"},
        WORK,
    ),
    ("notify_user", {"message": "Half way."}, FOR_ITSELF),
    ("ask_user", {"question": "Which?", "blocking": False}, FOR_ITSELF),
]
STEPS = ["One", "Two"]
ENDS_OWN = ("complete_task", "fail_task", "cancel_task")


def family(*attempts: tuple[str, dict[str, Any]]) -> Any:
    """The run of task 3 makes tasks 4 and 5, then makes its attempts one after the other, and
    answers.
    """
    draft = {"owner": "lead", "status": "draft", "steps": STEPS, "acceptance": ["Good"]}
    made = [
        ("create_subtask", {"task_id": OWN, "title": "Below", "wait": "none", **draft}),
        ("create_task", {"title": "ExtraWrites", **draft}),
    ]

    def rule(request: Request) -> Response:
        if request.messages[0].text != "Go below.":
            return (
                says("Done.")
                if told(request)
                else calls(("task", {"objective": "Go below.", "subagent_type": "lead"}))
            )
        done = len(told(request))
        if not done:
            return calls(
                ("update_steps", {"steps": [{"title": title, "done": True} for title in STEPS]}),
                *made,
            )
        return calls(attempts[done - 3]) if done - 3 < len(attempts) else says("Done.")

    return rule


async def attempted(at: Stage) -> list[ToolResult]:
    """The results of the calls of task 3's run; a call that ended the run has none."""
    foreign = await at.create(owner="lead", status="draft", steps=STEPS, acceptance=["Good"])
    parent = await at.create(
        owner="lead", acceptance=["Good"], steps=[{"title": title, "done": True} for title in STEPS]
    )
    assert (foreign, parent) == (FOREIGN, ANCESTOR)
    await at.team.ended(ANCESTOR)
    assert [(await at.team.task(task_id)).parent_id for task_id in (OWN, CREATED, BELOW)] == [
        ANCESTOR,
        None,
        OWN,
    ]
    mine = [request for request in at.script.asked if request.messages[0].text == "Go below."]
    return told(mine[-1])[3:]


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    OPERATIONS,
    ids=lambda part: part if isinstance(part, str) else None,
)
async def test_a_run_changes_its_own_task_those_below_and_those_it_created(
    durable_url: str, tmp_path: Path, name: str, fields: dict[str, Any], expected: dict[str, str]
) -> None:
    order = (FOREIGN, ANCESTOR, BELOW, CREATED, OWN)
    attempts = [(name, {"task_id": task_id, **fields}) for task_id in order]
    async with stage(durable_url, tmp_path, family(*attempts), agents=[LEAD]) as at:
        results = await attempted(at)
        wanted = [expected[task_id] for task_id in order]
        if name in ENDS_OWN:
            wanted.pop()  # the run ends with that call
        assert [REFUSED if result.is_error else OK for result in results] == wanted
        foreign, ancestor, own = [
            await at.team.task(task_id) for task_id in (FOREIGN, ANCESTOR, OWN)
        ]
        assert untouched(foreign)
        assert (ancestor.state, ancestor.summary, ancestor.instructions) == (
            State.DONE,
            "Done.",
            "Do it.",
        )
        assert [step.title for step in ancestor.steps] == STEPS
        if expected is TERMS:
            assert own.instructions == "Go below."
        if expected is WORK:
            await changed(at, name)


def untouched(task: Task) -> bool:
    """True for the task that a person made, as it was made."""
    terms = (
        task.title,
        task.instructions,
        [item.text for item in task.acceptance],
        task.outputs,
        task.limits.max_turns,
    )
    as_made = terms == ("Work", "Do it.", ["Good"], (), None)
    return as_made and task.version == 1


async def changed(at: Stage, name: str) -> None:
    """The tasks below and beside really have what was asked for."""
    for task_id in (BELOW, CREATED):
        task = await at.team.task(task_id)
        ends = {
            "complete_task": State.DONE,
            "fail_task": State.FAILED,
            "cancel_task": State.CANCELED,
        }
        assert task.state is ends.get(name, State.DRAFT)
        if name == "update_steps":
            assert [step.title for step in task.steps] == ["New"]
        if name == "update_step":
            assert [step.done for step in task.steps] == [True, False]


OWN_NAMES: list[dict[str, Any]] = [
    {},
    {"task_id": None},
    {"task_id": "1"},
    {"task_id": 1},
    {"task_id": "#1"},
    {"task_id": " #1 "},
]


@pytest.mark.parametrize("named", [*OWN_NAMES, {"task_id": "uid"}, {"task_id": "UID"}], ids=str)
async def test_the_own_task_by_any_of_its_names(
    durable_url: str, tmp_path: Path, named: dict[str, Any]
) -> None:
    uids: list[str] = []

    def by_name() -> dict[str, Any]:
        return (
            {"task_id": uids[0] if named["task_id"] == "uid" else uids[0].upper()}
            if named.get("task_id") in ("uid", "UID")
            else named
        )

    def rule(request: Request) -> Response:
        steps = len(told(request))
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("update_steps", {"steps": ["One"]}),
            ("update_step", {"index": 0, "done": True}),
            ("notify_user", {"message": "Half way."}),
            ("ask_user", {"question": "Which?", "blocking": False}),
            ("complete_task", {"summary": "Finished."}),
        ]
        operation, fields = wanted[steps]
        return calls((operation, {**by_name(), **fields}))

    async with stage(durable_url, tmp_path, rule, workers=0) as at:
        task_id = await at.create()
        uids.append((await at.team.task(task_id)).uid)
        await at.hire()
        task = await at.team.ended(task_id)
        assert (task.state, task.summary) == (State.DONE, "Finished.")
        assert [(step.title, step.done) for step in task.steps] == [("One", True)]
        assert (task.counts.notifications, task.counts.interactions) == (1, 1)


@pytest.mark.parametrize("wrong", ["", "no id", "999", [1], {"id": "1"}], ids=str)
async def test_a_name_that_means_no_task_is_refused_and_never_the_own_task(
    durable_url: str, tmp_path: Path, wrong: Any
) -> None:
    names = ("update_steps", "update_step", "complete_task", "ask_user", "notify_user")
    fields: list[dict[str, Any]] = [
        {"steps": ["New"]},
        {"index": 0},
        {"summary": "Finished."},
        {"question": "Which?"},
        {"message": "Hello."},
    ]
    wanted = calls(
        *((name, {"task_id": wrong, **given}) for name, given in zip(names, fields, strict=True))
    )
    async with stage(
        durable_url, tmp_path, lambda request: says("Done.") if told(request) else wanted
    ) as at:
        task = await at.run()
        assert (task.summary, task.steps, task.counts.interactions, task.counts.notifications) == (
            "Done.",
            (),
            0,
            0,
        )
        assert [result.is_error for result in told(at.script.asked[-1])] == [True] * 5


async def test_another_task_of_the_same_agent_has_no_authority_over_what_this_one_created(
    durable_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        if told(request):
            return says("Done.")
        if request.messages[0].text == "First.":
            return calls(
                (
                    "create_task",
                    {"title": "Made", "owner": "lead", "status": "draft", "steps": STEPS},
                )
            )
        names = (
            "cancel_task",
            "complete_task",
            "update_steps",
            "update_task",
            "run_task",
            "pause_task",
            "resume_task",
            "fail_task",
        )
        fields: dict[str, dict[str, Any]] = {
            "update_steps": {"steps": []},
            "update_task": {"status": "active"},
            "fail_task": {"message": "No."},
        }
        return calls(*((name, {"task_id": "2", **fields.get(name, {})}) for name in names))

    async with stage(durable_url, tmp_path, rule, agents=[LEAD]) as at:
        first = await at.run(owner="lead", instructions="First.")
        made = await at.team.task("2")
        assert (made.creator_task_id, made.created_by) == (first.id, "agent:lead")
        await at.run(owner="lead", instructions="Second.")
        refused = told(at.script.asked[-1])
        assert len(refused) == 8
        assert all(
            result.is_error and "Task 2 is not yours to change" in result.text for result in refused
        )
        assert await at.team.task("2") == made
        await at.call("rerun_task", task_id=first.id)  # the successor is another task as well


async def test_a_run_completes_a_task_that_its_subtask_handed_over(
    durable_url: str, tmp_path: Path
) -> None:
    """A grandchild was created by another run; it is below, so the run may complete it."""

    def rule(request: Request) -> Response:
        first = request.messages[0].text
        if first == "Middle.":
            draft = {"title": "Low", "owner": "explore", "status": "draft", "wait": "none"}
            return (
                says("Done.")
                if told(request)
                else calls(("create_subtask", {"task_id": "2", **draft}))
            )
        done = len(told(request))
        if done == 0:
            return calls(("task", {"objective": "Middle.", "subagent_type": "lead"}))
        return (
            calls(("complete_task", {"task_id": "3", "summary": "By the top."}))
            if done == 1
            else says("Done.")
        )

    async with stage(durable_url, tmp_path, rule, agents=[LEAD]) as at:
        top = await at.run(owner="lead")
        assert (top.state, top.summary) == (State.DONE, "Done.")
        low = await at.team.task("3")
        assert (low.state, low.summary, low.creator_task_id) == (State.DONE, "By the top.", "2")


async def test_completing_a_subtask_fences_its_live_run_out(
    durable_url: str, tmp_path: Path
) -> None:
    """The subtask's run stands in its model call.

    The parent completes it, and nothing of that run is kept.
    """
    gate = Gate()

    def rule(request: Request) -> Any:
        if request.messages[0].text == "Slow.":
            return gate.then(says("Too late."))
        done = len(told(request))
        if done == 0:
            return calls(
                ("task", {"objective": "Slow.", "subagent_type": "explore", "wait": False})
            )
        return (
            calls(("complete_task", {"task_id": "2", "summary": "Enough."}))
            if done == 1
            else says("Done.")
        )

    async with stage(durable_url, tmp_path, rule, agents=[LEAD]) as at:
        top = await at.run(owner="lead")
        gate.open.set()
        child = await at.team.task("2")
        assert (top.state, child.state, child.summary) == (State.DONE, State.DONE, "Enough.")
        await at.team.idle()
        assert (await at.team.task("2")).summary == "Enough."


async def test_only_agents_that_can_have_other_tasks_are_offered_to_name_one(
    durable_url: str, tmp_path: Path
) -> None:
    async with stage(durable_url, tmp_path, lambda _: says("Done."), agents=[LEAD]) as at:
        await at.run(owner="lead")
        await at.run(owner="explore")
        leading, exploring = [
            {tool.name: tool.schema for tool in request.tools} for request in at.script.asked
        ]
        for name in ("complete_task", "update_steps", "update_step"):
            assert (
                leading[name]["properties"]["task_id"]["description"] == "By default your own task."
            )
            assert "task_id" not in leading[name].get("required", [])
        assert "task_id" not in exploring["complete_task"]["properties"]
        for offered in (leading, exploring):
            assert all(
                "task_id" not in offered[name]["properties"] for name in ("ask_user", "notify_user")
            )
