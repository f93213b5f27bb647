"""Subtasks: who may make them, how deep and how many, what they may use, and what their end
does.
"""

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import narrow_tools
from remit.domain.task.task import Limits, State, Tools
from remit.errors import Conflict, Forbidden, InvalidParam, LimitExceeded, NotFound, StaleRun
from tests.unit.given import (
    ANN,
    BUILD,
    PLAN,
    World,
    at_depth,
    child_of,
    finish,
    finish_twice,
    permits,
    states,
)


def subtask(task_id: str = "1", **fields: object) -> cmd.CreateSubtask:
    # Fields by name.
    return cmd.CreateSubtask(
        **{"task_id": task_id, "title": "A part", "owner": "explore", **fields}  # type: ignore[arg-type]
    )


def test_parent_and_child_know_each_other() -> None:
    world = World()
    parent = world.add(steps=(cmd.NewStep(title="Look"),))
    child = world.do(subtask(step_index=0))
    assert (child.parent_id, child.root_id, child.depth, child.step_index, child.owner) == (
        parent,
        parent,
        1,
        0,
        "explore",
    )
    assert [(known.id, known.wait, known.settled) for known in world.tasks[parent].children] == [
        (child.id, "wake", None)
    ]
    assert world.tasks[parent].steps[0].task_id == child.id


def test_only_the_owner_among_agents_may_give_a_task_subtasks() -> None:
    world = World()
    world.add()
    with pytest.raises(Forbidden, match=r"agent:plan does not own task 1.*Its owner is build"):
        world.do(subtask(), PLAN)
    assert world.do(subtask(), BUILD).created_by == BUILD
    assert world.do(subtask(), ANN).created_by == ANN


def test_an_unknown_parent_is_not_found() -> None:
    with pytest.raises(NotFound, match="no task 9"):
        World().do(subtask("9"))


def test_an_ended_parent_gets_no_subtasks() -> None:
    world = World()
    world.do(cmd.CancelTask(task_id=world.add()))
    with pytest.raises(Conflict, match="an ended task cannot change"):
        world.do(subtask())


def test_a_stale_run_makes_no_subtasks() -> None:
    world = World()
    world.add()
    world.start("1")
    with pytest.raises(StaleRun):
        world.do(subtask(), BUILD, "1-r000009")
    assert set(world.tasks) == {"1"}


def test_a_step_has_one_subtask() -> None:
    world = World()
    world.add(steps=(cmd.NewStep(title="Look"),))
    world.do(subtask(step_index=0))
    with pytest.raises(Conflict, match="Step 0 of task 1 is already linked to task 2"):
        world.do(subtask(step_index=0))


@pytest.mark.parametrize(("count", "expected"), [(0, "none: it has no steps"), (2, "0 to 1")])
def test_a_step_must_exist(count: int, expected: str) -> None:
    world = World()
    world.add(steps=(cmd.NewStep(title="Look"),) * count)
    with pytest.raises(
        InvalidParam, match=f"step_index: is 2, but task 1 has {count} steps; expected {expected}"
    ):
        world.do(subtask(step_index=2))


def test_a_tree_is_at_most_three_levels_deep() -> None:
    world = World()
    deepest = at_depth(world, 3)
    with pytest.raises(LimitExceeded, match="4 levels deep; the limit is 3"):
        world.add(under=deepest)


def test_a_smaller_depth_holds_for_everything_below() -> None:
    world = World()
    root = world.add(limits=Limits(max_depth=1))
    child = world.add(under=root, limits=Limits(max_depth=9))
    with pytest.raises(LimitExceeded, match="the limit is 1"):
        world.add(under=child)


@pytest.mark.parametrize("started", [False, True])
def test_an_agent_raises_no_depth_afterwards_but_a_person_may(started: bool) -> None:
    world = World()
    root = world.add(limits=Limits(max_depth=2))
    child = world.add(under=root)
    if started:
        world.start(child)
    world.do(cmd.UpdateTask(task_id=child, limits=Limits(max_depth=32, max_turns=7)), BUILD)
    assert world.tasks[child].limits == Limits(max_depth=2, max_turns=7)
    world.do(cmd.UpdateTask(task_id=child, limits=Limits(max_depth=1)), BUILD)
    assert world.tasks[child].limits == Limits(max_depth=1)
    world.do(cmd.UpdateTask(task_id=child, limits=Limits(max_depth=5)), ANN)
    assert world.tasks[child].limits == Limits(max_depth=5)
    handed = world.do(
        cmd.UpdateTask(task_id=child, owner="plan", limits=Limits(max_depth=32)), BUILD
    )
    assert handed.limits == Limits(max_depth=2)


def test_an_agent_that_says_nothing_of_depth_leaves_it_at_what_it_is_by_default() -> None:
    world = World()
    child = world.add(under=world.add())
    world.do(cmd.UpdateTask(task_id=child, limits=Limits(max_turns=7)), BUILD)
    assert world.tasks[child].limits == Limits(max_turns=7)


def test_a_task_has_at_most_64_subtasks() -> None:
    world = World()
    root = world.add()
    for _ in range(64):
        world.add(under=root)
    with pytest.raises(LimitExceeded, match=r"has 64 subtasks.*max_children"):
        world.add(under=root)
    world.do(cmd.UpdateTask(task_id=root, limits=Limits(max_children=65)))
    assert world.add(under=root)


@pytest.mark.parametrize("wait", ["wake", "block", "none"])
def test_making_a_subtask_never_moves_the_parent(wait: str) -> None:
    world = World()
    world.add()
    for expected in (State.PENDING, State.RUNNING):
        world.do(subtask(wait=wait))
        assert world.tasks["1"].state is expected
        if expected is State.PENDING:
            world.start("1")


# Tools.

NAMES = st.sampled_from(["Read", "Grep", "Edit", "Bash", "Task"])
LISTS = st.none() | st.lists(NAMES, max_size=5).map(tuple)
GRANTS = st.builds(Tools, allow=LISTS, deny=st.lists(NAMES, max_size=3).map(tuple), offer=LISTS)


@for_any(GRANTS, GRANTS, NAMES)
def test_a_child_may_never_use_more_than_its_parent(parent: Tools, asked: Tools, tool: str) -> None:
    child = narrow_tools(asked, parent)
    assert permits(child, tool) == (permits(asked, tool) and permits(parent, tool))
    assert child.offer == asked.offer, "what its model is shown is its own, not its parent's"


@for_any(st.lists(GRANTS, min_size=2, max_size=4))
def test_grants_only_shrink_on_the_way_down(grants: list[Tools]) -> None:
    world = World()
    task_id = world.add(tools=grants[0])
    for grant in grants[1:]:
        below = world.add(under=task_id, tools=grant)
        used = [
            tool
            for tool in ("Read", "Grep", "Edit", "Bash", "Task", "Other")
            if permits(world.tasks[below].tools, tool)
        ]
        assert all(permits(world.tasks[task_id].tools, tool) for tool in used)
        task_id = below


def test_a_successor_has_the_grant_of_its_predecessor() -> None:
    world = World()
    world.add(tools=Tools(allow=("Read",)))
    child = world.add(under="1", tools=Tools(allow=("Read", "Bash")))
    world.do(cmd.CancelTask(task_id=child))
    assert world.do(cmd.RerunTask(task_id=child)).tools == Tools(allow=("Read",))


# Effects of the end of a subtask.


@pytest.mark.parametrize(
    ("end", "settled"),
    [
        (cmd.CompleteTask(task_id="2", summary="Fine"), ("done", "Fine", None)),
        (cmd.FailTask(task_id="2", message="No way"), ("failed", None, "No way")),
        (cmd.CancelTask(task_id="2", message="Enough"), ("canceled", None, "Enough")),
    ],
)
def test_a_parent_reads_how_its_subtask_ended(
    end: cmd.Operation, settled: tuple[str, str | None, str | None]
) -> None:
    world = World()
    world.add(under=world.add())
    world.do(end)
    told = world.entries[-1].event
    assert isinstance(told, ev.SubtaskSettled)
    assert (told.child_id, told.state, told.summary, told.failure_reason) == ("2", *settled)
    assert (told.update_id, (told.report or "").partition(" ")[0]) == ("1-u1", "Task")


def test_a_parent_reads_each_end_once_and_several_together() -> None:
    world = World()
    parent = world.add()
    children = [world.add(under=parent) for _ in range(3)]
    for child in children[:2]:
        world.happen(child, ev.TaskCompleted(verification="none"), "user:ann")
    told = world.plan(cmd.SettleSubtasks(task_id=parent)).events[parent]
    assert [event.child_id for event in told if isinstance(event, ev.SubtaskSettled)] == children[
        :2
    ]
    world.do(cmd.SettleSubtasks(task_id=parent))
    assert world.plan(cmd.SettleSubtasks(task_id=parent)).events == {}


def test_the_end_of_a_wake_child_wakes_a_parent_that_waits_for_it() -> None:
    world = World()
    world.add(under=world.add())
    world.start("1")
    assert world.by_run(finish()).state is State.WAITING
    world.do(cmd.CompleteTask(task_id="2"))
    assert world.tasks["1"].state is State.PENDING


def test_one_of_several_wake_children_is_enough_to_wake() -> None:
    world = World()
    world.add()
    first, second = world.add(under="1"), world.add(under="1")
    world.start("1")
    world.by_run(finish())
    world.do(cmd.CompleteTask(task_id=second))
    assert world.tasks["1"].state is State.PENDING
    assert [child_of(world, "1", child).settled for child in (first, second)] == [None, "done"]


def test_a_run_that_blocks_on_several_calls_resumes_when_all_are_there() -> None:
    world = World()
    world.add()
    children = [world.add(under="1") for _ in range(3)]
    world.start("1")
    for child in children:
        world.by_run(cmd.AwaitSubtask(task_id="1", child_id=child, call_id=f"call-{child}"))
    world.by_run(cmd.YieldRun(task_id="1"))
    seen = []
    for child in children:
        seen.append(world.tasks["1"].state)
        world.do(cmd.CompleteTask(task_id=child))
    assert (seen, world.tasks["1"].state) == ([State.WAITING] * 3, State.PENDING)


def test_a_subtask_that_ends_before_its_parent_yields_is_not_missed() -> None:
    world = World()
    world.add(under=world.add())
    world.start("1")
    world.by_run(cmd.AwaitSubtask(task_id="1", child_id="2", call_id="call-1"))
    world.do(cmd.CompleteTask(task_id="2"))
    assert world.by_run(cmd.YieldRun(task_id="1")).state is State.PENDING


def test_a_settled_subtask_is_not_awaited_again() -> None:
    world = World()
    world.add(under=world.add())
    world.do(cmd.CompleteTask(task_id="2"))
    world.start("1")
    assert world.plan(cmd.AwaitSubtask(task_id="1", child_id="2"), BUILD, "1-r000001").events == {}


def test_an_ended_background_subtask_is_not_awaited() -> None:
    world = World()
    world.add(under=world.add(), wait="none")
    world.do(cmd.CompleteTask(task_id="2"))
    world.start("1")
    world.by_run(cmd.AwaitSubtask(task_id="1", child_id="2", call_id="call-1"))
    assert world.by_run(cmd.YieldRun(task_id="1")).state is State.PENDING


def test_a_subtask_made_without_a_wait_can_be_awaited_later() -> None:
    world = World()
    world.add(under=world.add(), wait="none")
    world.start("1")
    world.by_run(cmd.AwaitSubtask(task_id="1", child_id="2", call_id="call-1"))
    world.by_run(cmd.YieldRun(task_id="1"))
    world.do(cmd.CompleteTask(task_id="2"))
    assert world.tasks["1"].state is State.PENDING


def test_only_an_own_subtask_can_be_awaited() -> None:
    world = World()
    world.add()
    world.add()
    world.start("1")
    with pytest.raises(NotFound, match="Task 2 is not a subtask of task 1"):
        world.by_run(cmd.AwaitSubtask(task_id="1", child_id="2"))


def test_a_subtask_is_awaited_by_uid_too() -> None:
    world = World()
    world.add(under=world.add())
    world.start("1")
    world.by_run(cmd.AwaitSubtask(task_id="1", child_id=world.tasks["2"].uid))
    wait = world.tasks["1"].wait
    assert wait is not None
    assert wait.on[0].ref == "2"


def test_a_subtask_that_is_not_awaited_does_not_wake_its_parent() -> None:
    world = World()
    world.add(under=world.add(steps=(cmd.NewStep(title="Look"),)), wait="none")
    world.start("1")
    for said in finish_twice():
        world.by_run(said)
    world.do(cmd.CompleteTask(task_id="2"))
    assert world.tasks["1"].state is State.WAITING


def test_a_settlement_is_recorded_once() -> None:
    world = World()
    world.add(under=world.add())
    world.do(cmd.CompleteTask(task_id="2"))
    assert world.plan(cmd.SettleSubtask(task_id="1", child_id="2", state="done")).events == {}


def test_completing_a_parent_does_not_complete_its_subtasks() -> None:
    world = World()
    world.add(under=world.add())
    world.do(cmd.CompleteTask(task_id="1"))
    assert states(world) == {"1": State.DONE, "2": State.PENDING}
    world.do(cmd.CompleteTask(task_id="2"))
    assert states(world) == {"1": State.DONE, "2": State.DONE}


# Cancel.


def test_cancel_reaches_every_live_descendant_in_one_plan() -> None:
    world = World()
    root = world.add()
    child, done = world.add(under=root), world.add(under=root)
    below_child, below_done = world.add(under=child), world.add(under=done)
    other = world.add()
    world.start(below_child)
    world.do(cmd.CompleteTask(task_id=done))
    plan = world.plan(cmd.CancelTask(task_id=root, message="Enough"))
    assert plan.events == {
        root: (ev.TaskCanceled(reason="user", message="Enough"),),
        **{
            task_id: (ev.TaskCanceled(reason="parent"),)
            for task_id in (child, below_child, below_done)
        },
    }
    world.do(cmd.CancelTask(task_id=root))
    ended = {
        root: State.CANCELED,
        child: State.CANCELED,
        done: State.DONE,
        below_child: State.CANCELED,
        below_done: State.CANCELED,
    }
    assert states(world) == {**ended, other: State.PENDING}


def test_cancel_by_status_cascades_too() -> None:
    world = World()
    world.add(under=world.add())
    world.do(cmd.UpdateTask(task_id="1", status="canceled"))
    assert states(world) == {"1": State.CANCELED, "2": State.CANCELED}


def test_cancel_leaves_alone_what_has_moved_to_a_successor() -> None:
    world = World()
    root = world.add()
    middle = world.add(under=root)
    old = world.add(under=middle)
    below = world.add(under=old)
    world.start(old)
    world.do(cmd.CompleteTask(task_id=middle))
    new = world.do(cmd.UpdateTask(task_id=old, owner="plan"))
    world.do(cmd.CancelTask(task_id=root))
    assert world.tasks[below].parent_id == new.id
    assert world.tasks[below].state.terminal == world.tasks[new.id].state.terminal


def test_a_failed_parent_leaves_its_subtasks_to_themselves() -> None:
    world = World()
    world.add(under=world.add())
    world.do(cmd.FailTask(task_id="1", message="No way"))
    assert states(world) == {"1": State.FAILED, "2": State.PENDING}
