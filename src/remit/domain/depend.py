"""What tasks wait for each other for: whether dependencies may be, and what follows when one has ended."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from remit.domain import command as cmd
from remit.domain.decide import Context, decide
from remit.domain.need import Asking, Changes, Dependents, Load, Plan, planned, the_task
from remit.domain.record import replace
from remit.domain.value import Dependency, State, Task
from remit.errors import Conflict, invalid


def met(dependency: Dependency, other: Task | None) -> bool:
    """True once a dependency no longer holds its task back."""
    return other is not None and (other.state is State.DONE or (dependency.on == "settled" and other.state.terminal))


def dependencies(
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


def await_prerequisites(depends_on: Iterable[Dependency], context: Context) -> Asking[Changes]:
    """Record that somebody waits for the unfinished prerequisites of an awaited task, and for theirs: none may wait for a tick."""
    upstream = yield from _reachable((item.task_id for item in depends_on), lambda item: [other.task_id for other in item.depends_on])
    unfinished = [task for task in upstream if not task.awaited and not task.state.terminal]
    outside = replace(context, run_id=None)  # the fence is that of the caller's own task
    return {task.id: decide(task, cmd.AwaitTask(task_id=task.id), outside) for task in unfinished}


def _ancestors(task: Task | None) -> Asking[tuple[str, ...]]:
    """The tasks above one, and for a subtask to be made its parent itself."""
    above: list[str] = []
    while task is not None:
        above.append(task.id)
        task = (yield from the_task(task.parent_id, "parent_id")) if task.parent_id else None
    return tuple(above)


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


def must_be_ready(task: Task, context: Context, *, now: bool) -> Asking[None]:
    """Refuse to start what is blocked; `now` overrides only the clock."""
    if task.session_id is not None:
        raise Conflict(f"Task {task.id} is worked on by session {task.session_id} and gets no run.", details={"session_id": task.session_id})
    if task.owner is None:
        raise Conflict(f"Task {task.id} has no owner.", hint="Give it one with update_task.")
    if not now and (start := early(task, context)):
        raise Conflict(f"Task {task.id} may not start before {start.isoformat()}.")
    if task.started_at is None and (blocked := (yield from _unmet(task))):
        ids = list(blocked)
        if ended := [other for other in blocked.values() if other is not None and other.state.terminal]:
            raise _never(task, ended, ids)
        raise Conflict(f"Task {task.id} waits for task {', '.join(ids)}.", details={"blocked_by": ids})


def early(task: Task, context: Context) -> datetime | None:
    """When a task may start, if that is still to come."""
    start = task.schedule.not_before if task.schedule is not None else None
    return start if start is not None and start > context.now else None


def _never(task: Task, ended: list[Task], blocked: list[str]) -> Conflict:
    """The refusal to start a task whose dependencies have ended and were not done."""
    told = ", ".join(f"task {other.id} (which is {other.state.value})" for other in ended)
    return Conflict(
        f"Task {task.id} can never start: it depends on {told}.",
        hint="Change depends_on with update_task, or cancel it. A worker fails it as soon as one runs.",
        details={"blocked_by": blocked},
    )


def blocked_by(task: Task) -> Asking[list[str]]:
    """The tasks that still hold one back."""
    return list((yield from _unmet(task)))


def _unmet(task: Task) -> Asking[dict[str, Task | None]]:
    found: Mapping[str, Task | None] = yield Load(refs=tuple(item.task_id for item in task.depends_on))
    return {item.task_id: found[item.task_id] for item in task.depends_on if not met(item, found[item.task_id])}


def release(command: cmd.ReleaseDependents, context: Context) -> Asking[Plan]:
    """Whoever waited for a task that ended is ready once nothing else holds it, and fails if this could never be met."""
    done = yield from the_task(command.task_id)
    dependents: tuple[Task, ...] = yield Dependents(task_id=done.id)
    changes: Changes = {}
    ready: set[str] = set()
    for task in dependents:
        if task.started_at is not None or task.state.terminal:
            continue
        if any(item.task_id == done.id and not met(item, done) for item in task.depends_on):
            message = f"Task {done.id}, which had to be done first, is {done.state.value}."
            changes[task.id] = decide(task, cmd.AbortTask(task_id=task.id, reason="dependency", message=message), context)
        elif not (yield from blocked_by(task)):
            ready.add(task.id)
    return replace(planned(done.id, changes, frozenset(ready)), wakes=frozenset(ready))
