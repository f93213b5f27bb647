"""Dependencies between tasks: validate them, and release dependents when a task ends."""

from collections.abc import Iterable, Mapping

from remit.domain.decisions.context import Context, Events
from remit.domain.decisions.decide import decide
from remit.domain.decisions.run_results import files_to_claim
from remit.domain.outputs.required_outputs import Files
from remit.domain.planning.lookups import (
    Changes,
    Dependents,
    Load,
    Lookups,
    Plan,
    SeenFiles,
    ancestors,
    find_task,
    load_tasks,
    make_plan,
)
from remit.domain.projection.follow_up_jobs import scheduled_start
from remit.domain.records.pick import beyond, by_id
from remit.domain.records.record import replace
from remit.domain.task import commands as cmd
from remit.domain.task.task import Dependency, State, Task, prerequisites
from remit.errors import Conflict, invalid


def is_met(dependency: Dependency, other: Task | None) -> bool:
    """Return whether a dependency no longer blocks its task."""
    if other is None:
        return False
    if dependency.on == "settled":
        return other.state.terminal
    return other.state is State.DONE


def resolve_dependencies(
    asked: tuple[Dependency, ...], task: Task | None, parent: Task | None = None
) -> Lookups[tuple[tuple[Dependency, ...], frozenset[str]]]:
    """Return the dependencies by id without duplicates, and the ids of all tasks that were read.

    Refuse a dependency that does not exist, can never be met, or closes a cycle. The tasks that
    were read must be unchanged at the commit: two concurrent requests cannot close a cycle
    together, and no dependency is handed off unnoticed.
    """
    found: Mapping[str, Task | None] = yield Load(refs=prerequisites(asked))
    unique: dict[str, Dependency] = {}
    for index, item in enumerate(asked):
        other = _check_dependency(f"depends_on[{index}]", item, found[item.task_id])
        unique[other.id] = Dependency(task_id=other.id, on=item.on)
    above = yield from _ancestors(parent if task is None else task)
    upstream = yield from _upstream(unique)
    reached = frozenset(item.id for item in upstream)
    if task is not None and task.id in reached:
        raise invalid(
            "depends_on",
            f"makes task {task.id} wait for itself",
            "dependencies without a cycle",
            task_id=task.id,
        )
    for ancestor in above:
        if ancestor in unique:
            raise invalid(
                "depends_on",
                f"names task {ancestor}, an ancestor of this task",
                "tasks that are not its ancestors",
            )
    return tuple(unique.values()), reached


def _check_dependency(field: str, dependency: Dependency, other: Task | None) -> Task:
    """Return the task of a dependency; refuse one that does not exist or can never be done."""
    if other is None:
        raise invalid(
            field,
            f"is {dependency.task_id}, which does not exist",
            "the id of an existing task",
        )
    if dependency.on == "done" and other.state in (State.FAILED, State.CANCELED):
        raise invalid(
            field,
            f"is task {other.id}, which is {other.state.value} and will never be done",
            "a task that can still be done, or on: settled",
        )
    return other


def await_prerequisites(depends_on: Iterable[Dependency], context: Context) -> Lookups[Changes]:
    """Record that a caller waits for all unfinished prerequisites of an awaited task, direct and
    indirect, so that none of them is parked.
    """
    upstream = yield from _upstream(prerequisites(depends_on))
    outside = replace(context, run_id=None)  # the fence belongs to the caller's own task
    changes: Changes = {}
    for task in upstream:
        if not task.awaited and not task.state.terminal:
            files = yield from _seen_files(task)
            seen = replace(outside, files=files)
            changes[task.id] = decide(task, cmd.AwaitTask(task_id=task.id), seen)
    return changes


def _seen_files(task: Task) -> Lookups[Files]:
    """Return what is known of the files that a task submits if a wait completes it."""
    wanted = files_to_claim(task)
    if not wanted:
        return {}
    files: Files = yield SeenFiles(files=wanted)
    return files


def _ancestors(task: Task | None) -> Lookups[tuple[str, ...]]:
    """Return the ids of a task and all its ancestors."""
    if task is None:
        return ()
    above = yield from ancestors(task)
    return tuple(item.id for item in (task, *above))


def _upstream(start: Iterable[str]) -> Lookups[list[Task]]:
    """Return these tasks and all tasks that they depend on, directly and indirectly.

    The dependencies are read from each loaded task, whose version guards the result.
    """
    reached: dict[str, Task] = {}
    edge = tuple(dict.fromkeys(start))
    while edge:
        tasks = yield from load_tasks(edge)
        reached |= by_id(tasks)
        needed = (item.task_id for task in tasks for item in task.depends_on)
        edge = tuple(dict.fromkeys(beyond(needed, reached)))
    return list(reached.values())


def must_be_ready(task: Task, context: Context, *, now: bool) -> Lookups[None]:
    """Refuse to start a blocked task; `now` overrides only its scheduled start."""
    if task.session_id is not None:
        raise Conflict(
            f"Task {task.id} is assigned to session {task.session_id}, so no worker can run it.",
            details={"session_id": task.session_id},
        )
    if task.owner is None:
        raise Conflict(
            f"Task {task.id} has no owner.",
            hint="Set one with update_task.",
            details={"task_id": task.id},
        )
    if not now and (start := scheduled_start(task, context.now)):
        raise Conflict(f"Task {task.id} cannot start before {start.isoformat()}.")
    if task.started_at is None:
        blocked = yield from _unmet_dependencies(task)
        _must_not_be_blocked(task, blocked)


def _must_not_be_blocked(task: Task, blocked: Mapping[str, Task | None]) -> None:
    """Refuse to start a task with unmet dependencies."""
    if not blocked:
        return
    ids = list(blocked)
    ended = [other for other in filter(None, blocked.values()) if other.state.terminal]
    if ended:
        raise _never_starts(task, ended, ids)
    raise Conflict(f"Task {task.id} waits for task {', '.join(ids)}.", details={"blocked_by": ids})


def _never_starts(task: Task, ended: list[Task], blocked: list[str]) -> Conflict:
    """Return the error for a task whose dependencies ended without being done."""
    names = ", ".join(f"task {other.id} ({other.state.value})" for other in ended)
    return Conflict(
        f"Task {task.id} can never start: it depends on {names}.",
        hint="A worker fails it. Cancel it, or set other dependencies with update_task.",
        details={"task_id": task.id, "blocked_by": blocked},
    )


def blocked_by(task: Task) -> Lookups[list[str]]:
    """Return the ids of the tasks that still block a task."""
    return list((yield from _unmet_dependencies(task)))


def _unmet_dependencies(task: Task) -> Lookups[dict[str, Task | None]]:
    """Return the tasks that still block a task, by id; None for a task that does not exist."""
    found: Mapping[str, Task | None] = yield Load(refs=prerequisites(task.depends_on))
    return {
        item.task_id: found[item.task_id]
        for item in task.depends_on
        if not is_met(item, found[item.task_id])
    }


def release_dependents(command: cmd.ReleaseDependents, context: Context) -> Lookups[Plan]:
    """Wake the dependents of an ended task that are ready, and fail those whose dependency can
    no longer be met.
    """
    done = yield from find_task(command.task_id)
    dependents: tuple[Task, ...] = yield Dependents(task_id=done.id)
    changes: Changes = {}
    ready: set[str] = set()
    for task in dependents:
        if not task.is_unstarted:
            continue
        if _is_given_up(task, done):
            changes[task.id] = _fail_dependent(task, done, context)
        elif not (yield from blocked_by(task)):
            ready.add(task.id)
    return replace(make_plan(done.id, changes, frozenset(ready)), wakes=frozenset(ready))


def _is_given_up(task: Task, ended: Task) -> bool:
    """Return whether a dependency on an ended task can no longer be met."""
    return not all(is_met(item, ended) for item in task.depends_on if item.task_id == ended.id)


def _fail_dependent(task: Task, ended: Task, context: Context) -> Events:
    """Fail a task whose dependency ended without being done."""
    message = f"Task {ended.id}, which had to be done first, is {ended.state.value}."
    abort = cmd.AbortTask(task_id=task.id, reason="dependency", message=message)
    return decide(task, abort, context)
