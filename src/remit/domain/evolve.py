"""How a task follows from its events: `evolve(task, entry) -> task`, a pure fold."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, assert_never

from remit.domain import event as ev
from remit.domain.brief import is_said
from remit.domain.policy import outline
from remit.domain.record import fields, replace
from remit.domain.value import (
    Child,
    Counts,
    Criterion,
    Interaction,
    Reservation,
    Run,
    State,
    Step,
    Task,
    ToolCount,
    Update,
    UpdateType,
    Usage,
    Wait,
    WaitFor,
)

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
"""What counts as getting on with the work."""

VOUCHED = (ev.BudgetSettled, ev.CompletionClaimed, ev.CriterionChecked, ev.TaskCompleted)
"""What may come between a run's word for its result and the end of the task; after anything else the word must be given again."""


def evolve(task: Task | None, entry: ev.Entry) -> Task:
    """The task after one more event."""
    event = entry.event
    if isinstance(event, ev.TaskCreated):
        assert task is None, f"task {event.id} is created twice"
        return _created(event, entry)
    assert task is not None, f"{type(event).__name__} before TaskCreated in stream {entry.stream}"
    assert not isinstance(event, (ev.GuideCreated, ev.KeyClaimed)), f"{type(event).__name__} in the stream of task {task.id}"
    after = _apply(task, event, entry)
    if task.vouched and not isinstance(event, VOUCHED):
        after = replace(after, vouched=False)
    if after.run is not None and isinstance(event, PROGRESS):
        after = replace(after, run=replace(after.run, progressed=True))
    if after.held and after.wait is None:
        after = replace(after, held=False)
    return _stamped(after, entry)


def replay(entries: Iterable[ev.Entry]) -> Task | None:
    """The task that a whole stream adds up to."""
    task: Task | None = None
    for entry in entries:
        task = evolve(task, entry)
    return task


def _created(event: ev.TaskCreated, entry: ev.Entry) -> Task:
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
        language=_language(event),
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
        counts=Counts(criteria=len(event.acceptance)),
    )


def _apply(task: Task, event: ev.Event, entry: ev.Entry) -> Task:
    match event:
        # The events of every run stand first: they are looked for from the top.
        case ev.TaskStarted():
            return replace(task, started_at=entry.at, state=State.RUNNING)
        case ev.RunStarted(run_id=run_id, worker=worker):
            run = Run(id=run_id, worker=worker, started_at=entry.at)
            return replace(task, run=run, state=State.RUNNING, counts=replace(task.counts, runs=task.counts.runs + 1))
        case ev.ResultVouched():
            return replace(task, vouched=True)
        case ev.CompletionClaimed():
            return _claimed(task, event)
        case ev.TaskCompleted(verification=verification):
            return replace(_ended(task, State.DONE, entry), verification=verification, completed_at=entry.at)
        case ev.SubtaskSettled():
            return _settled(task, event, entry)
        case ev.SubtaskAwaited(child_id=child_id, call_id=call_id):
            return _awaiting(_with_child(task, child_id, wait="block"), WaitFor(kind="subtask", ref=child_id, call_id=call_id), entry)
        case ev.SubtaskLinked():
            return _linked(task, event)
        case ev.BudgetSettled(reservation_id=reservation_id, usage=usage, tool_summary=tools):
            reserved = tuple(item for item in task.reserved if item.id != reservation_id)
            return _counted(replace(task, reserved=reserved, usage=task.usage.plus(usage)), tools)
        case ev.RunYielded():
            return _yielded(task, event, entry)
        case ev.TaskCreated():
            raise AssertionError("handled by evolve")
        case ev.TaskActivated():
            return replace(task, state=State.PENDING)
        case ev.TaskRevised():
            return _revised(task, event)
        case ev.TaskReassigned(owner=owner):
            return replace(task, owner=owner)
        case ev.TaskAssigned(session_id=session_id):
            return replace(task, session_id=session_id, briefed=False)
        case ev.TaskSuperseded(by=by):
            return replace(task, superseded_by=by)
        case ev.ParentReplaced(parent_id=parent_id, root_id=root_id, depth=depth):
            return replace(task, parent_id=parent_id, root_id=root_id or task.root_id, depth=task.depth if depth is None else depth)
        case ev.InstructionsUpdated(update_id=update_id, instructions=text, description=description, title=title):
            stood_for_them = task.title_outdated or task.title == task.instructions
            changed = replace(
                task,
                title=task.title if title is None else title,
                title_outdated=title is None and stood_for_them,
                instructions=text,
                instructions_version=task.instructions_version + 1,
                has_instructions=task.has_instructions or event.has_instructions,
                description_only=task.description_only and event.description is None and text == task.description,
                terms_version=event.terms_version or task.terms_version,
                description=task.description if description is None else description,
            )
            return _queue(changed, entry, update_id, "instructions", text)
        case ev.AcceptanceUpdated(update_id=update_id, acceptance=acceptance, terms_version=version):
            counts = replace(task.counts, criteria=max([task.counts.criteria, *map(_number, acceptance)]))
            content = "\n".join(f"- [ ] {criterion.text}" for criterion in acceptance)
            changed = replace(task, acceptance=acceptance, counts=counts, terms_version=version or task.terms_version)
            return _queue(changed, entry, update_id, "acceptance", content)
        case ev.OutputsUpdated(update_id=update_id, outputs=outputs, terms_version=version):
            changed = replace(task, outputs=outputs, terms_version=version or task.terms_version)
            return _queue(changed, entry, update_id, "outputs", outline(outputs))
        case ev.MessageSent(update_id=update_id, message=message):
            return _queue(task, entry, update_id, "message", message)
        case ev.AgentReminded(update_id=update_id, message=message, final_message=final_message):
            reminded = replace(task, reminded=True, final_message=final_message)
            return _queue(reminded, entry, update_id, "steps", message)
        case ev.UpdateDelivered(update_ids=update_ids, session_id=session_id):
            state = State.RUNNING if session_id is not None and task.state is State.PENDING else task.state
            # An assignment replaces the terms and rejections before it, also those that it does not have.
            is_assignment = session_id is not None and not task.briefed
            left = tuple(update for update in task.queued if update.update_id not in update_ids)
            left = tuple(update for update in left if is_said(update)) if is_assignment else left
            return replace(task, state=state, queued=left, briefed=True)
        case ev.StepsReplaced(steps=steps):
            return replace(task, steps=steps)
        case ev.StepUpdated(index=index):
            return _with_step(task, index, _step(task.steps[index], event))
        case ev.ResourceAdded(resource=resource):
            return replace(task, resources=(*task.resources, resource))
        case ev.ResourceRemoved(index=index):
            return replace(task, resources=task.resources[:index] + task.resources[index + 1 :])
        case ev.GuideAttached(guide_id=guide_id):
            return replace(task, guides=(*(known for known in task.guides if known != guide_id), guide_id))
        case ev.DependenciesChanged(depends_on=depends_on):
            return replace(task, depends_on=depends_on)
        case ev.ScheduleChanged(schedule=schedule):
            return replace(task, schedule=schedule)
        case ev.TaskAwaited():
            awaited = replace(task, awaited=True)
            return _satisfied(awaited, "tick", "tick") if task.waits_for_tick else awaited
        case ev.RunReleased(tool_summary=tools):
            return _rest(_run_over(task, tools))
        case ev.RunFailed(tool_summary=tools) | ev.RunTimedOut(tool_summary=tools):
            return _rest(replace(_run_over(task, tools), attempts=task.attempts + 1))
        case ev.RunLost():
            return _rest(replace(_spend_reserved(_run_over(task)), attempts=task.attempts + 1))
        case ev.UserInteractionRequested():
            return _asked(task, event, entry)
        case ev.UserInteractionResponded(interaction_id=interaction_id):
            questions = tuple(question for question in task.questions if question.id != interaction_id)
            return _satisfied(replace(task, questions=questions, idle_runs=0), "user", interaction_id)
        case ev.UserNotified():
            return replace(task, counts=replace(task.counts, notifications=task.counts.notifications + 1))
        case ev.TimerSet(timer_id=timer_id, call_id=call_id):
            counted = replace(task, counts=replace(task.counts, timers=task.counts.timers + 1))
            return _awaiting(counted, WaitFor(kind="timer", ref=timer_id, call_id=call_id), entry)
        case ev.TimerFired(cause="timeout"):
            return replace(task, state=State.PENDING, overdue=entry.at)
        case ev.TimerFired(ref=ref):
            return _satisfied(task, "timer", ref)
        case ev.ClockStopped() | ev.ClockStarted():
            return replace(task, held=isinstance(event, ev.ClockStopped))
        case ev.DowntimeExcluded():
            return task  # it is about the clock alone
        case ev.TaskPaused():
            return _paused(task, event)
        case ev.TaskResumed():
            assert task.paused_from is not None
            return replace(task, state=task.paused_from, paused_from=None, paused_by_agent=False)
        case ev.CriterionChecked(criterion_id=criterion_id, status=status, evidence=evidence):
            return _with_criterion(task, criterion_id, lambda found: replace(found, status=status, evidence=evidence, by=entry.actor))
        case ev.CriterionWaived(criterion_id=criterion_id, reason=reason):
            return _with_criterion(task, criterion_id, lambda found: replace(found, status="waived", evidence=reason, by=entry.actor))
        case ev.AcceptanceRejected():
            return _rejected(task, event, entry)
        case ev.TaskFailed(reason=reason, message=message, cause=cause):
            return replace(_ended(task, State.FAILED, entry), reason=reason, failure_reason=message, cause=cause)
        case ev.TaskCanceled(reason=reason, message=message):
            return replace(_ended(task, State.CANCELED, entry), reason=reason, failure_reason=message)
        case ev.BudgetReserved(reservation_id=reservation_id, tokens=tokens, cost=cost):
            return replace(task, reserved=(*task.reserved, Reservation(id=reservation_id, tokens=tokens, cost=cost)))
        case _:
            assert_never(event)


def foreseen(task: Task, events: Iterable[ev.Event], actor: str, now: datetime) -> Task:
    """The task as it will be once the events are stored."""
    for event in events:
        task = evolve(task, ev.Entry(id="", stream=task.id, version=task.version + 1, at=now, actor=actor, event=event))
    return task


def _language(event: ev.Event | ev.GuideCreated | ev.KeyClaimed) -> int:
    """The language that an event is in: of an older event, the newest of the added fields that it uses."""
    kind = type(event)
    added = ev.ADDED.get(kind)
    if added is None:
        return ev.SINCE.get(kind, 1)
    if isinstance(event, ev.TaskCreated) and event.tools.named is not None:
        return 3  # a field of a field, which ADDED cannot name
    defaults = fields(kind)
    return max((language for name, language in added.items() if getattr(event, name) != defaults[name]), default=1)


def _stamped(task: Task, entry: ev.Entry) -> Task:
    """Version and time, and the task's own clock: it runs in runs and while only subtasks are awaited, never while a person is."""
    since, spent = _read_clock(task, entry.event)
    if _clock_runs(task):
        since = since or entry.at
    elif since is not None:
        spent += max(0.0, (entry.at - since).total_seconds())
        since = None
    if task.overdue is not None and task.state is not State.PENDING:
        task = replace(task, overdue=None)
    if (language := _language(entry.event)) > task.language:
        task = replace(task, language=language)
    return replace(task, version=entry.version, updated_at=entry.at, clock_since=since, duration=spent)


def _read_clock(task: Task, event: object) -> tuple[datetime | None, float]:
    """Since when the clock runs and what it showed before, once a time that does not count is left out."""
    since, spent = task.clock_since, task.duration
    if since is None:
        return since, spent
    if isinstance(event, ev.RunLost) and event.last_seen_at is not None:
        return None, spent + max(0.0, (event.last_seen_at - since).total_seconds())
    if isinstance(event, ev.DowntimeExcluded) and event.until > since:
        return event.until, spent + max(0.0, (event.since - since).total_seconds())
    return since, spent


def _clock_runs(task: Task) -> bool:
    if task.run is not None:
        return True
    if task.state is State.RUNNING:
        return task.wait is None or not any(item.kind == "user" for item in task.wait.on)
    if task.state is not State.WAITING or task.wait is None:
        return False
    if task.held or any(item.kind == "user" for item in task.wait.on):
        return False
    if task.awaited:
        return True  # somebody waits for this task, so every wait but the one for a person counts
    if [item for item in task.wait.on if item.call_id is None or item.kind not in ("subtask", "timer")]:
        return False
    return any(item.kind == "subtask" for item in task.wait.on)


def _to(task: Task, state: State) -> Task:
    """Move on, or remember where to go while the task is paused."""
    return replace(task, paused_from=state) if task.state is State.PAUSED else replace(task, state=state)


def _at(task: Task) -> State | None:
    return task.paused_from if task.state is State.PAUSED else task.state


def _rest(task: Task) -> Task:
    """Where a task without a run goes: it waits while an answer is outstanding, else it can be picked up again."""
    return _to(task, State.WAITING) if task.wait else replace(_to(task, State.PENDING), wait=None)


def _revised(task: Task, event: ev.TaskRevised) -> Task:
    return replace(
        task,
        title=task.title if event.title is None else event.title,
        title_outdated=task.title_outdated and event.title is None,
        description=task.description if event.description is None else event.description,
        priority=task.priority if event.priority is None else event.priority,
        labels=task.labels if event.labels is None else event.labels,
        metadata=task.metadata if event.metadata is None else event.metadata,
        limits=task.limits if event.limits is None else event.limits,
    )


def _paused(task: Task, event: ev.TaskPaused) -> Task:
    paused_from = State.WAITING if task.overdue and task.wait else task.state
    paused = replace(task, state=State.PAUSED, paused_from=paused_from)
    return replace(paused, paused_by_agent=event.by_agent)


def _settled(task: Task, event: ev.SubtaskSettled, entry: ev.Entry) -> Task:
    known = replace(_with_child(task, event.child_id, settled=event.state), idle_runs=0)
    if event.update_id is not None:
        known = _queue(known, entry, event.update_id, "subtask", event.report or "")
    return _satisfied(known, "subtask", event.child_id)


def _queue(task: Task, entry: ev.Entry, update_id: str, kind: UpdateType, content: str) -> Task:
    update = Update(update_id=update_id, type=kind, content=content, at=entry.at)
    return replace(task, queued=(*task.queued, update), counts=replace(task.counts, updates=task.counts.updates + 1))


def _number(criterion: Criterion) -> int:
    return int(criterion.id[1:])


def _step(step: Step, event: ev.StepUpdated) -> Step:
    return replace(
        step,
        title=step.title if event.title is None else event.title,
        details=step.details if event.details is None else event.details,
        done=step.done if event.done is None else event.done,
    )


def _with_step(task: Task, index: int, step: Step) -> Task:
    return replace(task, steps=(*task.steps[:index], step, *task.steps[index + 1 :]))


def _linked(task: Task, event: ev.SubtaskLinked) -> Task:
    child = Child(id=event.child_id, wait=event.wait)
    gone = [index for known in (event.child_id, event.replaces) if known and (index := task.child_index(known)) is not None]
    kept = tuple(known for index, known in enumerate(task.children) if index not in gone) if gone else task.children
    children = (*kept, child)
    if kept and int(kept[-1].id) > int(child.id):
        children = tuple(sorted(children, key=lambda known: int(known.id)))
    task = replace(task, children=children, wait=_redirected(task.wait, event))
    if event.step_index is None:
        return task
    return _with_step(task, event.step_index, replace(task.steps[event.step_index], task_id=event.child_id))


def _with_child(task: Task, child_id: str, **changes: Any) -> Task:
    index = task.child_index(child_id)
    if index is None:
        return task
    children = task.children
    return replace(task, children=(*children[:index], replace(children[index], **changes), *children[index + 1 :]))


def _redirected(wait: Wait | None, event: ev.SubtaskLinked) -> Wait | None:
    if wait is None or event.replaces is None:
        return wait
    moved = (replace(item, ref=event.child_id) if item.kind == "subtask" and item.ref == event.replaces else item for item in wait.on)
    return replace(wait, on=tuple(moved))


def _asked(task: Task, event: ev.UserInteractionRequested, entry: ev.Entry) -> Task:
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
    return _awaiting(task, WaitFor(kind="user", ref=question.id, call_id=event.call_id), entry) if event.blocking else task


def _awaiting(task: Task, item: WaitFor, entry: ev.Entry) -> Task:
    if task.wait is None:
        return replace(task, wait=Wait(on=(item,), since=entry.at))
    return replace(task, wait=replace(task.wait, on=(*task.wait.on, item)))


def _satisfied(task: Task, kind: str, ref: str) -> Task:
    """Strike one thing off the wait; without an answer outstanding, whatever came ends the wait."""
    if task.wait is None:
        return task
    left = _left(task.wait, kind, ref)
    wait = replace(task.wait, on=left)
    if wait.holds or _at(task) is not State.WAITING:
        return replace(task, wait=wait if left else None)
    return replace(_to(task, State.PENDING), wait=None)


def _left(wait: Wait, kind: str, ref: str) -> tuple[WaitFor, ...]:
    """What is still waited for: a timer ends all that its call waits for, and goes when nothing else is left of that."""
    left = [item for item in wait.on if item.ref != ref or item.kind != kind]
    if kind != "timer" and not [item for item in left if item.kind == "timer"]:
        return tuple(left)
    calls = {item.call_id for item in wait.on if item.ref == ref and item.kind == kind and item.call_id is not None}
    if kind != "timer":
        calls -= {item.call_id for item in left if item.kind != "timer"}
    return tuple(item for item in left if item.call_id not in calls)


def _run_over(task: Task, tools: tuple[ToolCount, ...] = ()) -> Task:
    return replace(_counted(task, tools), run=None)


def _counted(task: Task, tools: tuple[ToolCount, ...]) -> Task:
    if not tools:
        return task
    counted = {item.tool: item.count for item in task.tool_summary}
    for item in tools:
        counted[item.tool] = counted.get(item.tool, 0) + item.count
    summary = tuple(ToolCount(tool=tool, count=count) for tool, count in counted.items())
    calls = task.usage.tool_calls + sum(item.count for item in tools)
    return replace(task, tool_summary=summary, usage=replace(task.usage, tool_calls=calls))


def _spend_reserved(task: Task) -> Task:
    """What was set aside for a call whose end nobody saw counts as spent."""
    if not task.reserved:
        return task
    spent = Usage(input_tokens=sum(item.tokens for item in task.reserved), cost=sum(item.cost for item in task.reserved))
    return replace(task, reserved=(), usage=task.usage.plus(spent))


def _yielded(task: Task, event: ev.RunYielded, entry: ev.Entry) -> Task:
    assert task.run is not None
    idle = task.idle_runs + 1 if event.tick and not task.run.progressed else 0
    over = replace(
        _run_over(task, event.tool_summary),
        attempts=0,
        idle_runs=idle,
        reminded=task.reminded and (event.final_message is None or (task.delegated and task.completion == "auto")),
        final_message=task.final_message if event.final_message is None else event.final_message,
    )
    if not event.tick:
        return _rest(over)
    children = tuple(WaitFor(kind="subtask", ref=child.id) for child in task.children if child.holds)
    wait = Wait(on=children or (WaitFor(kind="tick", ref="tick"),), since=entry.at)
    return _to(replace(over, wait=wait), State.WAITING)


def _claimed(task: Task, event: ev.CompletionClaimed) -> Task:
    """Every criterion is looked at afresh, but for what a person has waived."""
    acceptance = tuple(item if item.status == "waived" else replace(item, status="unchecked", evidence=None, by=None) for item in task.acceptance)
    outputs = task.completion_outputs if event.outputs is None else {**(task.completion_outputs or {}), **event.outputs}
    return replace(
        _run_over(task, event.tool_summary),
        state=State.VERIFYING,
        vouched=task.vouched and event.run_id is not None,
        paused_from=None,
        wait=None,
        acceptance=acceptance,
        completion_outputs=outputs,
        summary=task.summary if event.summary is None else event.summary,
        final_message=task.final_message if event.final_message is None else event.final_message,
    )


def _rejected(task: Task, event: ev.AcceptanceRejected, entry: ev.Entry) -> Task:
    if event.told:
        return replace(task, output_asks=task.output_asks + 1, counts=replace(task.counts, updates=task.counts.updates + 1))
    if event.message is None:
        queued = _queue(task, entry, event.update_id, "acceptance", "\n".join(f"- {gap}" for gap in event.gaps))
    else:
        queued = _queue(task, entry, event.update_id, "rejection", event.message)
    if event.missing_outputs:
        return replace(queued, output_asks=task.output_asks + 1)
    return replace(_to(queued, State.PENDING), rounds=task.rounds + 1)


def _with_criterion(task: Task, criterion_id: str, change: Callable[[Criterion], Criterion]) -> Task:
    return replace(task, acceptance=tuple(change(item) if item.id == criterion_id else item for item in task.acceptance))


def _ended(task: Task, state: State, entry: ev.Entry) -> Task:
    over = _spend_reserved(task)
    over = replace(over, paused_from=None, paused_by_agent=False)
    return replace(over, state=state, run=None, wait=None, questions=(), queued=(), archived_at=entry.at)
