"""Dependencies: what may be named, no circles, and when a task is ready."""

from contextlib import suppress
from datetime import timedelta

import pytest

from remit.domain.planning.dependencies import is_met
from remit.domain.records.validate import parse
from remit.domain.task import commands as cmd
from remit.domain.task.task import Dependency, DependencyRule, Schedule, State
from remit.errors import Conflict, InvalidParam
from tests.unit.given import CANCELED, DONE, FAILED, NOW, RUNNING, World, given


def on(*ids: str, rule: DependencyRule = "done") -> tuple[Dependency, ...]:
    return tuple(Dependency(task_id=task_id, on=rule) for task_id in ids)


def test_ids_uids_and_hashes_name_the_same_task_once() -> None:
    world = World()
    uid = world.tasks[world.add()].uid
    command = parse(
        cmd.CreateTask,
        {"title": "Next", "depends_on": ["#1", 1, uid, {"task_id": "1", "on": "settled"}]},
    )
    assert world.do(command).depends_on == on("1", rule="settled")


def test_an_unknown_dependency_is_refused_by_its_place() -> None:
    world = World()
    world.add()
    with pytest.raises(InvalidParam, match=r"depends_on\[1\]: is 7, which does not exist"):
        world.add(depends_on=on("1", "7"))


@pytest.mark.parametrize(
    "end", [cmd.FailTask(task_id="1", message="No"), cmd.CancelTask(task_id="1")]
)
def test_a_task_cannot_depend_on_one_that_can_never_be_done(end: cmd.Operation) -> None:
    world = World()
    world.add()
    world.do(end)
    with pytest.raises(InvalidParam, match=r"depends_on\[0\].*will never be done.*on: settled"):
        world.add(depends_on=on("1"))
    assert world.add(depends_on=on("1", rule="settled"))


def test_a_task_that_is_done_can_be_named() -> None:
    world = World()
    world.do(cmd.CompleteTask(task_id=world.add()))
    assert world.start(world.add(depends_on=on("1"))).state is State.RUNNING


def test_a_task_does_not_wait_for_itself() -> None:
    world = World()
    world.add()
    with pytest.raises(InvalidParam, match="depends_on: makes task 1 wait for itself"):
        world.do(cmd.UpdateTask(task_id="1", depends_on=on("1")))


def test_a_circle_is_refused_however_long() -> None:
    world = World()
    world.add()
    for number in range(1, 5):
        world.add(depends_on=on(str(number)))
    with pytest.raises(InvalidParam, match="depends_on: makes task 1 wait for itself"):
        world.do(cmd.UpdateTask(task_id="1", depends_on=on("5")))
    with pytest.raises(InvalidParam, match="depends_on: makes task 1 wait for itself"):
        world.do(cmd.UpdateTask(task_id="1", depends_on=on("2", rule="settled")))


def test_a_diamond_is_not_a_cycle() -> None:
    world = World()
    for needs in ((), ("1",), ("1",), ("2", "3")):
        world.add(depends_on=on(*needs))
    assert world.do(cmd.UpdateTask(task_id="4", depends_on=on("1", "2", "3"))).depends_on == on(
        "1", "2", "3"
    )


def test_tasks_that_were_read_must_be_unchanged_at_the_commit() -> None:
    world = World()
    for needs in ((), ("1",), ()):
        world.add(depends_on=on(*needs))
    assert world.plan(cmd.UpdateTask(task_id="3", depends_on=on("2"))).guards >= {"1", "2"}
    assert world.plan(cmd.CreateTask(title="Next", depends_on=on("2"))).guards >= {"2"}


def test_a_subtask_does_not_wait_for_what_it_is_a_part_of() -> None:
    world = World()
    parent = world.add(under=world.add())
    with pytest.raises(InvalidParam, match="depends_on: names task 1, an ancestor of this task"):
        world.add(under=parent, depends_on=on("1"))
    child = world.add(under=parent)
    with pytest.raises(InvalidParam, match="depends_on: names task 2, an ancestor of this task"):
        world.do(cmd.UpdateTask(task_id=child, depends_on=on("2")))


def test_dependencies_may_change_until_the_first_start() -> None:
    world = World()
    world.add()
    world.add(depends_on=on("1"))
    assert world.do(cmd.UpdateTask(task_id="2", depends_on=())).depends_on == ()
    world.start("2")
    with pytest.raises(Conflict, match="has started; its dependencies can no longer change"):
        world.do(cmd.UpdateTask(task_id="2", depends_on=on("1")))
    assert world.plan(cmd.UpdateTask(task_id="2", depends_on=())).events == {}


# Readiness.


@pytest.mark.parametrize(
    ("rule", "events", "expected"),
    [
        ("done", RUNNING, False),
        ("done", DONE, True),
        ("done", FAILED, False),
        ("done", CANCELED, False),
        ("settled", RUNNING, False),
        ("settled", DONE, True),
        ("settled", FAILED, True),
        ("settled", CANCELED, True),
    ],
)
def test_a_dependency_is_met_by_the_right_end(
    rule: DependencyRule, events: tuple[object, ...], expected: bool
) -> None:
    # The samples are events.
    assert is_met(Dependency(task_id="1", on=rule), given(*events)) is expected  # type: ignore[arg-type]


def test_a_missing_dependency_is_not_met() -> None:
    assert not is_met(Dependency(task_id="1", on="settled"), None)


@pytest.mark.parametrize(
    "command", [cmd.StartRun(task_id="3", worker="w1"), cmd.RunTask(task_id="3")]
)
def test_a_blocked_task_does_not_start_and_says_what_blocks_it(command: cmd.Command) -> None:
    world = World()
    world.add()
    world.add()
    world.add(depends_on=on("1", "2"))
    world.do(cmd.CompleteTask(task_id="1"))
    with pytest.raises(Conflict, match="waits for task 2") as refused:
        world.do(command)
    assert refused.value.details["blocked_by"] == ["2"]
    world.do(cmd.CompleteTask(task_id="2"))
    world.do(command)


def test_a_blocked_task_is_not_begun_by_its_session_either() -> None:
    world = World()
    world.add()
    world.add(depends_on=on("1"), session_id="s1")
    with suppress(Conflict):
        world.do(cmd.DeliverUpdates(task_id="2", session_id="s1"))
    assert world.tasks["2"].started_at is None


def test_a_task_does_not_start_before_its_time() -> None:
    world = World()
    world.add(schedule=Schedule(not_before=NOW + timedelta(hours=1)))
    with pytest.raises(Conflict, match="cannot start before 2026-01-31T09:00:00"):
        world.start("1")
    world.now += timedelta(hours=1)
    assert world.start("1").state is State.RUNNING


def test_run_task_lets_a_task_start_before_its_time() -> None:
    world = World()
    world.add(schedule=Schedule(not_before=NOW + timedelta(hours=1)))
    world.do(cmd.RunTask(task_id="1"))
    assert world.start("1").state is State.RUNNING


def test_a_task_fails_when_what_it_waits_for_did() -> None:
    world = World()
    world.add()
    world.add(depends_on=on("1"))
    world.do(cmd.FailTask(task_id="1", message="No way"))
    task = world.do(cmd.AbortTask(task_id="2", reason="dependency", message="Task 1 failed."))
    assert (task.state, task.reason, task.failure_reason) == (
        State.FAILED,
        "dependency",
        "Task 1 failed.",
    )
