"""What a command does to all the tasks it touches, decided without any input or output.

`plan` is a generator: it yields what it needs to know (`Load`, `Dependents`, …), is sent the answer, and returns a
`Plan`: the events of each stream, and the streams that must not have changed meanwhile.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.agent import matching
from remit.domain.check import sought
from remit.domain.create import NewIds, created, must_take_subtask, successor
from remit.domain.decide import Context, Events, TaskCommand, decide, fold
from remit.domain.due import ends_at
from remit.domain.output import Files, Sought, gaps, handed_files, refusal
from remit.domain.policy import must_live, waits_for_person
from remit.domain.record import record, replace
from remit.domain.run import fenced
from remit.domain.value import TASK_ID, Child, Dependency, State, Task, Tools
from remit.domain.wire import plain
from remit.errors import Conflict, InvalidParam, NotFound, invalid

GUIDE, KEY = "guide/", "key/"
CALL = "call:"
"""How the key of a subtask begins that answers a tool call: its parent knows it by that, and nobody can claim it."""


@record
class Load:
    """Tasks by id or uid; the answer maps each of them to its task, or to nothing."""

    refs: tuple[str, ...]


@record
class Dependents:
    """Every task that ever named one as a dependency; the commit checks that there are no more of them by then."""

    task_id: str


@record
class EndedChildren:
    """The subtasks of a task that have ended, by id."""

    task_id: str


@record
class KnownGuides:
    """Which of these guides exist."""

    ids: tuple[str, ...]


@record
class Ends:
    """How each of these tasks has ended; of thousands of them nothing else is worth holding."""

    ids: tuple[str, ...]


class End(NamedTuple):
    """How a task has ended."""

    state: State
    summary: str | None
    failure_reason: str | None


@record
class KnownAgents:
    """Which agents exist."""


@record
class Granted:
    """The tools that an agent has under a grant."""

    agent_id: str
    tools: Tools


@record
class ClaimedKey:
    """What an idempotency key stands for, if anything."""

    stream: str


@record
class Answer:
    """What is known of a question that is not open any more."""

    interaction_id: str


@record
class SeenFiles:
    """What is seen of files of the workspace; nothing of what nobody could look for."""

    files: tuple[Sought, ...]


@record
class Fresh:
    """Ids for a new task; asked for last, so that a refused request uses none up."""


@record
class FreshMany:
    """Ids for several new tasks at once, in order."""

    count: int


Need = Load | Dependents | EndedChildren | Ends | KnownGuides | KnownAgents | Granted | ClaimedKey | Answer | SeenFiles | Fresh | FreshMany


@record
class Plan:
    """The events of each stream, in the order they are appended.

    Nothing may have changed in `guards` meanwhile, and no more tasks may depend on those in `dependents` than it says.
    """

    task_id: str = ""
    events: Mapping[str, tuple[ev.Event | ev.GuideCreated | ev.KeyClaimed, ...]]
    guards: frozenset[str] = frozenset()
    dependents: tuple[tuple[str, int], ...] = ()
    wakes: frozenset[str] = frozenset()
    """Guarded tasks that can run from now on although nothing of them has changed."""
    refused: InvalidParam | None = None
    """What whoever asked is told once the events are stored: that it was refused is one of them."""


T = TypeVar("T")
Asking = Generator[Need, Any, T]
Changes = dict[str, Events]


def plan(command: cmd.Command, context: Context) -> Asking[Plan]:
    """Decide a command; the answers to what it yields make it a pure function."""
    if context.run_id is None:
        return (yield from _decided(command, context))
    mine = yield from _task(context.run_id.rpartition("-r")[0], "run_id")
    fenced(mine, context.run_id)
    about = getattr(command, "task_id", None) in (mine.id, mine.uid)
    decided = yield from _decided(command, context if about else replace(context, run_id=None))
    return replace(decided, guards=decided.guards | {mine.id})


def _decided(command: cmd.Command, context: Context) -> Asking[Plan]:
    match command:
        case cmd.CreateGuide():
            return (yield from _create_guide(command))
        case cmd.CreateTask() | cmd.CreateSubtask():
            return (yield from _create(command, context))
        case cmd.RerunTask():
            return (yield from _rerun(command))
        case cmd.Respond():
            return (yield from _respond(command, context))
        case cmd.Delegate():
            return (yield from _delegate(command, context))
        case cmd.SettleSubtasks():
            return (yield from _settle_all(command, context))
        case cmd.EndTime():
            return (yield from _end_time(command, context))
        case cmd.ReleaseDependents():
            return (yield from _release(command, context))
        case _:
            task = yield from _task(command.task_id)
            return (yield from _change(task, command, context))


def key_stream(actor: str, key: str) -> str:
    """Where the claim of an idempotency key is kept; an actor has no slash in its name."""
    return f"{KEY}{actor}/{key}"


def _task(ref: str, field: str = "task_id") -> Asking[Task]:
    found = (yield Load(refs=(ref,)))[ref]
    if found is None:
        raise NotFound(f"There is no task {ref}.", hint="list_tasks and list_history show what there is.", details={field: ref})
    return cast("Task", found)


def _reachable(start: Iterable[str], following: Callable[[Task], Iterable[str]]) -> Asking[list[Task]]:
    """Every task that can be reached from some; each says itself where to go on, so that its version guards the answer."""
    reached: dict[str, Task] = {}
    edge = tuple(dict.fromkeys(start))
    while edge:
        found: Mapping[str, Task | None] = yield Load(refs=edge)
        reached |= {task.id: task for task in found.values() if task is not None}
        onward = (task_id for task in found.values() if task is not None for task_id in following(task))
        edge = tuple(dict.fromkeys(task_id for task_id in onward if task_id not in reached))
    return list(reached.values())


def _change(task: Task, command: TaskCommand, context: Context) -> Asking[Plan]:
    guards: frozenset[str] = frozenset()
    match command:
        case cmd.UpdateTask(owner=owner, depends_on=asked):
            must_live(task)
            if owner is not None and owner != task.owner:
                owner = yield from _agent(owner)
                command = replace(command, owner=owner)
            handed = owner is not None and owner != task.owner
            if asked is not None:
                depends_on, guards = yield from _dependencies(asked, task)
                command = replace(command, depends_on=depends_on)
            if handed and task.started_at is not None:
                return (yield from _hand_off(task, command, context))
        case cmd.AttachTsg(tsg_id=guide_id):
            yield from _must_be_guides((guide_id,))
        case cmd.StartRun() | cmd.RunTask():
            events = decide(task, command, context)
            yield from _must_be_ready(task, context, now=isinstance(command, cmd.RunTask))
            if isinstance(command, cmd.RunTask) and task.schedule is not None and task.schedule.not_before is not None:
                events = [*events, ev.ScheduleChanged(schedule=replace(task.schedule, not_before=None))]
            now = isinstance(command, cmd.RunTask) and task.state is State.PENDING
            return replace(_plan(task.id, {task.id: events}, frozenset({task.id})), wakes=frozenset({task.id}) if now else frozenset())
        case cmd.DeliverUpdates(session_id=str()) if task.state is State.PENDING and task.started_at is None:
            if _early(task, context) or (yield from _blocked_by(task)):
                decide(task, command, context)
                return Plan(task_id=task.id, events={})
        case cmd.AwaitSubtask(child_id=ref):
            child = yield from _task(ref, "child_id")
            command = replace(command, child_id=child.id)
            guards = frozenset({child.id})
            if decide(task, command, context) and child.state.terminal:
                return Plan(task_id=task.id, events={})
        case _:
            pass
    context = yield from _with_files(task, command, context)
    changes: Changes = {task.id: decide(task, command, context)}
    if isinstance(command, cmd.CompleteTask) and any(isinstance(event, ev.AcceptanceRejected) and event.told for event in changes[task.id]):
        return replace(_plan(task.id, changes), refused=refusal(task, gaps(task, command.outputs, context.files)))
    if _canceled(changes[task.id]):
        below = yield from _below(task)
        changes |= {child.id: [ev.TaskCanceled(reason="parent")] for child in below if not child.state.terminal}
    return _plan(task.id, changes, guards)


def _with_files(task: Task, command: TaskCommand, context: Context) -> Asking[Context]:
    """Have the files looked for that a claim of completion hands over, or that its criteria are about."""
    match command:
        case cmd.CompleteTask(outputs=given) | cmd.FinishRun(outputs=given):
            wanted = handed_files(task, given)
        case cmd.UpdateTask(status="done", outputs=outputs):
            wanted = handed_files(task if outputs is None else replace(task, outputs=outputs), None)
        case cmd.CheckCriteria() if task.state is State.VERIFYING:
            wanted = sought(task)
        case _:
            return context
    if not wanted:
        return context
    found: Files = yield SeenFiles(files=wanted)
    return replace(context, files=found)


def _below(task: Task) -> Asking[list[Task]]:
    """Every task under one; what has moved to a successor is not under it any more."""
    reached: list[Task] = []
    edge = [task]
    while edge:
        parents = {child.id: parent.id for parent in edge for child in parent.children}
        found: Mapping[str, Task | None] = yield Load(refs=tuple(parents))
        edge = [child for child in found.values() if child is not None and child.parent_id == parents[child.id]]
        reached += edge
    return reached


def _plan(task_id: str, changes: Mapping[str, Events], guards: frozenset[str] = frozenset()) -> Plan:
    return Plan(task_id=task_id, events={stream: tuple(events) for stream, events in changes.items() if events}, guards=guards)


def _canceled(events: Iterable[object]) -> bool:
    return any(isinstance(event, ev.TaskCanceled) for event in events)


def _settle_all(command: cmd.SettleSubtasks, context: Context) -> Asking[Plan]:
    """What a parent learns of its ended subtasks, all at once: a thousand that end together are a few commits, not a thousand."""
    parent = yield from _task(command.task_id)
    if parent.state.terminal:
        return Plan(task_id=parent.id, events={})
    ended: frozenset[str] = yield EndedChildren(task_id=parent.id)
    news = tuple(child.id for child in parent.children if child.settled is None and child.wait != "none" and child.id in ended)
    ends: Mapping[str, End] = yield Ends(ids=news)
    told = [event for child_id, end in ends.items() for event in decide(parent, _settled(parent.id, child_id, end), context)]
    if parent.wait is not None and any(item.ref not in ends for item in parent.wait.on):
        after = fold(parent, told, context)
        held = yield from _is_held(after)
        if held != after.held:
            told.append(ev.ClockStopped() if held else ev.ClockStarted())
    return _plan(parent.id, {parent.id: told})


def _is_held(task: Task) -> Asking[bool]:
    """True if a task waits for subtasks alone, and all of them for a person; the first that does not is enough to know."""
    if task.wait is None or not all(item.kind == "subtask" and item.call_id is not None for item in task.wait.on):
        return False
    for item in task.wait.on:
        child = yield from _task(item.ref)
        if not waits_for_person(child):
            return False
    return True


def _end_time(command: cmd.EndTime, context: Context) -> Asking[Plan]:
    """A task that waits for subtasks fails when its time is up; what they do goes on, within limits of their own."""
    task = yield from _task(command.task_id)
    end = ends_at(task, command.seconds)
    if end is None or end > context.now:
        return Plan(task_id=task.id, events={})
    abort = cmd.AbortTask(task_id=task.id, reason="timeout", message=f"The time limit of {command.seconds:g} seconds is reached.")
    return _plan(task.id, {task.id: decide(task, abort, context)})


def _settled(parent_id: str, child_id: str, end: End) -> cmd.SettleSubtask:
    state = cast("Any", end.state.value)
    return cmd.SettleSubtask(task_id=parent_id, child_id=child_id, state=state, summary=end.summary, failure_reason=end.failure_reason)


# New tasks.


def _create(command: cmd.CreateTask | cmd.CreateSubtask, context: Context) -> Asking[Plan]:
    guards: frozenset[str] = frozenset()
    claim = yield from _claimed(command, context)
    if claim is not None and (known := claim[1]) is not None:
        return Plan(task_id=known, events={})
    parent: Task | None = None
    if isinstance(command, cmd.CreateSubtask):
        parent = yield from _task(command.task_id)
        fenced(parent, context.run_id)
        must_live(parent)
        must_take_subtask(parent, command, context.actor)
        command, parent = yield from _within_reach(command, parent)
    if command.owner is not None:
        command = replace(command, owner=(yield from _agent(command.owner)))
    if command.tsgs:
        yield from _must_be_guides(command.tsgs)
    if command.depends_on:
        depends_on, guards = yield from _dependencies(command.depends_on, None, parent)
        command = replace(command, depends_on=depends_on)
    created(command, NewIds(id="0", uid="", thread_id=""), context.actor, parent)
    ids: NewIds = yield Fresh()
    events: dict[str, tuple[Any, ...]] = {ids.id: (created(command, ids, context.actor, parent),)}
    if parent is not None and isinstance(command, cmd.CreateSubtask):
        events[parent.id] = (ev.SubtaskLinked(child_id=ids.id, step_index=command.step_index, wait=command.wait),)
    if claim is not None and command.idempotency_key is not None:
        events[key_stream(context.actor, command.idempotency_key)] = (ev.KeyClaimed(key=command.idempotency_key, body_hash=claim[0], task_id=ids.id),)
    return Plan(task_id=ids.id, events=events, guards=guards)


def _within_reach(command: cmd.CreateSubtask, parent: Task) -> Asking[tuple[cmd.CreateSubtask, Task]]:
    """A subtask's tools are its agent's own, or what is asked, and never more than its parent really has."""
    owner: str = yield from _agent(command.owner)
    mine: tuple[str, ...] = yield Granted(agent_id=owner, tools=command.tools)
    command = replace(command, owner=owner, tools=replace(command.tools, allow=mine))
    if parent.owner is None:
        return command, parent
    theirs: tuple[str, ...] = yield Granted(agent_id=parent.owner, tools=parent.tools)
    return command, replace(parent, tools=replace(parent.tools, allow=theirs))


def _delegate(command: cmd.Delegate, context: Context) -> Asking[Plan]:
    """All subtasks in one commit with what waits for them: a thousand of them change their parent once."""
    parent = yield from _task(command.task_id)
    fenced(parent, context.run_id)
    must_live(parent)
    guards: frozenset[str] = frozenset()
    wanted: list[tuple[cmd.CreateSubtask, Task]] = []
    reached = parent
    for subtask in command.subtasks:
        must_take_subtask(reached, subtask, context.actor)
        made, above = yield from _within_reach(subtask, parent)
        if made.depends_on:
            depends_on, looked_at = yield from _dependencies(made.depends_on, None, parent)
            made, guards = replace(made, depends_on=depends_on), guards | looked_at
        if made.tsgs:
            yield from _must_be_guides(made.tsgs)
        created(made, NewIds(id="0", uid="", thread_id=""), context.actor, above)
        wanted.append((made, above))
        reached = _with_child(reached, made)
    fresh: list[NewIds] = yield FreshMany(count=len(wanted))
    events: dict[str, tuple[Any, ...]] = {}
    linked: Events = []
    for (made, above), ids in zip(wanted, fresh, strict=True):
        events[ids.id] = (created(made, ids, context.actor, above),)
        linked.append(ev.SubtaskLinked(child_id=ids.id, step_index=made.step_index, wait=made.wait))
    waits: Events = [
        ev.SubtaskAwaited(child_id=child, call_id=subtask.idempotency_key)
        for child, subtask in zip(events, command.subtasks, strict=True)
        if subtask.wait == "block"
    ]
    events[parent.id] = (*linked, *waits)
    return Plan(task_id=parent.id, events=events, guards=guards)


def _with_child(parent: Task, made: cmd.CreateSubtask) -> Task:
    """A parent as it will be with one more subtask, so that the next one is judged by that."""
    steps = tuple(replace(step, task_id="0") if index == made.step_index else step for index, step in enumerate(parent.steps))
    return replace(parent, steps=steps, children=(*parent.children, Child(id="0", wait=made.wait)))


def _claimed(command: cmd.CreateTask | cmd.CreateSubtask, context: Context) -> Asking[tuple[str, str | None] | None]:
    """The hash of the body, and the task its key already stands for."""
    if command.idempotency_key is None:
        return None
    body = json.dumps([type(command).__name__, plain(replace(command, idempotency_key=None))], sort_keys=True)
    body_hash = hashlib.sha256(body.encode()).hexdigest()
    claim: ev.KeyClaimed | None = yield ClaimedKey(stream=key_stream(context.actor, command.idempotency_key))
    if claim is None:
        return body_hash, None
    if claim.body_hash != body_hash:
        raise Conflict(
            f"The idempotency key {command.idempotency_key!r} stands for task {claim.task_id}, which was made from another body.",
            hint="Use a new key for a new task.",
            details={"task_id": claim.task_id},
        )
    return body_hash, claim.task_id


def _agent(owner: str) -> Asking[str]:
    """The agent that a name means; never another one in its place."""
    known: frozenset[str] = yield KnownAgents()
    found = matching(owner, known)
    if found is None:
        raise invalid("owner", f"is {owner!r}, which is no known agent", f"one of {', '.join(sorted(known))}")
    return found


def _must_be_guides(ids: tuple[str, ...]) -> Asking[None]:
    known: frozenset[str] = yield KnownGuides(ids=ids)
    if unknown := [guide_id for guide_id in ids if guide_id not in known]:
        raise NotFound(f"There is no guide {', '.join(unknown)}.", hint="list_guides shows what there is.", details={"guides": unknown})


def _create_guide(command: cmd.CreateGuide) -> Asking[Plan]:
    guide_id = command.id or _slug(command.title)
    known: frozenset[str] = yield KnownGuides(ids=(guide_id,))
    if guide_id in known:
        raise Conflict(f"There is a guide {guide_id} already.", hint="Give another id.", details={"guide_id": guide_id})
    return Plan(events={GUIDE + guide_id: (ev.GuideCreated(id=guide_id, title=command.title, body=command.body),)})


def _slug(title: str) -> str:
    ascii_title = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_title).strip("-")[:64].strip("-")
    if not slug:
        raise invalid("id", "is missing and the title has no letters to make one of", "an id such as disk-full")
    return slug


# Dependencies.


def _dependencies(
    asked: tuple[Dependency, ...], task: Task | None, parent: Task | None = None
) -> Asking[tuple[tuple[Dependency, ...], frozenset[str]]]:
    """The dependencies by id, each once, if they exist, can be met, and close no circle.

    The second part names the tasks looked at: they must be unchanged at the commit, so that two requests cannot close
    a circle together, and none is handed off unnoticed.
    """
    found: Mapping[str, Task | None] = yield Load(refs=tuple(item.task_id for item in asked))
    unique: dict[str, Dependency] = {}
    for index, item in enumerate(asked):
        other = found[item.task_id]
        if other is None:
            raise invalid(f"depends_on[{index}]", f"is {item.task_id}, which is no task", "the id of an existing task")
        if other.state in (State.FAILED, State.CANCELED) and item.on == "done":
            expected = "a task that can still be done, or on: settled"
            raise invalid(f"depends_on[{index}]", f"is task {other.id}, which is {other.state.value} and will never be done", expected)
        unique[other.id] = Dependency(task_id=other.id, on=item.on)
    above = yield from _ancestors(parent if task is None else task)
    upstream = yield from _reachable(unique, lambda item: [other.task_id for other in item.depends_on])
    if task is not None and any(item.id == task.id for item in upstream):
        raise invalid("depends_on", f"makes task {task.id} wait for itself", "no circle of dependencies", task_id=task.id)
    if held := next((ancestor for ancestor in above if ancestor in unique), None):
        raise invalid("depends_on", f"names task {held}, which this task is a part of", "tasks outside its own ancestors")
    return tuple(unique.values()), frozenset(item.id for item in upstream)


def _ancestors(task: Task | None) -> Asking[tuple[str, ...]]:
    """The tasks above one, and for a subtask to be made its parent itself."""
    above: list[str] = []
    while task is not None:
        above.append(task.id)
        task = (yield from _task(task.parent_id, "parent_id")) if task.parent_id else None
    return tuple(above)


def _must_be_ready(task: Task, context: Context, *, now: bool) -> Asking[None]:
    """Refuse to start what is blocked; `now` overrides only the clock."""
    if task.session_id is not None:
        raise Conflict(f"Task {task.id} is worked on by session {task.session_id} and gets no run.", details={"session_id": task.session_id})
    if task.owner is None:
        raise Conflict(f"Task {task.id} has no owner.", hint="Give it one with update_task.")
    if not now and (early := _early(task, context)):
        raise Conflict(f"Task {task.id} may not start before {early.isoformat()}.")
    if task.started_at is None and (blocked := (yield from _blocked_by(task))):
        raise Conflict(f"Task {task.id} waits for task {', '.join(blocked)}.", details={"blocked_by": blocked})


def _early(task: Task, context: Context) -> datetime | None:
    """When a task may start, if that is still to come."""
    start = task.schedule.not_before if task.schedule is not None else None
    return start if start is not None and start > context.now else None


def _blocked_by(task: Task) -> Asking[list[str]]:
    found: Mapping[str, Task | None] = yield Load(refs=tuple(item.task_id for item in task.depends_on))
    return [item.task_id for item in task.depends_on if not met(item, found[item.task_id])]


def met(dependency: Dependency, other: Task | None) -> bool:
    """True once a dependency no longer holds its task back."""
    return other is not None and (other.state is State.DONE or (dependency.on == "settled" and other.state.terminal))


def _release(command: cmd.ReleaseDependents, context: Context) -> Asking[Plan]:
    """Whoever waited for a task that ended is ready once nothing else holds it, and fails if this could never be met."""
    done = yield from _task(command.task_id)
    dependents: tuple[Task, ...] = yield Dependents(task_id=done.id)
    changes: Changes = {}
    ready: set[str] = set()
    for task in dependents:
        if task.started_at is not None or task.state.terminal:
            continue
        if any(item.task_id == done.id and not met(item, done) for item in task.depends_on):
            message = f"Task {done.id}, which had to be done first, is {done.state.value}."
            changes[task.id] = decide(task, cmd.AbortTask(task_id=task.id, reason="dependency", message=message), context)
        elif not (yield from _blocked_by(task)):
            ready.add(task.id)
    return replace(_plan(done.id, changes, frozenset(ready)), wakes=frozenset(ready))


# Successors.


def _rerun(command: cmd.RerunTask) -> Asking[Plan]:
    task = yield from _task(command.task_id)
    if not task.state.terminal:
        raise Conflict(f"Task {task.id} is {task.state.value}, not ended.", hint="Use run_task to run it now, or cancel it first.")
    return (yield from _succeed(task, task.owner, {}))


def _hand_off(task: Task, command: cmd.UpdateTask, context: Context) -> Asking[Plan]:
    """A started task keeps its owner: another owner means a successor, and this one is canceled without cascade."""
    if command.status is not None:
        raise invalid("status", "is given with a new owner", "one of them, since the new owner gets a new task")
    rest = decide(task, replace(command, owner=None), context)
    changed = fold(task, rest, context)
    return (yield from _succeed(changed, command.owner, {task.id: rest}))


def _succeed(task: Task, owner: str | None, changes: Changes) -> Asking[Plan]:
    """Everything that pointed at the old task points at the new one, in one commit."""
    parent: Task | None = (yield from _task(task.parent_id, "parent_id")) if task.parent_id else None
    parent = None if parent is None or parent.state.terminal else parent
    below = {child.id: child for child in (yield from _below(task)) if not child.state.terminal}
    live = [child for child in task.children if child.id in below]
    dependents: tuple[Task, ...] = yield Dependents(task_id=task.id)
    waiting = [other for other in dependents if other.started_at is None and not other.state.terminal]
    ids: NewIds = yield Fresh()
    link = parent.child(task.id) if parent else None
    place = task if link else replace(task, step_index=None)
    made: Events = [successor(place, ids, owner, parent)]
    changes[ids.id] = made + [ev.SubtaskLinked(child_id=child.id, wait=child.wait) for child in live]
    changes |= _moved(task, below.values(), ids.id, root=parent is None and task.parent_id is not None)
    changes |= {other.id: [ev.DependenciesChanged(depends_on=_redirected(other, task.id, ids.id))] for other in waiting}
    if parent is not None:
        linked = ev.SubtaskLinked(child_id=ids.id, step_index=place.step_index)
        linked = replace(linked, wait=link.wait, replaces=task.id) if link else linked
        changes[parent.id] = [*changes.get(parent.id, []), linked]
    if not task.state.terminal:
        ended: Events = [ev.TaskSuperseded(by=ids.id), ev.TaskCanceled(reason="superseded")]
        changes[task.id] = [*changes.get(task.id, []), *ended]
    return replace(_plan(ids.id, changes), dependents=((task.id, len(dependents)),))


def _moved(task: Task, below: Iterable[Task], new: str, *, root: bool) -> Changes:
    """What was below a task is below its successor; where that is a new root, everything is in another tree."""
    if not root:
        return {child.id: [ev.ParentReplaced(parent_id=new)] for child in below if child.parent_id == task.id}
    parents = {child.id: new if child.parent_id in (task.id, None) else child.parent_id for child in below}
    return {child.id: [ev.ParentReplaced(parent_id=parents[child.id], root_id=new, depth=child.depth - task.depth)] for child in below}


def _redirected(task: Task, old: str, new: str) -> tuple[Dependency, ...]:
    return tuple(replace(item, task_id=new) if item.task_id == old else item for item in task.depends_on)


# Questions.


def _respond(command: cmd.Respond, context: Context) -> Asking[Plan]:
    task_id = command.interaction_id.partition("-q")[0]
    task = (yield Load(refs=(task_id,)))[task_id] if re.fullmatch(TASK_ID, task_id) else None
    answer: Mapping[str, Any] | None = None if task is None else (yield Answer(interaction_id=command.interaction_id))
    if task is None or answer is None:
        raise NotFound(f"There is no interaction {command.interaction_id}.", hint="list_interactions shows the open ones.")
    if answer["status"] != "open":
        told = f"was answered by {answer['answered_by']}" if answer["status"] == "answered" else "was closed when its task ended"
        raise Conflict(f"Interaction {command.interaction_id} {told}.", details=dict(answer))
    return (yield from _change(task, command, context))
