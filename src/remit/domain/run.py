"""Runs as records: how they start, wait and end. What carries them out is not known here."""

from datetime import datetime
from typing import assert_never

from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.brief import reminder
from remit.domain.output import Files, gaps
from remit.domain.policy import MAX_IDLE_RUNS, max_attempts
from remit.domain.record import replace
from remit.domain.session_text import in_assignment
from remit.domain.value import FailCause, FailReason, State, Task, Usage, WakeCause
from remit.domain.verdict import NO_FILES, claim, tell_gaps
from remit.errors import Conflict, NotFound, StaleRun

Events = list[ev.Event]

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
    | cmd.ReserveBudget
    | cmd.SettleBudget
)

OF_THE_RUN = (
    cmd.AwaitSubtask
    | cmd.SetTimer
    | cmd.YieldRun
    | cmd.VouchResult
    | cmd.FinishRun
    | cmd.ReleaseRun
    | cmd.FailRun
    | cmd.TimeOutRun
    | cmd.ReserveBudget
    | cmd.SettleBudget
)
"""What only the live run itself can say."""


ENDS = cmd.YieldRun | cmd.FinishRun | cmd.ReleaseRun | cmd.FailRun | cmd.TimeOutRun
"""How a run ends by itself; what its model calls used is told with it."""
UNUSED = Usage()
IDLE = f"{MAX_IDLE_RUNS} runs in a row made no progress."
UNCOMPLETED = "The agent ended its work twice without calling complete_task, which alone completes this task."
"""Why a person is asked how a task should go on."""
HOST = "system:engine"
"""Who asks that: remit itself, and not the agent of the task."""


def fenced(task: Task, run_id: str | None) -> None:
    """Refuse a write of a run that is not the live one."""
    if run_id is not None and (task.run is None or task.run.id != run_id):
        live = f"{task.run.id} is" if task.run else "none is"
        raise StaleRun(f"Run {run_id} of task {task.id} is over; {live} live.", hint="Stop: whatever it did since is not kept.")


def decide_run(task: Task, command: RunCommand, actor: str, now: datetime, run_id: str | None, files: Files = NO_FILES) -> Events:
    """The events of a command about a run or a wake."""
    if run_id is None and isinstance(command, OF_THE_RUN):
        raise StaleRun(f"{type(command).__name__} needs the live run of task {task.id}.")
    if isinstance(command, ENDS) and command.usage != UNUSED:
        used = ev.BudgetSettled(reservation_id=_live(task), run_id=_live(task), usage=command.usage)
        return [used, *decide_run(task, replace(command, usage=UNUSED), actor, now, run_id, files)]
    match command:
        case cmd.FinishRun():
            return _finish(task, command, actor, now, files)
        case cmd.AwaitTask():
            return [] if task.awaited else [ev.TaskAwaited()]
        case cmd.VouchResult():
            return [ev.ResultVouched(run_id=_live(task))] if task.cache_key is not None and not task.vouched else []
        case cmd.StartRun(worker=worker):
            return _start(task, worker)
        case cmd.RunTask():
            return _run_now(task)
        case cmd.DeliverUpdates():
            return _deliver(task, command, run_id)
        case cmd.AskUser():
            return _ask(task, command)
        case cmd.AwaitSubtask():
            return _await(task, command)
        case cmd.SetTimer(due_at=due_at, call_id=call_id):
            return [_timer(task, due_at, call_id)]
        case cmd.YieldRun(tool_summary=tools):
            return [ev.RunYielded(run_id=_live(task), tool_summary=tools)]
        case cmd.ReleaseRun(tool_summary=tools, retry_seconds=later):
            return [ev.RunReleased(run_id=_live(task), tool_summary=tools, retry_seconds=later)]
        case cmd.FailRun(error=error, permanent=permanent, cause=cause, tool_summary=tools, retry_seconds=later):
            failed = ev.RunFailed(run_id=_live(task), error=error, tool_summary=tools, retry_seconds=later)
            return [failed, *_give_up(task, "error", error, at_once=permanent, cause=cause)]
        case cmd.TimeOutRun(error=error, tool_summary=tools):
            return [ev.RunTimedOut(run_id=_live(task), error=error, tool_summary=tools), *_give_up(task, "timeout", error)]
        case cmd.LoseRun(run_id=lost, last_seen_at=seen):
            if task.run is None or task.run.id != lost:
                return []
            last_seen_at = min(seen or task.run.started_at, now)
            gone = ev.RunLost(run_id=lost, last_seen_at=last_seen_at)
            return [gone, *_give_up(task, "lost", f"The worker {task.run.worker} is gone.")]
        case cmd.ExcludeDowntime(since=since, until=until):
            return exclude(task, since, min(until, now))
        case cmd.FireTimer(timer_id=timer_id):
            waited = task.wait is not None and any(item.kind == "timer" and item.ref == timer_id for item in task.wait.on)
            return [ev.TimerFired(ref=timer_id)] if waited else []
        case cmd.Tick():
            return wake(task, "tick") if task.waits_for_tick else []
        case cmd.SettleSubtask():
            return _settle(task, command)
        case cmd.ReserveBudget(reservation_id=reservation_id, tokens=tokens, cost=cost):
            if any(item.id == reservation_id for item in task.reserved):
                return []
            return [ev.BudgetReserved(reservation_id=reservation_id, run_id=_live(task), tokens=tokens, cost=cost)]
        case cmd.SettleBudget(reservation_id=reservation_id, usage=usage, tool_summary=tools):
            known = reservation_id == _live(task) or any(item.id == reservation_id for item in task.reserved)
            return [ev.BudgetSettled(reservation_id=reservation_id, run_id=_live(task), usage=usage, tool_summary=tools)] if known else []
        case _:
            assert_never(command)


def abort(command: cmd.AbortTask, run_id: str | None) -> Events:
    """The end of a task at a limit; if its own run says so, what that run did is told first."""
    failed = ev.TaskFailed(reason=command.reason, message=command.message, cause=command.cause)
    if run_id is None:
        return [failed]
    used = ev.BudgetSettled(reservation_id=run_id, run_id=run_id, usage=command.usage)
    end = ev.RunTimedOut if command.reason == "timeout" else ev.RunFailed
    return [used, end(run_id=run_id, error=command.message, tool_summary=command.tool_summary), failed]


def wake(task: Task, cause: WakeCause) -> Events:
    """End a wait that needs no answer; anything else stays as it is."""
    at = task.paused_from if task.state is State.PAUSED else task.state
    if at is not State.WAITING or task.wait is None or task.wait.holds:
        return []
    return [ev.TimerFired(ref=task.wait.on[0].ref, cause=cause)]


def exclude(task: Task, since: datetime, until: datetime) -> Events:
    """What was excluded before is not excluded again; a task whose clock does not run has nothing to exclude."""
    if task.clock_since is None or (task.run is None and task.state is not State.WAITING):
        return []
    if until <= task.clock_since:
        return []
    return [ev.DowntimeExcluded(since=max(since, task.clock_since), until=until)]


def _live(task: Task) -> str:
    assert task.run is not None, "the fence has been checked"
    return task.run.id


def _start(task: Task, worker: str) -> Events:
    if task.run is not None:
        raise Conflict(f"Task {task.id} is already worked on by {task.run.worker}.", details={"run_id": task.run.id})
    if task.state is not State.PENDING:
        raise Conflict(f"Task {task.id} is {task.state.value}; only a pending task can start.", details={"state": task.state.value})
    run_id = f"{task.id}-r{task.counts.runs + 1:06d}"
    first: Events = [ev.TaskStarted()] if task.started_at is None else []
    return [*first, ev.RunStarted(run_id=run_id, worker=worker)]


def _run_now(task: Task) -> Events:
    if task.in_flight:
        raise Conflict(f"Task {task.id} is already in flight.", details={"state": task.state.value})
    if task.state is State.PENDING:
        return []
    if task.state is State.WAITING and (events := wake(task, "run")):
        return events
    waits = f" for {', '.join(f'{item.kind} {item.ref}' for item in task.wait.on)}" if task.wait else ""
    hints = {
        State.DRAFT: "Set its status to active first.",
        State.PAUSED: "Resume it first.",
        State.WAITING: "Answer its question first." if task.questions else "It goes on when these have ended.",
    }
    hint = hints.get(task.state, "")
    raise Conflict(f"Task {task.id} is {task.state.value}{waits} and cannot run now.", hint=hint, details={"state": task.state.value})


def _deliver(task: Task, command: cmd.DeliverUpdates, run_id: str | None) -> Events:
    told = command.update_ids
    ids = tuple(update.update_id for update in task.queued if told is None or update.update_id in told)
    if command.session_id is None:
        if run_id is None:
            raise StaleRun(f"Updates of task {task.id} go to its live run or its session.")
        return [ev.UpdateDelivered(update_ids=ids, run_id=run_id, turn=command.turn)] if ids else []
    if command.session_id != task.session_id:
        raise Conflict(f"Task {task.id} is not assigned to session {command.session_id}.", details={"session_id": task.session_id})
    if task.state not in (State.PENDING, State.RUNNING):
        return []
    first: Events = [ev.TaskStarted()] if task.started_at is None else []
    if not task.briefed:
        ids = tuple(update.update_id for update in in_assignment(task) if update.update_id in ids)
    delivered = ev.UpdateDelivered(update_ids=ids, session_id=command.session_id, turn=command.turn)
    return [*first, delivered] if ids or not task.briefed else []


def _ask(task: Task, command: cmd.AskUser) -> Events:
    if task.state is not State.RUNNING:
        raise Conflict(f"Task {task.id} is {task.state.value}; only a running task can ask.", details={"state": task.state.value})
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


def _await(task: Task, command: cmd.AwaitSubtask) -> Events:
    child = task.child(command.child_id)
    if child is None:
        raise NotFound(f"Task {command.child_id} is not a subtask of task {task.id}.")
    if child.settled:
        return []
    awaited = ev.SubtaskAwaited(child_id=child.id, call_id=command.call_id)
    return [awaited] if command.until is None else [awaited, _timer(task, command.until, command.call_id)]


def _timer(task: Task, due_at: datetime, call_id: str | None) -> ev.TimerSet:
    return ev.TimerSet(timer_id=f"{task.id}-t{task.counts.timers + 1}", due_at=due_at, call_id=call_id)


def _finish(task: Task, command: cmd.FinishRun, actor: str, now: datetime, files: Files) -> Events:
    """A final message claims completion, unless updates are unread, subtasks run, or the agent must first be told what it left open."""
    if task.queued:
        return []
    if any(child.holds for child in task.children):
        return _idle(task, command)
    open_steps = tuple(index for index, step in enumerate(task.steps) if not step.done)
    explicit = task.completion == "explicit"
    if not task.reminded and (open_steps or (explicit and task.delegated)):
        return [_remind(task, command, open_steps)]
    if explicit and task.delegated:
        return _ask_person(task, command, UNCOMPLETED)
    if explicit or (open_steps and not task.delegated):
        return _idle(task, command)
    if found := gaps(task, command.outputs, files):
        return tell_gaps(task, found)
    answer = _answer(task, command)
    return claim(
        task,
        actor,
        now,
        run_id=_live(task),
        outputs=command.outputs,
        summary=answer,
        final_message=answer,
        tool_summary=command.tool_summary,
        files=files,
    )


def _answer(task: Task, command: cmd.FinishRun) -> str:
    """The result of a run: a message after a reminder is added to the answer before it.

    An answer that the message repeats, or that was claimed and refused, is not added.
    """
    before, last = task.final_message, command.final_message
    if not task.reminded or not before or before == task.summary:
        return last
    repeated = " ".join(before.split()) in " ".join(last.split())
    return last if repeated else f"{before}\n\n{last}"


def _remind(task: Task, command: cmd.FinishRun, open_steps: tuple[int, ...]) -> ev.AgentReminded:
    """One more turn, which says what the final message left undone."""
    return ev.AgentReminded(
        update_id=f"{task.id}-u{task.counts.updates + 1}",
        message=reminder(task, open_steps, command.plan_tool),
        final_message=command.final_message,
        open_steps=open_steps,
    )


def _idle(task: Task, command: cmd.FinishRun) -> Events:
    """Wait for subtasks, or for the next tick; the third run in a row without progress asks a person instead."""
    assert task.run is not None
    if not task.run.progressed and task.idle_runs + 1 >= MAX_IDLE_RUNS:
        return _ask_person(task, command, IDLE)
    return [ev.RunYielded(run_id=task.run.id, final_message=_answer(task, command), tick=True, tool_summary=command.tool_summary)]


def _ask_person(task: Task, command: cmd.FinishRun, why: str) -> Events:
    """End the run with a question to a person, whose answer decides how the task goes on."""
    question = f"{why} How should it go on? Its last words: {command.final_message or '(none)'}"
    asked = ev.UserInteractionRequested(
        interaction_id=f"{task.id}-q{task.counts.interactions + 1}",
        question=question,
        asked_by=HOST,
    )
    answer = _answer(task, command)
    yielded = ev.RunYielded(run_id=_live(task), final_message=answer, tool_summary=command.tool_summary)
    return [asked, yielded]


def _give_up(task: Task, reason: FailReason, message: str, *, at_once: bool = False, cause: FailCause | None = None) -> Events:
    if at_once or task.attempts + 1 >= max_attempts(task.limits):
        return [ev.TaskFailed(reason=reason, message=message, cause=cause)]
    return []


def _settle(task: Task, command: cmd.SettleSubtask) -> Events:
    child = task.child(command.child_id)
    if child is None or child.settled or child.wait == "none":
        return []
    told = child.wait == "wake" and command.report is not None
    settled = ev.SubtaskSettled(
        child_id=child.id,
        state=command.state,
        summary=command.summary,
        failure_reason=command.failure_reason,
        update_id=f"{task.id}-u{task.counts.updates + command.ahead}" if told else None,
        report=command.report if told else None,
    )
    return [settled]
