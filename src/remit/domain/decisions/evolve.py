"""Rebuild a task from its events: `evolve(task, entry) -> task`, a pure fold."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from remit.domain.decisions import content_changes as content
from remit.domain.decisions import run_changes as run
from remit.domain.decisions.context import Context
from remit.domain.decisions.task_clock import event_language, stamp
from remit.domain.records.record import replace
from remit.domain.task import events as ev
from remit.domain.task.task import Counts, State, Task

E = TypeVar("E")

PROGRESS = (
    ev.StepsReplaced,
    ev.StepUpdated,
    ev.SubtaskLinked,
    ev.SubtaskSettled,
    ev.ResourceAdded,
    ev.ResourceRemoved,
    ev.GuideAttached,
    ev.SubtaskAwaited,
    ev.TimerSet,
    ev.UserNotified,
)
"""Events that count as progress of a run."""

KEEPS_VOUCHED = (ev.BudgetSettled, ev.CompletionClaimed, ev.CriterionChecked, ev.TaskCompleted)
"""Events that may follow ResultVouched; after any other event the run must vouch again."""


def _on(
    kind: type[E], change: Callable[[Task, E], Task]
) -> tuple[type[Any], Callable[[Task, Any], Task]]:
    """Return an entry of `CHANGES`, whose function takes events of this type."""
    return kind, change


def _dated(
    kind: type[E], change: Callable[[Task, E, ev.Entry], Task]
) -> tuple[type[Any], Callable[[Task, Any, ev.Entry], Task]]:
    """Return an entry of `DATED_CHANGES`, whose function takes events of this type."""
    return kind, change


CHANGES: Mapping[type[Any], Callable[[Task, Any], Task]] = dict(
    [
        _on(ev.TaskActivated, content.activate),
        _on(ev.TaskRevised, content.revise),
        _on(ev.TaskReassigned, content.reassign),
        _on(ev.TaskAssigned, content.assign),
        _on(ev.TaskSuperseded, content.supersede),
        _on(ev.ParentReplaced, content.replace_parent),
        _on(ev.UpdateDelivered, content.deliver),
        _on(ev.StepsReplaced, content.replace_steps),
        _on(ev.StepUpdated, content.update_step),
        _on(ev.ResourceAdded, content.add_resource),
        _on(ev.ResourceRemoved, content.remove_resource),
        _on(ev.GuideAttached, content.attach_guide),
        _on(ev.DependenciesChanged, content.change_dependencies),
        _on(ev.ScheduleChanged, content.change_schedule),
        _on(ev.UserNotified, content.count_notification),
        _on(ev.TaskAwaited, run.begin_to_await),
        _on(ev.SubtaskLinked, run.link_subtask),
        _on(ev.BudgetSettled, run.settle_budget),
        _on(ev.RunReleased, run.release_run),
        _on(ev.RunFailed, run.fail_run),
        _on(ev.RunTimedOut, run.fail_run),
        _on(ev.RunLost, run.lose_run),
        _on(ev.UserInteractionResponded, run.answer),
        _on(ev.TimerFired, run.fire_timer),
        _on(ev.ClockStopped, run.stop_clock),
        _on(ev.ClockStarted, run.start_clock),
        _on(ev.DowntimeExcluded, run.exclude_downtime),
        _on(ev.TaskPaused, run.pause),
        _on(ev.TaskResumed, run.resume),
        _on(ev.ResultVouched, run.vouch),
        _on(ev.CompletionClaimed, run.claim),
    ]
)
"""How events change a task, by type."""

DATED_CHANGES: Mapping[type[Any], Callable[[Task, Any, ev.Entry], Task]] = dict(
    [
        _dated(ev.InstructionsUpdated, content.update_instructions),
        _dated(ev.AcceptanceUpdated, content.update_acceptance),
        _dated(ev.OutputsUpdated, content.update_outputs),
        _dated(ev.MessageSent, content.send_message),
        _dated(ev.TaskStarted, run.start_task),
        _dated(ev.RunStarted, run.start_run),
        _dated(ev.RunYielded, run.yield_run),
        _dated(ev.AgentReminded, run.remind),
        _dated(ev.UserInteractionRequested, run.ask),
        _dated(ev.SubtaskAwaited, run.await_subtask),
        _dated(ev.SubtaskSettled, run.settle_subtask),
        _dated(ev.TimerSet, run.set_timer),
        _dated(ev.TaskWoken, run.wake),
        _dated(ev.CriterionChecked, run.check_criterion),
        _dated(ev.CriterionWaived, run.waive_criterion),
        _dated(ev.AcceptanceRejected, run.reject),
        _dated(ev.TaskCompleted, run.complete),
        _dated(ev.TaskFailed, run.fail_task),
        _dated(ev.TaskCanceled, run.cancel_task),
    ]
)
"""How events change a task whose time or actor counts, by type."""


def evolve(task: Task | None, entry: ev.Entry) -> Task:
    """Return the task after one more event."""
    event = entry.event
    if isinstance(event, ev.TaskCreated):
        assert task is None, f"task {event.id} is created twice"
        return _create(event, entry)
    assert task is not None, f"{type(event).__name__} before TaskCreated in stream {entry.stream}"
    assert not isinstance(event, (ev.GuideCreated, ev.KeyClaimed)), (
        f"{type(event).__name__} in the stream of task {task.id}"
    )
    after = _apply(task, entry)
    if task.vouched and not isinstance(event, KEEPS_VOUCHED):
        after = replace(after, vouched=False)
    if after.run is not None and isinstance(event, PROGRESS):
        after = replace(after, run=replace(after.run, progressed=True))
    if after.held and after.wait is None:
        after = replace(after, held=False)
    return stamp(after, entry)


def replay(entries: Iterable[ev.Entry]) -> Task | None:
    """Return the task that a whole stream describes; None for an empty stream."""
    task: Task | None = None
    for entry in entries:
        task = evolve(task, entry)
    return task


def apply_events(task: Task, events: Iterable[ev.Event], actor: str, now: datetime) -> Task:
    """Return the task as it will be once the events are stored."""
    for event in events:
        version = task.version + 1
        entry = ev.Entry(id="", stream=task.id, version=version, at=now, actor=actor, event=event)
        task = evolve(task, entry)
    return task


def fold(task: Task, events: Iterable[ev.Event], context: Context) -> Task:
    """Return the task as it will be once the events of a command are stored."""
    return apply_events(task, events, context.actor, context.now)


def _apply(task: Task, entry: ev.Entry) -> Task:
    kind = type(entry.event)
    change = CHANGES.get(kind)
    if change is None:
        return DATED_CHANGES[kind](task, entry.event, entry)
    return change(task, entry.event)


def _create(event: ev.TaskCreated, entry: ev.Entry) -> Task:
    return Task(
        id=event.id,
        uid=event.uid,
        title=event.title,
        description=event.description,
        instructions=event.instructions,
        acceptance=event.acceptance,
        completion=event.completion,
        outputs=event.outputs,
        guides=event.guides,
        steps=event.steps,
        resources=event.resources,
        owner=event.owner,
        created_by=event.created_by or entry.actor,
        parent_id=event.parent_id,
        step_index=event.step_index,
        root_id=event.root_id,
        depth=event.depth,
        depends_on=event.depends_on,
        schedule=event.schedule,
        rerun_of=event.rerun_of,
        series_id=event.series_id,
        state=State.DRAFT if event.draft else State.PENDING,
        thread_id=event.thread_id,
        channel=event.channel,
        session_id=event.session_id,
        parent_session_id=event.parent_session_id,
        model=event.model,
        effort=event.effort,
        tools=event.tools,
        priority=event.priority,
        limits=event.limits,
        created_at=entry.at,
        updated_at=entry.at,
        version=entry.version,
        language=event_language(event),
        labels=event.labels,
        metadata=event.metadata,
        idempotency_key=event.idempotency_key,
        cache_key=event.cache_key,
        awaited=event.awaited,
        creator_task_id=event.creator_task_id,
        via=event.via,
        has_instructions=event.has_instructions,
        title_outdated=event.title_outdated,
        description_only=event.description_only,
        has_description=event.has_description,
        counts=Counts(criteria=len(event.acceptance)),
    )
