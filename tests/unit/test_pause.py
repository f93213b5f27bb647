"""Pausing: a paused task does not run, loses no input, and continues where it was."""

import pytest

from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.task import State, Task
from remit.errors import Conflict
from tests.unit.given import (
    LIVE,
    PENDING,
    RUNNING,
    SESSION_RUNNING,
    VERIFYING,
    WAITING_CALL,
    WAITING_TICK,
    WAITING_TIMER,
    WAITING_USER,
    WAITING_WAKE,
    World,
    by_run,
    events,
    finish,
    given,
    judged,
    plan_of,
    states,
    then,
)

PAUSE, RESUME = cmd.PauseTask(task_id="1"), cmd.ResumeTask(task_id="1")
ANSWER = cmd.Respond(interaction_id="1-q1", answer="a")
SETTLE = cmd.SettleSubtask(task_id="1", child_id="2", state="done")
FIRE = cmd.FireTimer(task_id="1", timer_id="1-t1")


def paused(*happened: ev.Event) -> Task:
    return then(given(*happened), PAUSE)


@pytest.mark.parametrize("state", [name for name in LIVE if name not in ("draft", "paused")])
def test_every_active_task_can_be_paused_and_resumed(state: str) -> None:
    before = given(*LIVE[state])
    there = then(before, PAUSE)
    assert (there.state, there.state.status) == (State.PAUSED, "active")
    back = then(there, RESUME)
    assert (back.state, back.wait, back.run, back.paused_from) == (
        before.state,
        before.wait,
        before.run,
        None,
    )


def test_a_paused_task_keeps_its_plan() -> None:
    task = given(*RUNNING, ev.StepsReplaced(steps=plan_of("Look", "Build")))
    assert then(task, PAUSE).steps == plan_of("Look", "Build")


def test_a_paused_task_is_neither_run_nor_started() -> None:
    world = World()
    world.add()
    world.do(PAUSE)
    with pytest.raises(Conflict, match="paused"):
        world.do(cmd.StartRun(task_id="1", worker="w1"))
    with pytest.raises(Conflict, match="Resume it first"):
        world.do(cmd.RunTask(task_id="1"))


def test_pausing_twice_and_resuming_what_runs_are_refused() -> None:
    with pytest.raises(Conflict, match="already paused"):
        events(paused(*PENDING), PAUSE)
    with pytest.raises(Conflict, match="not paused"):
        events(given(*RUNNING), RESUME)


def test_pause_does_not_cascade() -> None:
    world = World()
    world.add(under=world.add())
    world.do(PAUSE)
    assert states(world) == {"1": State.PAUSED, "2": State.PENDING}


# A live run stops at its next boundary.


@pytest.mark.parametrize(
    "stop",
    [
        cmd.ReleaseRun(task_id="1"),
        cmd.YieldRun(task_id="1"),
        cmd.FailRun(task_id="1", error="Broken"),
    ],
)
def test_a_run_that_stops_while_paused_leaves_the_task_pending_on_resume(
    stop: cmd.ReleaseRun,
) -> None:
    stopped = by_run(paused(*RUNNING), stop)
    assert (stopped.state, stopped.run) == (State.PAUSED, None)
    assert then(stopped, RESUME).state is State.PENDING


def test_a_run_that_goes_to_wait_while_paused_waits_on_resume() -> None:
    asked = by_run(given(*RUNNING), cmd.AskUser(task_id="1", question="Which?"))
    stopped = by_run(then(asked, PAUSE), cmd.YieldRun(task_id="1"))
    assert stopped.state is State.PAUSED
    assert then(stopped, RESUME).state is State.WAITING


def test_a_run_lost_while_paused_is_found_on_resume() -> None:
    stopped = then(paused(*RUNNING), cmd.LoseRun(task_id="1", run_id="1-r000001"))
    assert (stopped.state, stopped.attempts) == (State.PAUSED, 1)
    assert then(stopped, RESUME).state is State.PENDING


def test_a_live_run_continues_after_a_short_pause() -> None:
    task = by_run(then(paused(*RUNNING), RESUME), finish())
    assert task.state is State.DONE


def test_a_session_continues_after_a_pause() -> None:
    assert then(paused(*SESSION_RUNNING), RESUME).state is State.RUNNING


# Events while paused are kept.


@pytest.mark.parametrize(
    ("waiting", "comes"),
    [(WAITING_USER, ANSWER), (WAITING_CALL, SETTLE), (WAITING_TIMER, FIRE), (WAITING_WAKE, SETTLE)],
)
def test_an_awaited_event_may_arrive_while_paused(
    waiting: tuple[ev.Event, ...], comes: cmd.Respond
) -> None:
    there = then(paused(*waiting), comes)
    assert (there.state, there.wait) == (State.PAUSED, None)
    assert then(there, RESUME).state is State.PENDING


@pytest.mark.parametrize(
    "comes", [cmd.Tick(task_id="1"), cmd.SendMessage(task_id="1", message="Hello")]
)
def test_a_tick_or_a_message_while_paused_is_kept(comes: cmd.Tick) -> None:
    there = then(paused(*WAITING_TICK), comes)
    assert there.state is State.PAUSED
    assert then(there, RESUME).state is State.PENDING


@pytest.mark.parametrize(
    "waiting", [WAITING_USER, WAITING_CALL, WAITING_TICK, WAITING_TIMER, WAITING_WAKE]
)
def test_a_task_that_still_misses_something_waits_on_resume(waiting: tuple[ev.Event, ...]) -> None:
    assert then(paused(*waiting), RESUME).state is State.WAITING


def test_one_awaited_event_may_arrive_before_and_one_after_the_pause() -> None:
    both = (
        *WAITING_CALL[:-1],
        ev.UserInteractionRequested(interaction_id="1-q1", question="Which?", call_id="call-9"),
        WAITING_CALL[-1],
    )
    there = then(paused(*both), ANSWER)
    back = then(there, RESUME)
    assert back.state is State.WAITING
    assert then(back, SETTLE).state is State.PENDING


def test_a_message_while_paused_does_not_end_an_open_call() -> None:
    there = then(paused(*WAITING_USER), cmd.SendMessage(task_id="1", message="Hello"), RESUME)
    assert (there.state, len(there.queued)) == (State.WAITING, 1)


# Verifying and paused.


def test_a_paused_claim_is_checked_after_the_pause() -> None:
    assert events(paused(*VERIFYING), cmd.CheckCriteria(task_id="1")) == []
    assert judged(then(paused(*VERIFYING), RESUME), True).state is State.DONE


def test_a_claim_with_nothing_left_to_check_concludes_on_resume() -> None:
    waived = then(
        paused(*VERIFYING), cmd.WaiveCriterion(task_id="1", criterion_id="c1", reason="Not needed")
    )
    assert waived.state is State.PAUSED
    assert then(waived, RESUME).state is State.DONE


# Ending a paused task.


def test_a_person_can_end_a_paused_task() -> None:
    assert then(paused(*WAITING_USER), cmd.CompleteTask(task_id="1")).state is State.DONE
    assert then(paused(*RUNNING), cmd.FailTask(task_id="1", message="No")).state is State.FAILED
    assert then(paused(*PENDING), cmd.CancelTask(task_id="1")).state is State.CANCELED


def test_the_clock_stands_while_paused_without_a_run() -> None:
    task = then(given(*WAITING_CALL), PAUSE, seconds=10)
    task = then(task, RESUME, seconds=100)
    assert then(task, SETTLE, seconds=105).duration == pytest.approx(15)
