"""Tasks with a calendar: each end creates the task of the next slot, and canceling stops the
series.
"""

from datetime import timedelta
from typing import Any

import pytest

from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import Dependency, Resource, Schedule, State
from remit.errors import Conflict
from tests.unit.given import ANN, BOB, NOW, World, finish

HOURLY = Schedule(cron="0 * * * *")
NEXT_HOUR = NOW.replace(minute=0) + timedelta(hours=1)


def recurring(**fields: Any) -> World:
    world = World()
    world.add(schedule=HOURLY, **fields)
    return world


def done(world: World, task_id: str) -> None:
    schedule = world.tasks[task_id].schedule
    if schedule is not None and schedule.not_before is not None:
        world.now = max(world.now, schedule.not_before)
    world.start(task_id)
    world.by_run(cmd.FinishRun(task_id=task_id, final_message="Done."))


def test_the_end_of_a_task_creates_the_task_of_the_next_slot() -> None:
    world = recurring(labels=("news",), priority=1)
    done(world, "1")
    later = world.tasks["2"]
    assert (world.tasks["1"].state, later.state, later.started_at) == (
        State.DONE,
        State.PENDING,
        None,
    )
    assert (later.series_id, later.rerun_of, later.root_id) == ("1", "1", "2")
    assert later.schedule == Schedule(not_before=NEXT_HOUR, cron="0 * * * *")
    assert (later.title, later.owner, later.labels, later.priority) == (
        "Fix the build",
        "build",
        ("news",),
        1,
    )
    assert later.created_by == ANN, "who created a series created all its tasks"
    assert world.entries[-1].actor == "system:scheduler"


def test_every_task_of_a_series_names_the_first_and_its_predecessor() -> None:
    world = recurring()
    for task_id in ("1", "2", "3"):
        done(world, task_id)
    links = [(task.id, task.series_id, task.rerun_of) for task in world.tasks.values()]
    assert links == [("1", None, None), ("2", "1", "1"), ("3", "1", "2"), ("4", "1", "3")]


def test_a_slot_is_never_used_twice_although_clocks_differ() -> None:
    world = recurring()
    done(world, "1")
    world.do(cmd.CompleteTask(task_id="2"))
    slots = [
        task.schedule.not_before
        for task in world.tasks.values()
        if task.schedule and task.schedule.not_before
    ]
    assert slots == [NEXT_HOUR, NEXT_HOUR + timedelta(hours=1)]


def test_slots_that_pass_while_a_task_is_active_are_left_out() -> None:
    world = recurring()
    world.start("1")
    world.now = NOW + timedelta(hours=5)
    world.by_run(finish())
    later = world.tasks["2"].schedule
    assert later is not None
    assert later.not_before == NEXT_HOUR + timedelta(hours=5)


def test_a_failed_task_does_not_end_its_series() -> None:
    world = recurring()
    world.start("1")
    world.by_run(cmd.FailRun(task_id="1", error="No key", permanent=True))
    assert (world.tasks["1"].state, world.tasks["2"].state) == (State.FAILED, State.PENDING)


def test_plan_and_resources_are_those_at_the_start_and_the_terms_those_in_force() -> None:
    page = Resource(type="url", value="https://example.org/a")
    world = recurring(
        steps=(cmd.NewStep(title="Look"),),
        resources=(page,),
        acceptance=(cmd.NewCriterion(text="Short"),),
    )
    world.start("1")
    world.by_run(cmd.UpdateSteps(task_id="1", steps=(cmd.NewStep(title="Another", done=True),)))
    world.by_run(cmd.AddResource(task_id="1", type="url", value="https://example.org/b"))
    world.do(cmd.UpdateTask(task_id="1", instructions="Look twice"))
    world.by_run(cmd.DeliverUpdates(task_id="1"))
    world.by_run(finish())
    later = world.tasks["2"]
    assert [(step.title, step.done) for step in later.steps] == [("Look", False)]
    assert (later.resources, later.instructions) == ((page,), "Look twice")
    assert [item.status for item in later.acceptance] == ["unchecked"]


@pytest.mark.parametrize("named", ["1", "2", "3"])
def test_canceling_any_task_of_a_series_stops_it(named: str) -> None:
    world = recurring()
    done(world, "1")
    done(world, "2")
    stopped = world.do(cmd.CancelTask(task_id=named))
    assert (stopped.id, stopped.state) == ("3", State.CANCELED)
    assert len(world.tasks) == 3
    with pytest.raises(Conflict, match="an ended task cannot change"):
        world.do(cmd.CancelTask(task_id=named))


def test_canceling_an_ended_task_that_does_not_recur_is_refused() -> None:
    world = World()
    world.add()
    done(world, "1")
    with pytest.raises(Conflict, match="an ended task cannot change"):
        world.do(cmd.CancelTask(task_id="1"))


def test_a_rerun_beside_a_live_series_runs_once_and_one_of_a_stopped_series_starts_a_new_one() -> (
    None
):
    world = recurring()
    done(world, "1")
    once = world.do(cmd.RerunTask(task_id="1"))
    assert (once.schedule, once.series_id, once.rerun_of) == (None, None, "1")
    world.do(cmd.CancelTask(task_id="1"))
    again = world.do(cmd.RerunTask(task_id="2"))
    assert again.schedule is not None
    assert (again.schedule.cron, again.series_id) == ("0 * * * *", None)


def test_a_handed_over_task_stays_in_its_series() -> None:
    world = recurring()
    world.start("1")
    taken = world.do(cmd.UpdateTask(task_id="1", owner="general"))
    assert (taken.id, taken.series_id, taken.owner) == ("2", "1", "general")
    assert world.do(cmd.CancelTask(task_id="1"), BOB).id == "2"


def test_a_subtask_does_not_recur() -> None:
    world = World()
    world.add()
    child = world.add(under="1", schedule=HOURLY)
    done(world, child)
    assert set(world.tasks) == {"1", child}


def test_a_series_whose_dependency_failed_ends() -> None:
    world = World()
    first = world.add()
    world.add(schedule=HOURLY, depends_on=(Dependency(task_id=first),))
    world.do(cmd.FailTask(task_id=first, message="No"))
    world.do(cmd.ReleaseDependents(task_id=first), "system:engine")
    assert world.tasks["2"].reason == "dependency"
    assert len(world.tasks) == 2


def test_the_next_task_is_created_in_the_commit_of_the_end() -> None:
    world = recurring()
    world.start("1")
    run = world.tasks["1"].run
    assert run is not None
    plan = world.plan(finish(), "agent:build", run.id)
    assert [type(event) for event in plan.events["1"]][-1] is ev.TaskCompleted
    assert [type(event) for event in plan.events["2"]] == [ev.TaskCreated]


def test_a_draft_that_is_completed_starts_no_series() -> None:
    world = recurring(status="draft")
    world.do(cmd.CompleteTask(task_id="1"))
    assert set(world.tasks) == {"1"}
