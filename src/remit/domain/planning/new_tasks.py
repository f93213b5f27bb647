"""Create tasks: single tasks, subtasks, many subtasks at once, and successors."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from remit.domain.agents.agent import matching
from remit.domain.decisions.context import Context, Events
from remit.domain.decisions.creation import (
    NewIds,
    creation_event,
    list_tools,
    must_accept_subtask,
    passed_on,
    successor_event,
)
from remit.domain.decisions.decide import decide
from remit.domain.decisions.evolve import fold
from remit.domain.decisions.runs import check_fence
from remit.domain.planning.dependencies import await_prerequisites, resolve_dependencies
from remit.domain.planning.lookups import (
    Changes,
    ClaimedKey,
    Dependents,
    Granted,
    KnownAgents,
    KnownGuides,
    KnownTools,
    Lookups,
    ManyTaskIds,
    NewTaskIds,
    Plan,
    descendants,
    find_task,
    live_parent,
    make_plan,
)
from remit.domain.planning.recurrence import live_of_series, must_have_slot, recurs, series_of
from remit.domain.records.pick import beyond
from remit.domain.records.record import replace
from remit.domain.records.serialize import plain
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import must_name_known_tool, must_not_be_ended
from remit.domain.task.task import Child, Dependency, State, Task
from remit.errors import Conflict, NotFound, invalid, unknown

GUIDE, KEY = "guide/", "key/"
CALL = "call:"


def key_stream(actor: str, key: str) -> str:
    """Return the stream of an idempotency key; an actor never contains a slash."""
    return f"{KEY}{actor}/{key}"


def create(command: cmd.CreateTask | cmd.CreateSubtask, context: Context) -> Lookups[Plan]:
    """Create a task, or return the one that was created with the same idempotency key."""
    body_hash, known = yield from _find_key_claim(command, context)
    if known is not None:
        return Plan(task_id=known, events={})
    parent: Task | None = None
    if isinstance(command, cmd.CreateSubtask):
        parent = yield from find_task(command.task_id)
        check_fence(parent, context.run_id)
        must_not_be_ended(parent)
        must_accept_subtask(parent, command, context.actor)
        command, parent = yield from _list_tools(command, parent)
    if command.owner is not None:
        command = replace(command, owner=(yield from find_agent(command.owner)))
    yield from must_have_guides(command.tsgs)
    depends_on, guards = yield from _resolve_new(command, parent)
    command = replace(command, depends_on=depends_on)
    creation_event(command, NewIds(id="0", uid="", thread_id=""), context.actor, parent)
    yield from must_have_slot(command.schedule, context.now)
    ids: NewIds = yield NewTaskIds()
    made = creation_event(command, ids, context.actor, parent, context.acting_task_id, context.via)
    events: dict[str, tuple[Any, ...]] = {ids.id: (made,)}
    if made.awaited:
        awaited = yield from await_prerequisites(command.depends_on, context)
        events |= make_plan(ids.id, awaited).events
    if parent is not None and isinstance(command, cmd.CreateSubtask):
        events[parent.id] = (
            ev.SubtaskLinked(child_id=ids.id, step_index=command.step_index, wait=command.wait),
        )
    if command.idempotency_key is not None:
        events[key_stream(context.actor, command.idempotency_key)] = (
            ev.KeyClaimed(key=command.idempotency_key, body_hash=body_hash, task_id=ids.id),
        )
    return Plan(task_id=ids.id, events=events, guards=guards)


def _list_tools(
    command: cmd.CreateSubtask, parent: Task
) -> Lookups[tuple[cmd.CreateSubtask, Task]]:
    owner: str = yield from find_agent(command.owner)
    granted: tuple[str, ...] = yield Granted(agent_id=owner, tools=command.tools)
    parent_tools = parent.tools.allow
    if parent.owner is not None:
        parent_tools = yield Granted(agent_id=parent.owner, tools=parent.tools)
    known: frozenset[str] = yield KnownTools()
    must_name_known_tool(command.tools, known, parent_tools or ())
    return list_tools(replace(command, owner=owner), granted, parent, parent_tools)


def delegate(command: cmd.Delegate, context: Context) -> Lookups[Plan]:
    """Create all subtasks and their waits in one commit, which changes the parent only once."""
    parent = yield from find_task(command.task_id)
    check_fence(parent, context.run_id)
    must_not_be_ended(parent)
    guards: frozenset[str] = frozenset()
    wanted: list[tuple[cmd.CreateSubtask, Task]] = []
    reached = parent
    for subtask in command.subtasks:
        must_accept_subtask(reached, subtask, context.actor)
        made, above = yield from _list_tools(subtask, parent)
        depends_on, looked_at = yield from _resolve_new(made, parent)
        made, guards = replace(made, depends_on=depends_on), guards | looked_at
        yield from must_have_guides(made.tsgs)
        yield from must_have_slot(made.schedule, context.now)
        creation_event(made, NewIds(id="0", uid="", thread_id=""), context.actor, above)
        wanted.append((made, above))
        reached = _with_child(reached, made)
    fresh: list[NewIds] = yield ManyTaskIds(count=len(wanted))
    events: dict[str, tuple[Any, ...]] = {}
    linked: Events = []
    for (made, above), ids in zip(wanted, fresh, strict=True):
        events[ids.id] = (creation_event(made, ids, context.actor, above, context.acting_task_id),)
        linked.append(ev.SubtaskLinked(child_id=ids.id, step_index=made.step_index, wait=made.wait))
    waits: Events = [
        ev.SubtaskAwaited(child_id=child, call_id=subtask.idempotency_key)
        for child, subtask in zip(events, command.subtasks, strict=True)
        if subtask.wait == "block"
    ]
    prerequisites = [item for made, _ in wanted for item in made.depends_on]
    awaited = yield from await_prerequisites(prerequisites, context)
    events |= make_plan(parent.id, awaited).events
    events[parent.id] = (*linked, *waits)
    return Plan(task_id=parent.id, events=events, guards=guards)


def _resolve_new(
    command: cmd.Brief, parent: Task | None
) -> Lookups[tuple[tuple[Dependency, ...], frozenset[str]]]:
    """Return the dependencies of a new task by id, and the ids of all tasks that were read."""
    if not command.depends_on:
        return (), frozenset()
    return (yield from resolve_dependencies(command.depends_on, None, parent))


def _with_child(parent: Task, made: cmd.CreateSubtask) -> Task:
    """Return the parent with one more subtask, to check the limits for the next one."""
    steps = tuple(
        replace(step, task_id="0") if index == made.step_index else step
        for index, step in enumerate(parent.steps)
    )
    return replace(parent, steps=steps, children=(*parent.children, Child(id="0", wait=made.wait)))


def _find_key_claim(
    command: cmd.CreateTask | cmd.CreateSubtask, context: Context
) -> Lookups[tuple[str, str | None]]:
    """Return the body hash and the task that the key already belongs to; None without one."""
    if command.idempotency_key is None:
        return "", None
    # Hash a delegation as CreateTask: keys from before CreateDelegated existed stay valid.
    kind = cmd.CreateTask if type(command) is cmd.CreateDelegated else type(command)
    body = json.dumps(
        [kind.__name__, plain(replace(command, idempotency_key=None))], sort_keys=True
    )
    body_hash = hashlib.sha256(body.encode()).hexdigest()
    claim: ev.KeyClaimed | None = yield ClaimedKey(
        stream=key_stream(context.actor, command.idempotency_key)
    )
    if claim is None:
        return body_hash, None
    if claim.body_hash != body_hash:
        raise Conflict(
            f"The idempotency key {command.idempotency_key!r} belongs to task {claim.task_id},"
            " which was created with a different body.",
            hint="Use a new key for a new task.",
            details={"task_id": claim.task_id},
        )
    return body_hash, claim.task_id


def create_guide(command: cmd.CreateGuide, _: Context) -> Lookups[Plan]:
    """Create a guide. Without an id, derive one from the title."""
    guide_id = command.id or _slug(command.title)
    known: frozenset[str] = yield KnownGuides(ids=(guide_id,))
    if guide_id in known:
        raise Conflict(
            f"Guide {guide_id} already exists.",
            hint="Use another id.",
            details={"guide_id": guide_id},
        )
    return Plan(
        events={
            GUIDE + guide_id: (
                ev.GuideCreated(id=guide_id, title=command.title, body=command.body),
            )
        }
    )


def _slug(title: str) -> str:
    ascii_title = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_title).strip("-")[:64].strip("-")
    if not slug:
        raise invalid(
            "id",
            "is missing, and the title has no letters to derive one from",
            "an id such as disk-full",
        )
    return slug


def rerun(command: cmd.RerunTask, _: Context) -> Lookups[Plan]:
    """Create a successor of an ended task for the same owner.

    If the series of the task continues anyway, the successor runs only once.
    """
    task = yield from find_task(command.task_id)
    if not task.state.terminal:
        hint = "Cancel it first with: cancel_task"
        message = f"Task {task.id} is {task.state.value}; it has not ended."
        raise Conflict(message, hint=hint, details={"task_id": task.id})
    live = yield from live_of_series(task)
    once = replace(task, schedule=None) if live is not None else task
    return (yield from _create_successor(replace(once, series_id=None), task.owner, {}))


def hand_off(task: Task, command: cmd.UpdateTask, context: Context) -> Lookups[Plan]:
    """Create a successor with the new owner and cancel the started task without cascade."""
    if command.status is not None:
        raise invalid(
            "status",
            "cannot be combined with a new owner",
            "status or owner, because the new owner gets a new task",
        )
    rest = decide(task, replace(command, owner=None), context)
    changed = fold(task, rest, context)
    if recurs(changed):
        changed = replace(changed, series_id=series_of(changed))
    return (
        yield from _create_successor(
            changed, command.owner, {task.id: rest}, keeps_tree=task.parent_id is None
        )
    )


def _create_successor(
    task: Task, owner: str | None, changes: Changes, *, keeps_tree: bool = False
) -> Lookups[Plan]:
    """Create a successor and redirect all references from the old task to it, in one commit.

    A root that is handed off keeps its tree and the usage of the tree; a rerun starts a new tree.
    The successor of a paused task is paused too.
    """
    parent = yield from live_parent(task)
    everything = yield from descendants(task)
    alive = {child.id: child for child in everything if not child.state.terminal}
    live = [child for child in task.children if child.id in alive]
    dependents: tuple[Task, ...] = yield Dependents(task_id=task.id)
    ids: NewIds = yield NewTaskIds()
    link = parent.child(task.id) if parent else None
    place = task if link else replace(task, step_index=None)
    event = successor_event(place, ids, owner, parent)
    made: Events = [replace(event, root_id=task.root_id) if keeps_tree else event]
    made += [ev.SubtaskLinked(child_id=child.id, wait=child.wait) for child in live]
    made += passed_on(task, ids.id)
    if task.state is State.PAUSED:
        made.append(ev.TaskPaused(by_agent=task.paused_by_agent))
    changes[ids.id] = made
    changes |= _move_descendants(
        task, alive.values(), ids.id, root=parent is None and not keeps_tree
    )
    changes |= {
        other.id: [_redirect_dependencies(other, task.id, ids.id)]
        for other in dependents
        if other.is_unstarted
    }
    if parent is not None:
        linked = ev.SubtaskLinked(child_id=ids.id, step_index=place.step_index)
        if link is not None:
            linked = replace(linked, wait=link.wait, replaces=task.id)
        changes[parent.id] = [*changes.get(parent.id, []), linked]
    if not task.state.terminal:
        ended: Events = [ev.TaskSuperseded(by=ids.id), ev.TaskCanceled(reason="superseded")]
        changes[task.id] = [*changes.get(task.id, []), *ended]
    return replace(make_plan(ids.id, changes), dependents=((task.id, len(dependents)),))


def _move_descendants(task: Task, alive: Iterable[Task], new: str, *, root: bool) -> Changes:
    """Move the descendants of a task to its successor, into a new tree if it is a new root."""
    if not root:
        return {
            child.id: [ev.ParentReplaced(parent_id=new)]
            for child in alive
            if child.parent_id == task.id
        }
    changes: Changes = {}
    for child in alive:
        parent_id = new if child.parent_id in (task.id, None) else child.parent_id
        depth = child.depth - task.depth
        moved = ev.ParentReplaced(parent_id=parent_id, root_id=new, depth=depth)
        changes[child.id] = [moved]
    return changes


def _redirect_dependencies(task: Task, old: str, new: str) -> ev.DependenciesChanged:
    """Let a task depend on a successor instead of the old task, in the same place."""
    depends_on = [
        replace(item, task_id=new) if item.task_id == old else item for item in task.depends_on
    ]
    return ev.DependenciesChanged(depends_on=tuple(depends_on))


def find_agent(owner: str) -> Lookups[str]:
    """Return the id of the agent with this name; refuse an unknown one."""
    known: frozenset[str] = yield KnownAgents()
    found = matching(owner, known)
    if found is None:
        raise unknown("owner", "agent", owner, known)
    return found


def must_have_guides(ids: tuple[str, ...]) -> Lookups[None]:
    """Refuse guides that do not exist."""
    if not ids:
        return
    known: frozenset[str] = yield KnownGuides(ids=ids)
    if missing := beyond(ids, known):
        raise NotFound(
            f"There is no guide {', '.join(missing)}.",
            hint="See the guides with list_guides.",
            details={"guides": missing},
        )
