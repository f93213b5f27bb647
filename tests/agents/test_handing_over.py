"""A run hands work over inside its own tree only, so it never gets limits that no person
granted.
"""

from pathlib import Path
from typing import Any

import pytest

from remit.app.agents.registry import Agent
from remit.domain.llm.messages import Request, Response
from remit.domain.task.task import State
from remit.store_queries.tree_queries import BUDGET
from tests.agents.shown import told
from tests.agents.stage import Stage, calls, results, says, stage

PING = Agent(id="ping", description="Works.", tools=("Read", "Task"), capabilities=("tasks",))
PONG = Agent(id="pong", description="Works too.", tools=("Read", "Task"), capabilities=("tasks",))
PAIR = [PING, PONG]
MOST_REQUESTS = 12
"""Two agents that hand one task to each other would ask for more."""


async def test_two_agents_cannot_hand_one_task_to_each_other(any_url: str, tmp_path: Path) -> None:
    def rule(request: Request) -> Response:
        if results(request) or len(at.script.asked) > MOST_REQUESTS:
            return says("Done.")
        other = "pong" if request.agent == "ping" else "ping"
        own = request.messages[-1].text.partition("<Task id=")[2].partition(">")[0]
        return calls(("update_task", {"task_id": own, "owner": other}))

    async with stage(any_url, tmp_path, rule, agents=PAIR) as at:
        task = await at.run(owner="ping", limits={"max_turns": 3})
        await at.team.idle()
        assert (task.state, task.owner, task.superseded_by) == (State.DONE, "ping", None)
        (refused,) = results(at.script.asked[1])
        assert "cannot change the owner of its own task (1)" in refused
        assert "create_subtask" in refused
        assert "ask_user" in refused
        assert len(await all_tasks(at)) == 1


@pytest.mark.parametrize(
    "change", [{"title": "Something easy"}, {"priority": 0}, {"owner": "pong"}], ids=str
)
async def test_an_agent_cannot_change_what_the_creator_of_its_task_set(
    any_url: str, tmp_path: Path, change: dict[str, Any]
) -> None:
    wanted = calls(("update_task", {"task_id": "1", **change}))
    async with stage(any_url, tmp_path, [wanted, says("Done.")], agents=PAIR) as at:
        task = await at.run(owner="ping", title="Sum it up", priority=3, instructions=None)
        (field,) = change
        assert f"cannot change the {field} of its own task (1)" in results(at.script.asked[1])[0]
        assert (task.title, task.owner, task.priority) == ("Sum it up", "ping", 3)
        assert "# Task\nSum it up\n" in at.script.asked[1].system


async def test_a_value_repeated_unchanged_is_not_refused(any_url: str, tmp_path: Path) -> None:
    fields = {"title": "Sum it up", "owner": "Ping", "priority": 3, "metadata": {"seen": 1}}
    wanted = calls(("update_task", {"task_id": "1", **fields}))
    async with stage(any_url, tmp_path, [wanted, says("Done.")], agents=PAIR) as at:
        task = await at.run(owner="ping", title="Sum it up", priority=3)
        assert (task.state, task.metadata) == (State.DONE, {"seen": 1})


def once(first: Response, *after: Response) -> Any:
    """The agent ping answers this in turn; pong only says that it is done."""
    left = [first, *after]
    return lambda request: left.pop(0) if request.agent == "ping" and left else says("Done.")


async def test_a_subtask_that_is_handed_over_stays_in_the_budget_of_its_tree(
    any_url: str, tmp_path: Path
) -> None:
    def rule(request: Request) -> Response:
        steps = len(told(request))
        if request.agent == "explore":
            return (
                says("Done.")
                if request.messages[-1].text.startswith("<Task id=3>")
                else calls(("ask_user", {"question": "Where?"}))
            )
        if request.agent == "plan":
            return says("Planned.")
        wanted: list[tuple[str, dict[str, Any]]] = [
            (
                "create_subtask",
                {"task_id": "1", "title": "Look", "owner": "explore", "wait": "none"},
            ),
            ("task_output", {"task_id": "2", "wait_seconds": 1}),
            ("update_task", {"task_id": "2", "owner": "plan"}),
        ]
        return calls(wanted[steps]) if steps < len(wanted) else says("Done.")

    async with stage(any_url, tmp_path, rule, agents=PAIR) as at:
        await at.run(owner="ping", limits={"max_tokens": 400_000})
        await at.team.idle()
        old, new = [await at.team.task(task_id) for task_id in ("2", "3")]
        assert (old.superseded_by, new.owner, new.parent_id, new.root_id) == ("3", "plan", "1", "1")
        ((tokens, _),) = await at.team.core.store.select(BUDGET, {"id": 1})
        assert tokens == 15 * len(at.script.asked)


RERUN = ("rerun_task", {"task_id": "3"})
HAND_OVER = ("update_task", {"task_id": "3", "owner": "ping"})


@pytest.mark.parametrize("attempt", [RERUN, HAND_OVER], ids=lambda attempt: attempt[0])
async def test_no_successor_leaves_the_budget_of_its_tree(
    any_url: str, tmp_path: Path, attempt: tuple[str, dict[str, Any]]
) -> None:
    """The parent of task 3 has ended, so a successor of task 3 would be the root of a new tree."""
    async with stage(
        any_url, tmp_path, once(calls(attempt), says("Done.")), agents=PAIR, workers=0
    ) as at:
        await at.create(owner="ping", limits={"max_tokens": 400_000})
        await at.call("create_subtask", task_id="1", title="Middle", owner="pong", wait="none")
        await at.call(
            "create_subtask", task_id="2", title="Low", owner="pong", wait="none", session_id="s1"
        )
        await at.call("pre_request", session_id="s1")
        if attempt is RERUN:
            await at.call("cancel_task", task_id="3")
        await at.call("complete_task", task_id="2", summary="Enough.")
        await at.hire()
        await at.team.ended("1")
        assert "not count toward the budget" in results(at.script.asked[1])[0]
        assert len(await all_tasks(at)) == 3


async def test_a_sibling_is_not_rerun_outside_a_budget_that_was_set_later(
    any_url: str, tmp_path: Path
) -> None:
    """An agent that has a budget creates no task beside its own, so it does not repeat one
    either.
    """

    async def limited() -> Response:
        await at.team.ended("2")
        await at.call("update_task", task_id="1", limits={"max_tokens": 400_000})
        return calls(("rerun_task", {"task_id": "2"}))

    made = calls(("create_task", {"title": "ExtraWrites", "owner": "pong"}))
    answers: list[Any] = [made, None, says("Done.")]

    def rule(request: Request) -> Any:
        if request.agent != "ping":
            return says("Done.")
        return answers.pop(0) or limited()

    async with stage(any_url, tmp_path, rule, agents=PAIR) as at:
        await at.run(owner="ping")
        assert "not count toward the budget" in told(at.script.asked[-1])[-1].text
        assert len(await all_tasks(at)) == 2


async def test_an_agent_hands_work_over_only_to_agents_that_it_can_give_work_to(
    any_url: str, tmp_path: Path
) -> None:
    lead = Agent(
        id="ping",
        description="Leads.",
        tools=("Read", "Task"),
        capabilities=("tasks",),
        spawnable=("pong",),
    )
    made = (
        "create_subtask",
        {"task_id": "1", "title": "Look", "owner": "pong", "status": "draft", "wait": "none"},
    )
    moved = ("update_task", {"task_id": "2", "owner": "explore"})
    beside = ("create_task", {"title": "Look", "owner": "explore"})
    answers = once(calls(made), calls(moved, beside), says("Done."))
    async with stage(any_url, tmp_path, answers, agents=[lead, PONG]) as at:
        await at.run(owner="ping")
        refused = [part.text for part in told(at.script.asked[2])[1:]]
        assert all("which this agent cannot delegate to" in text for text in refused)
        assert (await at.team.task("2")).owner == "pong"
        assert len(await all_tasks(at)) == 2


async def test_a_run_resumes_only_what_an_agent_paused(any_url: str, tmp_path: Path) -> None:
    own, persons = {"task_id": "3"}, {"task_id": "2"}
    made = (
        "create_subtask",
        {
            "task_id": "1",
            "title": "Mine",
            "owner": "pong",
            "status": "draft",
            "wait": "none",
            "session_id": "s1",
        },
    )
    answers = once(
        calls(made),
        calls(
            ("update_task", {**own, "status": "active"}),
            ("pause_task", own),
            ("resume_task", own),
            ("resume_task", persons),
        ),
        says("Done."),
    )
    async with stage(any_url, tmp_path, answers, agents=PAIR, workers=0) as at:
        await at.create(owner="ping")
        await at.call("create_subtask", task_id="1", title="HeldJob", owner="pong", wait="none")
        await at.call("pause_task", task_id="2")
        await at.hire()
        await at.team.ended("1")
        mine = [request for request in at.script.asked if request.agent == "ping"][-1]
        outcomes = [part.is_error for part in told(mine)]
        assert outcomes == [False, False, False, False, True]
        assert "A person paused task 2" in told(mine)[-1].text
        assert (await at.team.task("2")).state is State.PAUSED


async def test_a_run_does_not_resume_itself_after_a_person_paused_it(
    any_url: str, tmp_path: Path
) -> None:
    async def held() -> Response:
        await at.call("pause_task", task_id="1")
        return calls(("resume_task", {"task_id": "1"}))

    answers: list[Any] = [None, says("Done.")]
    async with stage(any_url, tmp_path, lambda _: answers.pop(0) or held(), agents=PAIR) as at:
        await at.create(owner="ping")
        paused = await at.team.until(
            "1", lambda task: task.state is State.PAUSED and task.run is None
        )
        assert (paused.paused_by_agent, len(at.script.asked)) == (False, 1)
        await at.call("resume_task", task_id="1")
        assert (await at.team.ended("1")).state is State.DONE


async def test_a_run_does_not_start_a_draft_of_a_person(any_url: str, tmp_path: Path) -> None:
    wanted = calls(("update_task", {"task_id": "2", "status": "active"}))
    async with stage(any_url, tmp_path, once(wanted, says("Done.")), agents=PAIR, workers=0) as at:
        await at.create(owner="ping")
        await at.call(
            "create_subtask",
            task_id="1",
            title="Not yet",
            owner="pong",
            status="draft",
            wait="none",
        )
        await at.hire()
        await at.team.ended("1")
        assert "task 2: it is a draft that a person created" in results(at.script.asked[1])[0]
        assert (await at.team.task("2")).state is State.DRAFT


async def all_tasks(at: Stage) -> list[dict[str, Any]]:
    """Every task of the store, ended ones included."""
    live = (await at.call("list_tasks", limit=100))["tasks"]
    ended = (await at.call("list_history", limit=100))["tasks"]
    return [*live, *ended]
