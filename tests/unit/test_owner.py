"""The owner of a task, and the successor of a task that is reassigned or rerun."""

import pytest

from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Dependency, State, Step
from remit.errors import Conflict, InvalidParam
from tests.unit.given import ANN, BUILD, World, child_of, only, states


def test_the_owner_may_change_until_the_first_start() -> None:
    world = World()
    task_id = world.add()
    task = world.do(cmd.UpdateTask(task_id=task_id, owner="plan"))
    assert (task.id, task.owner, task.state) == (task_id, "plan", State.PENDING)


def test_an_unknown_new_owner_is_refused_with_the_known_ones() -> None:
    world = World()
    with pytest.raises(InvalidParam, match=r"owner.*build, explore, general, plan"):
        world.do(cmd.UpdateTask(task_id=world.add(), owner="nobody"))


def test_a_new_owner_and_dependencies_at_once_are_both_checked() -> None:
    world = World()
    task_id = world.add()
    with pytest.raises(InvalidParam, match="depends_on"):
        world.do(
            cmd.UpdateTask(task_id=task_id, owner="plan", depends_on=(Dependency(task_id="99"),))
        )
    with pytest.raises(InvalidParam, match="depends_on"):
        world.do(
            cmd.UpdateTask(task_id=task_id, owner="plan", depends_on=(Dependency(task_id=task_id),))
        )


def test_the_same_owner_again_changes_nothing() -> None:
    world = World()
    task_id = world.add()
    world.start(task_id)
    assert world.plan(cmd.UpdateTask(task_id=task_id, owner="build")).events == {}


def test_a_handoff_cancels_the_task_and_returns_its_successor() -> None:
    world = World()
    old = world.add(
        labels=("x",), metadata={"a": 1}, steps=(cmd.NewStep(title="Look", done=True),), priority=1
    )
    world.start(old)
    new = world.do(cmd.UpdateTask(task_id=old, owner="plan"))
    before = world.tasks[old]
    assert (before.state, before.reason, before.superseded_by, before.run) == (
        State.CANCELED,
        "superseded",
        new.id,
        None,
    )
    assert (new.owner, new.rerun_of, new.state, new.started_at) == (
        "plan",
        old,
        State.PENDING,
        None,
    )
    assert (new.labels, new.metadata, new.steps, new.priority, new.title) == (
        ("x",),
        {"a": 1},
        (Step(title="Look", done=True),),
        1,
        before.title,
    )


@pytest.mark.parametrize("actor", [ANN, "agent:lead"])
def test_the_successor_of_a_paused_task_is_paused_too(actor: str) -> None:
    world = World()
    task_id = world.add()
    world.start(task_id)
    world.do(cmd.PauseTask(task_id=task_id), actor)
    successor = world.do(cmd.UpdateTask(task_id=task_id, owner="plan"))
    assert (successor.state, successor.paused_from) == (State.PAUSED, State.PENDING)
    assert successor.paused_by_agent == (actor != ANN)
    assert world.do(cmd.ResumeTask(task_id=successor.id)).state is State.PENDING


def test_a_handoff_is_one_plan() -> None:
    world = World()
    parent = world.add(steps=(cmd.NewStep(title="Build"),))
    old = world.add(under=parent, step_index=0)
    below = world.add(under=old)
    after = world.add(depends_on=(Dependency(task_id=old, on="settled"),))
    world.start(old)
    plan = world.plan(cmd.UpdateTask(task_id=old, owner="plan"))
    assert set(plan.events) == {parent, old, below, after, plan.task_id}
    assert plan.events[below] == (ev.ParentReplaced(parent_id=plan.task_id),)
    assert plan.events[after] == (
        ev.DependenciesChanged(depends_on=(Dependency(task_id=plan.task_id, on="settled"),)),
    )
    assert plan.events[parent] == (
        ev.SubtaskLinked(child_id=plan.task_id, step_index=0, wait="wake", replaces=old),
    )
    assert [type(event) for event in plan.events[old]] == [ev.TaskSuperseded, ev.TaskCanceled]


def test_the_successor_takes_over_parent_and_step_link() -> None:
    world = World()
    parent = world.add(steps=(cmd.NewStep(title="Look"), cmd.NewStep(title="Build")))
    old = world.add(under=parent, step_index=1, wait="block")
    world.start(old)
    new = world.do(cmd.UpdateTask(task_id=old, owner="plan"))
    assert (new.parent_id, new.step_index, new.root_id, new.depth) == (parent, 1, parent, 1)
    assert world.tasks[parent].steps[1].task_id == new.id
    assert [child.id for child in world.tasks[parent].children] == [new.id]
    assert child_of(world, parent, new.id).wait == "block"


def test_the_successor_takes_over_live_subtasks_and_a_handoff_does_not_cascade() -> None:
    world = World()
    old = world.add()
    live, ended = world.add(under=old), world.add(under=old)
    world.do(cmd.CancelTask(task_id=ended))
    world.start(old)
    new = world.do(cmd.UpdateTask(task_id=old, owner="plan"))
    assert [child.id for child in new.children] == [live]
    assert (world.tasks[live].parent_id, world.tasks[live].state) == (new.id, State.PENDING)
    assert world.tasks[ended].parent_id == old
    world.do(cmd.CompleteTask(task_id=live))
    assert child_of(world, new.id, live).settled == "done"


def test_a_parent_that_waits_for_the_old_task_waits_for_its_successor() -> None:
    world = World()
    parent = world.add()
    old = world.add(under=parent)
    world.start(parent)
    world.by_run(cmd.AwaitSubtask(task_id=parent, child_id=old, call_id="call-1"))
    world.by_run(cmd.YieldRun(task_id=parent))
    world.start(old)
    new = world.do(cmd.UpdateTask(task_id=old, owner="plan"))
    waiting = world.tasks[parent]
    assert waiting.state is State.WAITING
    assert waiting.wait is not None
    assert [(item.ref, item.call_id) for item in waiting.wait.on] == [(new.id, "call-1")]
    world.do(cmd.CompleteTask(task_id=new.id))
    assert world.tasks[parent].state is State.PENDING


def test_the_new_instructions_of_a_handoff_reach_the_successor() -> None:
    world = World()
    old = world.add()
    world.start(old)
    new = world.do(cmd.UpdateTask(task_id=old, owner="plan", instructions="Otherwise"))
    assert new.instructions == "Otherwise"


def test_a_handoff_with_a_status_is_refused() -> None:
    world = World()
    old = world.add()
    world.start(old)
    with pytest.raises(InvalidParam, match="status"):
        world.do(cmd.UpdateTask(task_id=old, owner="plan", status="done"))


def test_a_handoff_with_other_dependencies_does_not_forget_them() -> None:
    world = World()
    other, old = world.add(), world.add()
    world.start(old)
    with pytest.raises(Conflict, match="its dependencies can no longer change"):
        world.do(cmd.UpdateTask(task_id=old, owner="plan", depends_on=(Dependency(task_id=other),)))


def test_a_handoff_by_a_stale_run_is_refused() -> None:
    world = World()
    old = world.add()
    world.start(old)
    with pytest.raises(Conflict, match="has ended"):
        world.do(cmd.UpdateTask(task_id=old, owner="plan"), BUILD, f"{old}-r000009")


def test_a_successor_below_an_ended_parent_is_the_root_of_what_it_takes_over() -> None:
    world = World()
    parent = world.add()
    old = world.add(under=parent)
    child = world.add(under=old)
    grandchild = world.add(under=child)
    world.start(old)
    world.do(cmd.CompleteTask(task_id=parent))
    new = world.do(cmd.UpdateTask(task_id=old, owner="plan"))
    assert (new.parent_id, new.root_id, new.depth) == (None, new.id, 0)
    assert [
        (world.tasks[below].root_id, world.tasks[below].depth) for below in (child, grandchild)
    ] == [(new.id, 1), (new.id, 2)]


# Doing it again.


def test_only_an_ended_task_is_rerun() -> None:
    world = World()
    with pytest.raises(Conflict, match="not ended"):
        world.do(cmd.RerunTask(task_id=world.add()))


@pytest.mark.parametrize(
    "end",
    [
        cmd.CompleteTask(task_id="1"),
        cmd.FailTask(task_id="1", message="No"),
        cmd.CancelTask(task_id="1"),
    ],
)
def test_a_rerun_is_a_linked_successor_and_history_stays_as_it_was(end: cmd.Operation) -> None:
    world = World()
    world.add(acceptance=(cmd.NewCriterion(text="Green"),), idempotency_key="k")
    old = world.do(end)
    new = world.do(cmd.RerunTask(task_id=old.id))
    assert (new.rerun_of, new.owner, new.state, new.idempotency_key) == (
        old.id,
        old.owner,
        State.PENDING,
        None,
    )
    assert [item.status for item in new.acceptance] == ["unchecked"]
    assert world.tasks[old.id] == old


def test_a_rerun_takes_over_the_step_the_live_subtasks_and_the_dependents() -> None:
    world = World()
    parent = world.add(steps=(cmd.NewStep(title="Build"),))
    old = world.add(under=parent, step_index=0)
    below = world.add(under=old)
    after = world.add(depends_on=(Dependency(task_id=old),))
    world.do(cmd.FailTask(task_id=old, message="No way"))
    new = world.do(cmd.RerunTask(task_id=old))
    assert world.tasks[parent].steps[0].task_id == new.id
    assert [(child.id, child.settled) for child in world.tasks[parent].children] == [(new.id, None)]
    assert world.tasks[below].parent_id == new.id
    assert world.tasks[after].depends_on == (Dependency(task_id=new.id),)


def test_a_second_rerun_takes_nothing_away_from_the_first() -> None:
    world = World()
    parent = world.add(steps=(cmd.NewStep(title="Build"),))
    old = world.add(under=parent, step_index=0)
    below = world.add(under=old)
    world.do(cmd.FailTask(task_id=old, message="No way"))
    first = world.do(cmd.RerunTask(task_id=old))
    world.do(cmd.RerunTask(task_id=old))
    assert world.tasks[parent].steps[0].task_id == first.id
    assert world.tasks[below].parent_id == first.id


def test_a_parent_that_depends_on_its_subtask_depends_on_the_rerun() -> None:
    world = World()
    parent = world.add(status="draft")
    old = world.add(under=parent)
    world.do(cmd.UpdateTask(task_id=parent, depends_on=(Dependency(task_id=old),)))
    world.do(cmd.FailTask(task_id=old, message="No way"))
    new = world.do(cmd.RerunTask(task_id=old))
    assert world.tasks[parent].depends_on == (Dependency(task_id=new.id),)
    assert [child.id for child in world.tasks[parent].children] == [new.id]


def test_a_rerun_does_not_wake_or_cancel_anything() -> None:
    world = World()
    old = world.add()
    world.do(cmd.CancelTask(task_id=old))
    plan = world.plan(cmd.RerunTask(task_id=old))
    made = only(ev.TaskCreated, plan.events[plan.task_id])
    assert (set(plan.events), made.rerun_of) == ({plan.task_id}, old)
    assert states(world) == {old: State.CANCELED}
