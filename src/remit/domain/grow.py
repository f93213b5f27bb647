"""How tasks come into being: alone, under a parent, many at once, and in the place of another."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.agent import matching
from remit.domain.create import NewIds, created, must_take_subtask, successor, within_reach
from remit.domain.decide import Context, Events, decide, fold
from remit.domain.depend import await_prerequisites, dependencies
from remit.domain.need import (
    Asking,
    Changes,
    ClaimedKey,
    Dependents,
    Fresh,
    FreshMany,
    Granted,
    KnownAgents,
    KnownGuides,
    Plan,
    below,
    planned,
    the_task,
)
from remit.domain.policy import must_live
from remit.domain.record import replace
from remit.domain.run import fenced
from remit.domain.series import live_of_series, recurs, series_of
from remit.domain.value import Child, Dependency, Task
from remit.domain.wire import plain
from remit.errors import Conflict, NotFound, invalid, unknown

GUIDE, KEY = "guide/", "key/"
CALL = "call:"


def key_stream(actor: str, key: str) -> str:
    """Where the claim of an idempotency key is kept; an actor has no slash in its name."""
    return f"{KEY}{actor}/{key}"


def create(command: cmd.CreateTask | cmd.CreateSubtask, context: Context) -> Asking[Plan]:
    """One new task, or the one that its idempotency key already stands for."""
    guards: frozenset[str] = frozenset()
    claim = yield from _claimed(command, context)
    if claim is not None and (known := claim[1]) is not None:
        return Plan(task_id=known, events={})
    parent: Task | None = None
    if isinstance(command, cmd.CreateSubtask):
        parent = yield from the_task(command.task_id)
        fenced(parent, context.run_id)
        must_live(parent)
        must_take_subtask(parent, command, context.actor)
        command, parent = yield from _within_reach(command, parent)
    if command.owner is not None:
        command = replace(command, owner=(yield from the_agent(command.owner)))
    if command.tsgs:
        yield from must_be_guides(command.tsgs)
    if command.depends_on:
        depends_on, guards = yield from dependencies(command.depends_on, None, parent)
        command = replace(command, depends_on=depends_on)
    created(command, NewIds(id="0", uid="", thread_id=""), context.actor, parent)
    ids: NewIds = yield Fresh()
    made = created(command, ids, context.actor, parent, context.acting_task_id, context.via)
    events: dict[str, tuple[Any, ...]] = {ids.id: (made,)}
    if made.awaited:
        awaited = yield from await_prerequisites(command.depends_on, context)
        events |= {stream: tuple(found) for stream, found in awaited.items() if found}
    if parent is not None and isinstance(command, cmd.CreateSubtask):
        events[parent.id] = (ev.SubtaskLinked(child_id=ids.id, step_index=command.step_index, wait=command.wait),)
    if claim is not None and command.idempotency_key is not None:
        events[key_stream(context.actor, command.idempotency_key)] = (ev.KeyClaimed(key=command.idempotency_key, body_hash=claim[0], task_id=ids.id),)
    return Plan(task_id=ids.id, events=events, guards=guards)


def _within_reach(command: cmd.CreateSubtask, parent: Task) -> Asking[tuple[cmd.CreateSubtask, Task]]:
    owner: str = yield from the_agent(command.owner)
    mine: tuple[str, ...] = yield Granted(agent_id=owner, tools=command.tools)
    theirs = parent.tools.allow
    if parent.owner is not None:
        theirs = yield Granted(agent_id=parent.owner, tools=parent.tools)
    return within_reach(replace(command, owner=owner), mine, parent, theirs)


def delegate(command: cmd.Delegate, context: Context) -> Asking[Plan]:
    """All subtasks in one commit with what waits for them: a thousand of them change their parent once."""
    parent = yield from the_task(command.task_id)
    fenced(parent, context.run_id)
    must_live(parent)
    guards: frozenset[str] = frozenset()
    wanted: list[tuple[cmd.CreateSubtask, Task]] = []
    reached = parent
    for subtask in command.subtasks:
        must_take_subtask(reached, subtask, context.actor)
        made, above = yield from _within_reach(subtask, parent)
        if made.depends_on:
            depends_on, looked_at = yield from dependencies(made.depends_on, None, parent)
            made, guards = replace(made, depends_on=depends_on), guards | looked_at
        if made.tsgs:
            yield from must_be_guides(made.tsgs)
        created(made, NewIds(id="0", uid="", thread_id=""), context.actor, above)
        wanted.append((made, above))
        reached = _with_child(reached, made)
    fresh: list[NewIds] = yield FreshMany(count=len(wanted))
    events: dict[str, tuple[Any, ...]] = {}
    linked: Events = []
    for (made, above), ids in zip(wanted, fresh, strict=True):
        events[ids.id] = (created(made, ids, context.actor, above, context.acting_task_id),)
        linked.append(ev.SubtaskLinked(child_id=ids.id, step_index=made.step_index, wait=made.wait))
    waits: Events = [
        ev.SubtaskAwaited(child_id=child, call_id=subtask.idempotency_key)
        for child, subtask in zip(events, command.subtasks, strict=True)
        if subtask.wait == "block"
    ]
    prerequisites = [item for made, _ in wanted for item in made.depends_on]
    awaited = yield from await_prerequisites(prerequisites, context)
    events |= {stream: tuple(found) for stream, found in awaited.items() if found}
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
    # A delegation is the same request as the create_task that it stands for, also for keys from before it had its own command.
    kind = cmd.CreateTask if type(command) is cmd.CreateDelegated else type(command)
    body = json.dumps([kind.__name__, plain(replace(command, idempotency_key=None))], sort_keys=True)
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


def create_guide(command: cmd.CreateGuide) -> Asking[Plan]:
    """A new guide; its id comes from its title where none is given."""
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


def rerun(command: cmd.RerunTask) -> Asking[Plan]:
    """A successor of a task that has ended, for the same owner; where its series continues anyway, the successor runs once."""
    task = yield from the_task(command.task_id)
    if not task.state.terminal:
        hint = "Only an ended task can be done again: cancel it with cancel_task first."
        raise Conflict(f"Task {task.id} is {task.state.value}, not ended.", hint=hint)
    live = yield from live_of_series(task)
    once = replace(task, schedule=None) if live is not None else task
    return (yield from _succeed(replace(once, series_id=None), task.owner, {}))


def hand_off(task: Task, command: cmd.UpdateTask, context: Context) -> Asking[Plan]:
    """A started task keeps its owner: another owner means a successor, and this one is canceled without cascade."""
    if command.status is not None:
        raise invalid("status", "is given with a new owner", "one of them, since the new owner gets a new task")
    rest = decide(task, replace(command, owner=None), context)
    changed = fold(task, rest, context)
    if recurs(changed):
        changed = replace(changed, series_id=series_of(changed))
    return (yield from _succeed(changed, command.owner, {task.id: rest}))


def _succeed(task: Task, owner: str | None, changes: Changes) -> Asking[Plan]:
    """Everything that pointed at the old task points at the new one, in one commit."""
    parent: Task | None = (yield from the_task(task.parent_id, "parent_id")) if task.parent_id else None
    parent = None if parent is None or parent.state.terminal else parent
    alive = {child.id: child for child in (yield from below(task)) if not child.state.terminal}
    live = [child for child in task.children if child.id in alive]
    dependents: tuple[Task, ...] = yield Dependents(task_id=task.id)
    waiting = [other for other in dependents if other.started_at is None and not other.state.terminal]
    ids: NewIds = yield Fresh()
    link = parent.child(task.id) if parent else None
    place = task if link else replace(task, step_index=None)
    made: Events = [successor(place, ids, owner, parent)]
    changes[ids.id] = made + [ev.SubtaskLinked(child_id=child.id, wait=child.wait) for child in live]
    changes |= _moved(task, alive.values(), ids.id, root=parent is None and task.parent_id is not None)
    changes |= {other.id: [ev.DependenciesChanged(depends_on=_redirected(other, task.id, ids.id))] for other in waiting}
    if parent is not None:
        linked = ev.SubtaskLinked(child_id=ids.id, step_index=place.step_index)
        linked = replace(linked, wait=link.wait, replaces=task.id) if link else linked
        changes[parent.id] = [*changes.get(parent.id, []), linked]
    if not task.state.terminal:
        ended: Events = [ev.TaskSuperseded(by=ids.id), ev.TaskCanceled(reason="superseded")]
        changes[task.id] = [*changes.get(task.id, []), *ended]
    return replace(planned(ids.id, changes), dependents=((task.id, len(dependents)),))


def _moved(task: Task, alive: Iterable[Task], new: str, *, root: bool) -> Changes:
    """What was below a task is below its successor; where that is a new root, everything is in another tree."""
    if not root:
        return {child.id: [ev.ParentReplaced(parent_id=new)] for child in alive if child.parent_id == task.id}
    parents = {child.id: new if child.parent_id in (task.id, None) else child.parent_id for child in alive}
    return {child.id: [ev.ParentReplaced(parent_id=parents[child.id], root_id=new, depth=child.depth - task.depth)] for child in alive}


def _redirected(task: Task, old: str, new: str) -> tuple[Dependency, ...]:
    return tuple(replace(item, task_id=new) if item.task_id == old else item for item in task.depends_on)


def the_agent(owner: str) -> Asking[str]:
    """The agent that a name means; never another one in its place."""
    known: frozenset[str] = yield KnownAgents()
    found = matching(owner, known)
    if found is None:
        raise unknown("owner", "agent", owner, known)
    return found


def must_be_guides(ids: tuple[str, ...]) -> Asking[None]:
    """Refuse guides that nobody has written."""
    known: frozenset[str] = yield KnownGuides(ids=ids)
    if missing := [guide_id for guide_id in ids if guide_id not in known]:
        raise NotFound(f"There is no guide {', '.join(missing)}.", hint="list_guides shows what there is.", details={"guides": missing})
