"""How events of runs, waits and claims change a task, up to its end."""

from collections.abc import Mapping
from typing import Any

from remit.domain.decisions.content_changes import queue, with_step
from remit.domain.decisions.wait_state import (
    add_wait,
    close_question,
    move_to,
    redirect_wait,
    satisfy_wait,
    wait_or_queue,
)
from remit.domain.records.pick import omit
from remit.domain.records.record import replace
from remit.domain.task import events as ev
from remit.domain.task.task import (
    Child,
    Criterion,
    CriterionStatus,
    Interaction,
    Run,
    State,
    Task,
    ToolCount,
    Wait,
    WaitFor,
    by_tool,
)


def start_task(task: Task, _: ev.TaskStarted, entry: ev.Entry) -> Task:
    """Record when a task first started."""
    return replace(task, started_at=entry.at, state=State.RUNNING)


def start_run(task: Task, event: ev.RunStarted, entry: ev.Entry) -> Task:
    """Make the new run the live one, and count it."""
    run = Run(id=event.run_id, worker=event.worker, started_at=entry.at)
    counts = replace(task.counts, runs=task.counts.runs + 1)
    return replace(task, run=run, state=State.RUNNING, counts=counts)


def settle_budget(task: Task, event: ev.BudgetSettled) -> Task:
    """Add what a run has used since the last time."""
    used = replace(task, usage=task.usage.plus(event.usage))
    return _count_tools(used, event.tool_summary)


def yield_run(task: Task, event: ev.RunYielded, entry: ev.Entry) -> Task:
    """End a run that made room for a wait or for the next tick."""
    completes_by_message = task.delegated and task.completion == "auto"
    keeps_reminder = event.final_message is None or completes_by_message
    over = replace(
        _with_message(_end_run(task, event.tool_summary), event.final_message),
        attempts=0,
        idle_runs=_count_idle_runs(task, event),
        reminded=task.reminded and keeps_reminder,
    )
    if not event.tick:
        return wait_or_queue(over)
    wait = Wait(on=_items_until_tick(task), since=entry.at)
    return move_to(replace(over, wait=wait), State.WAITING)


def _count_idle_runs(task: Task, event: ev.RunYielded) -> int:
    """Return how many runs in a row made no progress, including the one that yields."""
    assert task.run is not None
    if task.run.progressed or not event.tick:
        return 0
    return task.idle_runs + 1


def _items_until_tick(task: Task) -> tuple[WaitFor, ...]:
    """Return the unfinished subtasks that a task waits for; without any, the next tick."""
    subtasks = [WaitFor(kind="subtask", ref=child.id) for child in task.children if child.holds]
    return tuple(subtasks) or (WaitFor(kind="tick", ref="tick"),)


def release_run(task: Task, event: ev.RunReleased) -> Task:
    """End a run so that another one continues."""
    return wait_or_queue(_end_run(task, event.tool_summary))


def fail_run(task: Task, event: ev.RunFailed | ev.RunTimedOut) -> Task:
    """End a run as a failed attempt."""
    ended = _end_run(task, event.tool_summary)
    return wait_or_queue(replace(ended, attempts=task.attempts + 1))


def lose_run(task: Task, _: ev.RunLost) -> Task:
    """End a run whose worker is gone as a failed attempt."""
    return wait_or_queue(replace(_end_run(task), attempts=task.attempts + 1))


def _end_run(task: Task, tools: tuple[ToolCount, ...] = ()) -> Task:
    return replace(_count_tools(task, tools), run=None)


def _count_tools(task: Task, tools: tuple[ToolCount, ...]) -> Task:
    counted = by_tool((*task.tool_summary, *tools))
    summary = tuple(ToolCount(tool=tool, count=count) for tool, count in counted.items())
    calls = task.usage.tool_calls + by_tool(tools).total()
    return replace(task, tool_summary=summary, usage=replace(task.usage, tool_calls=calls))


def remind(task: Task, event: ev.AgentReminded, entry: ev.Entry) -> Task:
    """Keep the final message as an answer, and queue what it left undone."""
    answered = _with_answer(task, event.final_message)
    return queue(answered, entry, event.update_id, "steps", event.message)


def _with_answer(task: Task, final_message: str | None) -> Task:
    """Keep the final message as an answer that the agent was asked to complete."""
    if final_message is None:
        return task
    return replace(_with_message(task, final_message), reminded=True)


def _with_message(task: Task, final_message: str | None) -> Task:
    """Record a final message, if there is one: it is new, and was not claimed before."""
    if final_message is None:
        return task
    return replace(
        task, final_message=final_message, outdated_answer=False, final_message_claimed=False
    )


def ask(task: Task, event: ev.UserInteractionRequested, entry: ev.Entry) -> Task:
    """Add an open question; a blocking one is waited for."""
    question = Interaction(
        id=event.interaction_id,
        question=event.question,
        options=event.options,
        blocking=event.blocking,
        asked_by=event.asked_by or entry.actor,
        asked_at=entry.at,
        call_id=event.call_id,
        allow_other=event.allow_other,
    )
    counts = replace(task.counts, interactions=task.counts.interactions + 1)
    task = replace(task, questions=(*task.questions, question), counts=counts)
    if not event.blocking:
        return task
    return add_wait(task, WaitFor(kind="user", ref=question.id, call_id=event.call_id), entry)


def answer(task: Task, event: ev.UserInteractionResponded) -> Task:
    """Close a question and end the wait for its answer."""
    return close_question(replace(task, idle_runs=0), event.interaction_id)


def set_timer(task: Task, event: ev.TimerSet, entry: ev.Entry) -> Task:
    """Wait for a timer."""
    counts = replace(task.counts, timers=task.counts.timers + 1)
    item = WaitFor(kind="timer", ref=event.timer_id, call_id=event.call_id)
    return add_wait(replace(task, counts=counts), item, entry)


def fire_timer(task: Task, event: ev.TimerFired) -> Task:
    """End the wait for a timer."""
    return satisfy_wait(task, "timer", event.ref)


def wake(task: Task, event: ev.TaskWoken, entry: ev.Entry) -> Task:
    """End a wait; a task whose time is up only reports before it fails."""
    if event.cause == "timeout":
        return replace(task, state=State.PENDING, overdue=entry.at)
    if any(question.id == event.ref for question in task.questions):
        return close_question(task, event.ref)
    return satisfy_wait(task, "timer", event.ref)


def begin_to_await(task: Task, _: ev.TaskAwaited) -> Task:
    """Record that a caller waits for the task, and end a wait for a tick."""
    reminded = task.reminded or _has_answer(task)
    awaited = replace(task, awaited=True, reminded=reminded)
    if task.waits_for_tick:
        return satisfy_wait(awaited, "tick", "tick")
    return awaited


def _has_answer(task: Task) -> bool:
    """Return whether an earlier run ended with an answer, which is then part of the result.

    A message before a wait for subtasks is not an answer.
    """
    may_answer = task.waits_for_tick or not task.children
    is_answer = task.completion == "auto" and task.unclaimed_message is not None
    return may_answer and is_answer


def stop_clock(task: Task, _: ev.ClockStopped) -> Task:
    """Stop the clock while all awaited subtasks wait for a person."""
    return replace(task, held=True)


def start_clock(task: Task, _: ev.ClockStarted) -> Task:
    """Start the clock again."""
    return replace(task, held=False)


def exclude_downtime(task: Task, _: ev.DowntimeExcluded) -> Task:
    """Return the task unchanged: only its clock changes (`task_clock`)."""
    return task


def pause(task: Task, event: ev.TaskPaused) -> Task:
    """Pause a task; one that is queued only for its last report resumes in its wait."""
    paused_from = task.state
    if task.overdue and task.wait:
        paused_from = State.WAITING
    return replace(
        task, state=State.PAUSED, paused_from=paused_from, paused_by_agent=event.by_agent
    )


def resume(task: Task, _: ev.TaskResumed) -> Task:
    """Continue a paused task in the state in which it was paused."""
    assert task.paused_from is not None
    return replace(task, state=task.paused_from, paused_from=None, paused_by_agent=False)


def await_subtask(task: Task, event: ev.SubtaskAwaited, entry: ev.Entry) -> Task:
    """Wait for the result of a subtask, which then blocks its parent."""
    item = WaitFor(kind="subtask", ref=event.child_id, call_id=event.call_id)
    return add_wait(_with_child(task, event.child_id, wait="block"), item, entry)


def link_subtask(task: Task, event: ev.SubtaskLinked) -> Task:
    """Add a subtask, in the place of the one that it replaces."""
    wait = redirect_wait(task.wait, event.replaces, event.child_id)
    linked = replace(task, children=_linked_children(task, event), wait=wait)
    if event.step_index is None:
        return linked
    step = replace(linked.steps[event.step_index], task_id=event.child_id)
    return with_step(linked, event.step_index, step)


def _linked_children(task: Task, event: ev.SubtaskLinked) -> tuple[Child, ...]:
    """Return the subtasks with the new one, in the order of their ids."""
    child = Child(id=event.child_id, wait=event.wait)
    kept = _without_children(task, event.child_id, event.replaces)
    children = (*kept, child)
    if kept and int(kept[-1].id) > int(child.id):
        return tuple(sorted(children, key=lambda known: int(known.id)))
    return children


def _without_children(task: Task, *child_ids: str | None) -> tuple[Child, ...]:
    """Return the subtasks except the ones with these ids."""
    removed = tuple(filter(None, child_ids))
    if not any(map(task.child, removed)):
        return task.children
    return tuple(child for child in task.children if child.id not in removed)


def _with_child(task: Task, child_id: str, **changes: Any) -> Task:
    index = task.child_index(child_id)
    if index is None:
        return task
    child = replace(task.children[index], **changes)
    return replace(task, children=(*task.children[:index], child, *task.children[index + 1 :]))


def settle_subtask(task: Task, event: ev.SubtaskSettled, entry: ev.Entry) -> Task:
    """Record the end of a subtask, and end the wait for it."""
    known = replace(_with_child(task, event.child_id, settled=event.state), idle_runs=0)
    if event.update_id is not None:
        known = queue(known, entry, event.update_id, "subtask", event.report or "")
    return satisfy_wait(known, "subtask", event.child_id)


def vouch(task: Task, _: ev.ResultVouched) -> Task:
    """Let identical tasks reuse the result."""
    return replace(task, vouched=True)


def claim(task: Task, event: ev.CompletionClaimed) -> Task:
    """Reset every criterion to unchecked, except those that a person waived.

    A wait for an answer continues: if the claim is rejected, the agent still has an open call.
    """
    outputs = task.completion_outputs
    if event.outputs is not None:
        outputs = {**task.provided, **event.outputs}
    wait = task.wait
    if wait is not None and not wait.holds:
        wait = None
    claimed = _with_summary(_with_message(task, event.final_message), event)
    return replace(
        _end_run(claimed, event.tool_summary),
        state=State.VERIFYING,
        vouched=task.vouched and event.run_id is not None,
        paused_from=None,
        wait=wait,
        acceptance=tuple(map(_reset_unless_waived, task.acceptance)),
        completion_outputs=outputs,
        handed_by=_handed_by(task, event),
        claimed_by=event.by,
        claimed_from=event.claimed_from or task.claimed_from,
    )


def _with_summary(task: Task, event: ev.CompletionClaimed) -> Task:
    """Record the result of a claim, if it has one, and whether the task's own agent claimed it."""
    if event.summary is None:
        return task
    is_own = event.by is None
    return replace(
        task,
        summary=event.summary,
        final_message_claimed=task.final_message_claimed or is_own,
        claimed_version=task.instructions_version if is_own else None,
    )


def _handed_by(task: Task, event: ev.CompletionClaimed) -> Mapping[str, str] | None:
    """Return who handed over each output, without those of the task's own agent or session."""
    outputs = event.outputs or {}
    others = omit(task.handed_by or {}, outputs)
    if event.by is not None:
        others |= dict.fromkeys(outputs, event.by)
    return others or None


def _reset_unless_waived(criterion: Criterion) -> Criterion:
    if criterion.status == "waived":
        return criterion
    return replace(criterion, status="unchecked", evidence=None, by=None)


def check_criterion(task: Task, event: ev.CriterionChecked, entry: ev.Entry) -> Task:
    """Record the verdict on a criterion."""
    return _decide_criterion(task, event.criterion_id, event.status, event.evidence, entry.actor)


def waive_criterion(task: Task, event: ev.CriterionWaived, entry: ev.Entry) -> Task:
    """Record that a person waived a criterion."""
    return _decide_criterion(task, event.criterion_id, "waived", event.reason, entry.actor)


def _decide_criterion(
    task: Task, criterion_id: str, status: CriterionStatus, evidence: str | None, actor: str
) -> Task:
    """Set the status of one criterion, with its evidence and the actor that decided it."""

    def decide(criterion: Criterion) -> Criterion:
        if criterion.id != criterion_id:
            return criterion
        return replace(criterion, status=status, evidence=evidence, by=actor)

    return replace(task, acceptance=tuple(map(decide, task.acceptance)))


def reject(task: Task, event: ev.AcceptanceRejected, entry: ev.Entry) -> Task:
    """Let the agent continue after a claim that was not accepted."""
    if event.outdated:
        return _return_from_claim(task)
    if event.told:
        counts = replace(task.counts, updates=task.counts.updates + 1)
        return replace(task, output_asks=task.output_asks + 1, counts=counts)
    queued = _queue_rejection(task, event, entry)
    if event.missing_outputs:
        return _with_answer(replace(queued, output_asks=task.output_asks + 1), event.final_message)
    return replace(_return_from_claim(queued), rounds=task.rounds + 1)


def _return_from_claim(task: Task) -> Task:
    """Set the state after a claim that was not accepted; a draft or a paused task does not run."""
    returned = replace(task, claimed_from=None)
    if task.claimed_from == "draft":
        return move_to(returned, State.DRAFT)
    if task.claimed_from == "paused":
        return wait_or_queue(replace(returned, state=State.PAUSED))
    return wait_or_queue(returned)


def _queue_rejection(task: Task, event: ev.AcceptanceRejected, entry: ev.Entry) -> Task:
    """Queue the message for the agent; older events have only a list of gaps."""
    if event.message is not None:
        return queue(task, entry, event.update_id, "rejection", event.message)
    content = "\n".join(f"- {gap}" for gap in event.gaps)
    return queue(task, entry, event.update_id, "acceptance", content)


def complete(task: Task, event: ev.TaskCompleted, entry: ev.Entry) -> Task:
    """End a completed task."""
    ended = _end(task, State.DONE, entry)
    return replace(ended, verification=event.verification, completed_at=entry.at)


def fail_task(task: Task, event: ev.TaskFailed, entry: ev.Entry) -> Task:
    """End a task that failed, with the reason."""
    ended = _end(task, State.FAILED, entry)
    return replace(ended, reason=event.reason, failure_reason=event.message, cause=event.cause)


def cancel_task(task: Task, event: ev.TaskCanceled, entry: ev.Entry) -> Task:
    """End a canceled task, with the reason."""
    ended = _end(task, State.CANCELED, entry)
    return replace(ended, reason=event.reason, failure_reason=event.message)


def _end(task: Task, state: State, entry: ev.Entry) -> Task:
    """End a task: it has no run, no wait, no open question and no queued update."""
    return replace(
        task,
        state=state,
        paused_from=None,
        paused_by_agent=False,
        claimed_from=None,
        run=None,
        wait=None,
        questions=(),
        queued=(),
        archived_at=entry.at,
    )
