"""Runs as records: how they start, wait and end. Executing them is the job of `app.engine`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from remit.domain.decisions.context import Context, Decision, Events, decided_by
from remit.domain.decisions.run_results import await_result, finish_run, live_run_id
from remit.domain.decisions.wait_state import awaited_own_question, is_waiting
from remit.domain.prompts.session_prompts import in_assignment
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import max_attempts
from remit.domain.task.task import State, Task, Usage, WakeCause
from remit.errors import Conflict, NotFound, StaleRun

RunCommand = (
    cmd.AwaitTask
    | cmd.StartRun
    | cmd.RunTask
    | cmd.DeliverUpdates
    | cmd.AskUser
    | cmd.AwaitSubtask
    | cmd.SetTimer
    | cmd.YieldRun
    | cmd.VouchResult
    | cmd.FinishRun
    | cmd.ReleaseRun
    | cmd.FailRun
    | cmd.TimeOutRun
    | cmd.LoseRun
    | cmd.ExcludeDowntime
    | cmd.FireTimer
    | cmd.Tick
    | cmd.SettleSubtask
    | cmd.SettleBudget
)

LIVE_RUN_COMMANDS = (
    cmd.AwaitSubtask
    | cmd.SetTimer
    | cmd.YieldRun
    | cmd.VouchResult
    | cmd.FinishRun
    | cmd.ReleaseRun
    | cmd.FailRun
    | cmd.TimeOutRun
    | cmd.SettleBudget
)
"""Commands that only the live run can give."""


RUN_ENDS = cmd.YieldRun | cmd.FinishRun | cmd.ReleaseRun | cmd.FailRun | cmd.TimeOutRun
"""Commands by which a run ends itself; each reports the usage of its model calls."""
NO_USAGE = Usage()


def check_fence(task: Task, run_id: str | None) -> None:
    """Refuse a write by a run that is not the live one."""
    if run_id in (None, task.run_id):
        return
    raise StaleRun(
        f"Run {run_id} of task {task.id} has ended; {task.run_id or 'no run'} is live.",
        hint="Stop: later changes by this run are discarded.",
    )


def decide_run(task: Task, command: RunCommand, context: Context) -> Events:
    """Return the events of a command that starts, ends or wakes a run."""
    if context.run_id is None and isinstance(command, LIVE_RUN_COMMANDS):
        raise StaleRun(f"{type(command).__name__} needs the live run of task {task.id}.")
    if isinstance(command, RUN_ENDS) and command.usage != NO_USAGE:
        used = ev.BudgetSettled(run_id=live_run_id(task), usage=command.usage)
        unmetered = replace(command, usage=NO_USAGE)
        return [used, *decide_run(task, unmetered, context)]
    return DECISIONS[type(command)](task, command, context)


def abort(command: cmd.AbortTask, run_id: str | None) -> Events:
    """Fail a task at a limit; if its own run gives the command, record that run's end first."""
    failed = ev.TaskFailed(reason=command.reason, message=command.message, cause=command.cause)
    if run_id is None:
        return [failed]
    used = ev.BudgetSettled(run_id=run_id, usage=command.usage)
    end = ev.RunTimedOut if command.reason == "timeout" else ev.RunFailed
    ended = end(run_id=run_id, error=command.message, tool_summary=command.tool_summary)
    return [used, ended, failed]


def wake(task: Task, cause: WakeCause) -> Events:
    """End a wait that needs no answer; return no events for any other state."""
    if task.wait is None or task.wait.holds or not is_waiting(task):
        return []
    return [ev.TaskWoken(ref=task.wait.on[0].ref, cause=cause)]


def _exclude_downtime(task: Task, command: cmd.ExcludeDowntime, context: Context) -> Events:
    return exclude_downtime(task, command.since, min(command.until, context.now))


def exclude_downtime(task: Task, since: datetime, until: datetime) -> Events:
    """Exclude a period from the clock of a task, except what was excluded before.

    Return no events if the clock is stopped.
    """
    is_stopped = task.run is None and task.state is not State.WAITING
    if is_stopped or task.clock_since is None or until <= task.clock_since:
        return []
    return [ev.DowntimeExcluded(since=max(since, task.clock_since), until=until)]


def _vouch(task: Task, _: cmd.VouchResult, __: Context) -> Events:
    """Vouch once for a result that identical tasks may reuse."""
    if task.cache_key is None or task.vouched:
        return []
    return [ev.ResultVouched(run_id=live_run_id(task))]


def _start(task: Task, command: cmd.StartRun, _: Context) -> Events:
    """Start the next run of a pending task."""
    if task.run is not None:
        raise Conflict(
            f"Worker {task.run.worker} is already running task {task.id}.",
            details={"run_id": task.run.id},
        )
    if task.state is not State.PENDING:
        raise Conflict(
            f"Task {task.id} is {task.state.value}; only a pending task can start.",
            details={"state": task.state.value},
        )
    run_id = f"{task.id}-r{task.counts.runs + 1:06d}"
    return [*_start_task(task), ev.RunStarted(run_id=run_id, worker=command.worker)]


def _start_task(task: Task) -> Events:
    """Return the event of the task's first start; no event if it has started before."""
    if task.started_at is None:
        return [ev.TaskStarted()]
    return []


def _run_now(task: Task, _: cmd.RunTask, __: Context) -> Events:
    """Wake a task that waits without need of an answer; refuse a task that cannot run.

    A person who runs a task answers the question of remit itself how it should continue.
    """
    if task.in_flight:
        raise Conflict(
            f"Task {task.id} is already {_IN_FLIGHT.get(task.state, 'running')}.",
            details={"task_id": task.id, "state": task.state.value},
        )
    if task.state is State.PENDING:
        return []
    if task.state is State.WAITING and (events := wake(task, "run")):
        return events
    if question := awaited_own_question(task):
        return [ev.TaskWoken(ref=question, cause="run")]
    state = "a draft" if task.state is State.DRAFT else task.state.value
    raise Conflict(
        f"Task {task.id} cannot run now: it is {state}{_awaited_items(task)}.",
        hint=_run_now_hint(task),
        details={"state": task.state.value},
    )


def _awaited_items(task: Task) -> str:
    """Return what a task waits for as a phrase: ` for subtask 7, timer 7-t1`."""
    if task.wait is None:
        return ""
    items = [f"{item.kind} {item.ref}" for item in task.wait.on]
    return f" for {', '.join(items)}"


def _run_now_hint(task: Task) -> str:
    if task.state is State.WAITING and task.questions:
        return "Answer its question first."
    return _RUN_NOW_HINTS.get(task.state, "")


_IN_FLIGHT: Mapping[State, str] = {State.VERIFYING: "being verified"}
"""What happens to a task in flight that no run has."""
_RUN_NOW_HINTS: Mapping[State, str] = {
    State.DRAFT: "Set its status to active first.",
    State.PAUSED: "Resume it first.",
    State.WAITING: "It continues when these have ended.",
}
"""What must happen before a task in this state can run."""


def _deliver(task: Task, command: cmd.DeliverUpdates, context: Context) -> Events:
    """Record which queued updates the live run or the session of a task has received."""
    ids = _queued_ids(task, command.update_ids)
    if command.session_id is not None:
        return _deliver_to_session(task, command.session_id, ids, command.turn)
    if context.run_id is None:
        raise StaleRun(
            f"Only the live run or the session of task {task.id} can receive its updates."
        )
    if not ids:
        return []
    return [ev.UpdateDelivered(update_ids=ids, run_id=context.run_id, turn=command.turn)]


def _queued_ids(task: Task, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the ids of the queued updates; if some are wanted, only those of them."""
    return tuple(
        update.update_id for update in task.queued if wanted is None or update.update_id in wanted
    )


def _deliver_to_session(task: Task, session_id: str, ids: tuple[str, ...], turn: int) -> Events:
    """Record a delivery to a session; its first delivery is the assignment and starts the task."""
    if session_id != task.session_id:
        raise Conflict(
            f"Task {task.id} is not assigned to session {session_id}.",
            details={"session_id": task.session_id},
        )
    if task.state not in (State.PENDING, State.RUNNING):
        return []
    if not task.briefed:
        assigned = in_assignment(task)
        ids = tuple(update.update_id for update in assigned if update.update_id in ids)
    elif not ids:
        return []
    delivered = ev.UpdateDelivered(update_ids=ids, session_id=session_id, turn=turn)
    return [*_start_task(task), delivered]


def _ask(task: Task, command: cmd.AskUser, _: Context) -> Events:
    """Ask a person a question for a running task."""
    if task.state is not State.RUNNING:
        raise Conflict(
            f"Task {task.id} is {task.state.value}; only a running task can ask a question.",
            details={"state": task.state.value},
        )
    return [
        ev.UserInteractionRequested(
            interaction_id=f"{task.id}-q{task.counts.interactions + 1}",
            question=command.question,
            options=command.options,
            blocking=command.blocking,
            call_id=command.call_id,
            allow_other=command.allow_other and bool(command.options),
        )
    ]


def _await_subtask(task: Task, command: cmd.AwaitSubtask, _: Context) -> Events:
    """Wait for an unfinished subtask, at most until the given time."""
    child = task.child(command.child_id)
    if child is None:
        raise NotFound(f"Task {command.child_id} is not a subtask of task {task.id}.")
    if child.settled:
        return []
    awaited = ev.SubtaskAwaited(child_id=child.id, call_id=command.call_id)
    if command.until is None:
        return [awaited]
    return [awaited, _timer(task, command.until, command.call_id)]


def _set_timer(task: Task, command: cmd.SetTimer, _: Context) -> Events:
    return [_timer(task, command.due_at, command.call_id)]


def _timer(task: Task, due_at: datetime, call_id: str | None) -> ev.TimerSet:
    return ev.TimerSet(
        timer_id=f"{task.id}-t{task.counts.timers + 1}", due_at=due_at, call_id=call_id
    )


def _yield(task: Task, command: cmd.YieldRun, _: Context) -> Events:
    """End a run whose task waits for something else."""
    return [ev.RunYielded(run_id=live_run_id(task), tool_summary=command.tool_summary)]


def _settle_budget(task: Task, command: cmd.SettleBudget, _: Context) -> Events:
    """Record what the run has used since the last time."""
    settled = ev.BudgetSettled(
        run_id=live_run_id(task), usage=command.usage, tool_summary=command.tool_summary
    )
    return [settled]


def _release(task: Task, command: cmd.ReleaseRun, _: Context) -> Events:
    """End a run so that another one continues, at once or after a delay."""
    released = ev.RunReleased(
        run_id=live_run_id(task),
        tool_summary=command.tool_summary,
        retry_seconds=command.retry_seconds,
    )
    return [released]


def _fail(task: Task, command: cmd.FailRun, _: Context) -> Events:
    """End a run with an error; a permanent error fails the task at once."""
    failed = ev.RunFailed(
        run_id=live_run_id(task),
        error=command.error,
        tool_summary=command.tool_summary,
        retry_seconds=command.retry_seconds,
    )
    ended = ev.TaskFailed(reason="error", message=command.error, cause=command.cause)
    if command.permanent:
        return [failed, ended]
    return _end_attempt(task, failed, ended)


def _time_out(task: Task, command: cmd.TimeOutRun, _: Context) -> Events:
    """End a run that was idle for too long; the last attempt fails the task."""
    timed_out = ev.RunTimedOut(
        run_id=live_run_id(task), error=command.error, tool_summary=command.tool_summary
    )
    failed = ev.TaskFailed(reason="timeout", message=command.error)
    return _end_attempt(task, timed_out, failed)


def _lose(task: Task, command: cmd.LoseRun, context: Context) -> Events:
    """End a run whose worker stopped responding; the last attempt fails the task."""
    run = task.run
    if run is None or run.id != command.run_id:
        return []
    last_seen_at = min(command.last_seen_at or run.started_at, context.now)
    lost = ev.RunLost(run_id=run.id, last_seen_at=last_seen_at)
    message = f"The worker {run.worker} stopped responding."
    return _end_attempt(task, lost, ev.TaskFailed(reason="lost", message=message))


def _end_attempt(task: Task, ended: ev.Event, failed: ev.TaskFailed) -> Events:
    """Return the end of a failed run; the last attempt fails the task."""
    is_last = task.attempts + 1 >= max_attempts(task.limits)
    return [ended, failed] if is_last else [ended]


def _fire_timer(task: Task, command: cmd.FireTimer, _: Context) -> Events:
    """Fire a timer that the task still waits for."""
    if any(item.names("timer", command.timer_id) for item in task.waits_on):
        return [ev.TimerFired(ref=command.timer_id)]
    return []


def _tick(task: Task, _: cmd.Tick, __: Context) -> Events:
    """Wake a task that waits for its tick."""
    return wake(task, "tick") if task.waits_for_tick else []


def _settle(task: Task, command: cmd.SettleSubtask, _: Context) -> Events:
    """Record the end of a subtask; queue its report unless a tool result contains it."""
    child = task.child(command.child_id)
    if child is None or child.settled or child.wait == "none":
        return []
    settled = ev.SubtaskSettled(
        child_id=child.id,
        state=command.state,
        summary=command.summary,
        failure_reason=command.failure_reason,
    )
    if child.wait != "wake" or command.report is None:
        return [settled]
    update_id = task.update_id()
    return [replace(settled, update_id=update_id, report=command.report)]


DECISIONS: Mapping[type[Any], Decision] = dict(
    [
        decided_by(cmd.StartRun, _start),
        decided_by(cmd.FinishRun, finish_run),
        decided_by(cmd.AwaitTask, await_result),
        decided_by(cmd.VouchResult, _vouch),
        decided_by(cmd.RunTask, _run_now),
        decided_by(cmd.DeliverUpdates, _deliver),
        decided_by(cmd.AskUser, _ask),
        decided_by(cmd.AwaitSubtask, _await_subtask),
        decided_by(cmd.SetTimer, _set_timer),
        decided_by(cmd.YieldRun, _yield),
        decided_by(cmd.ReleaseRun, _release),
        decided_by(cmd.FailRun, _fail),
        decided_by(cmd.TimeOutRun, _time_out),
        decided_by(cmd.LoseRun, _lose),
        decided_by(cmd.ExcludeDowntime, _exclude_downtime),
        decided_by(cmd.FireTimer, _fire_timer),
        decided_by(cmd.Tick, _tick),
        decided_by(cmd.SettleSubtask, _settle),
        decided_by(cmd.SettleBudget, _settle_budget),
    ]
)
"""What each command of `RunCommand` decides."""
