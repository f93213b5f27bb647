"""How a task comes to be: from a brief, or from the task it succeeds."""

from collections.abc import Iterable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from remit.domain import command as cmd
from remit.domain import event as ev
from remit.domain.check import known
from remit.domain.output import usable
from remit.domain.policy import agent_of, listed, max_children, max_depth, must_own, narrowed
from remit.domain.record import record, replace
from remit.domain.value import Criterion, Limits, Resource, Step, Task
from remit.errors import Conflict, LimitExceeded, invalid

TITLE_CHARACTERS = 80
"""How long a title is that is taken from longer text."""


def title_of(text: str) -> str:
    """The title of a task that was given only a text: its beginning, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"


def current_title(task: Task) -> str:
    """The title, or the beginning of the instructions where it stood for earlier ones."""
    return title_of(task.instructions) if task.title_outdated else task.title


def stands_for_instructions(task: Task) -> bool:
    """True if no instructions were given, so that the title is what the agent has to do."""
    return task.title == task.instructions and not task.has_instructions


B = TypeVar("B", bound=cmd.Brief | cmd.UpdateTask)


def without_blanks(command: B) -> B:
    """A command in which instructions and descriptions without any words count as not given."""
    return replace(command, instructions=_words(command.instructions), description=_words(command.description))


def _words(text: str | None) -> str | None:
    return text if text and text.strip() else None


@record
class NewIds:
    """What a new task is called."""

    id: str
    uid: str
    thread_id: str


def created(
    command: cmd.CreateTask | cmd.CreateSubtask,
    ids: NewIds,
    actor: str,
    parent: Task | None,
    creator_task_id: str | None = None,
    via: str | None = None,
) -> ev.TaskCreated:
    """The event that makes a task of a brief; `creator_task_id` is the task whose run asked for it."""
    instructions = command.instructions or command.description
    return ev.TaskCreated(
        id=ids.id,
        uid=ids.uid,
        thread_id=ids.thread_id,
        title=command.title,
        description=command.description or command.instructions or command.title,
        instructions=instructions or command.title,
        draft=command.status == "draft",
        acceptance=criteria(command.acceptance, None),
        completion=command.completion,
        outputs=usable(command.outputs),
        guides=tuple(dict.fromkeys(command.tsgs)),
        steps=tuple(Step(title=step.title, details=step.details, done=step.done) for step in command.steps),
        resources=tuple(resource(item.type, item.value, item.label, f"resources[{index}].value") for index, item in enumerate(command.resources)),
        owner=command.owner or agent_of(actor),
        parent_id=parent.id if parent else None,
        step_index=command.step_index if isinstance(command, cmd.CreateSubtask) else None,
        root_id=parent.root_id if parent else ids.id,
        depth=parent.depth + 1 if parent else 0,
        depends_on=command.depends_on,
        schedule=command.schedule,
        channel=command.channel,
        session_id=command.session_id,
        parent_session_id=command.parent_session,
        model=command.model,
        effort=command.effort,
        tools=narrowed(command.tools, parent.tools) if parent else command.tools,
        priority=command.priority,
        limits=within(command.limits, parent.limits) if parent else command.limits,
        labels=tuple(dict.fromkeys(command.labels)),
        metadata=command.metadata,
        idempotency_key=command.idempotency_key,
        cache_key=command.cache_key if isinstance(command, cmd.CreateCached | cmd.CreateCachedSubtask) else None,
        awaited=parent is not None or isinstance(command, cmd.CreateDelegated),
        creator_task_id=creator_task_id,
        via=parent.via if parent else via,
        has_instructions=instructions == command.title,
        description_only=command.description is not None and command.instructions is None,
    )


def within(asked: Limits, parent: Limits) -> Limits:
    """The limits of a subtask: it may not reach deeper than its parent may."""
    if parent.max_depth is None and asked.max_depth is None:
        return asked
    return replace(asked, max_depth=min(max_depth(asked), max_depth(parent)))


def within_reach(command: cmd.CreateSubtask, mine: tuple[str, ...], parent: Task, theirs: tuple[str, ...] | None) -> tuple[cmd.CreateSubtask, Task]:
    """A subtask's tools are its agent's own, or what is asked, and never more than its parent really has."""
    return replace(command, tools=listed(command.tools, mine)), replace(parent, tools=replace(parent.tools, allow=theirs))


def must_take_subtask(parent: Task, command: cmd.CreateSubtask, actor: str) -> None:
    """Refuse a subtask that its parent cannot have."""
    must_own(actor, parent, "give it subtasks")
    if command.wait == "block" and command.status == "draft":
        raise invalid("wait", "is 'block' for a draft, which is not worked on", "wake or none, or status: active")
    if parent.depth + 1 > max_depth(parent.limits):
        raise LimitExceeded(f"A subtask of task {parent.id} would be {parent.depth + 1} levels deep; the limit is {max_depth(parent.limits)}.")
    if len(parent.children) >= max_children(parent.limits):
        raise LimitExceeded(f"Task {parent.id} has {len(parent.children)} subtasks, as many as it may have.", hint="Raise limits.max_children.")
    if command.step_index is None:
        return
    if command.step_index >= len(parent.steps):
        expected = f"0 to {len(parent.steps) - 1}" if parent.steps else "none: it has no steps"
        raise invalid("step_index", f"is {command.step_index}, but task {parent.id} has {len(parent.steps)} steps", expected)
    if (linked := parent.steps[command.step_index].task_id) is not None:
        raise Conflict(f"Step {command.step_index} of task {parent.id} is linked to task {linked}.", details={"task_id": linked})


def successor(task: Task, ids: NewIds, owner: str | None, parent: Task | None) -> ev.TaskCreated:
    """The event that makes the task that takes another's place."""
    return ev.TaskCreated(
        id=ids.id,
        uid=ids.uid,
        thread_id=ids.thread_id,
        title=task.title,
        description=task.description,
        instructions=task.instructions,
        acceptance=tuple(replace(item, status="unchecked", evidence=None, by=None) for item in task.acceptance),
        completion=task.completion,
        outputs=task.outputs,
        guides=task.guides,
        steps=task.steps,
        resources=task.resources,
        owner=owner,
        parent_id=parent.id if parent else None,
        step_index=task.step_index if parent else None,
        root_id=ids.id if task.parent_id and not parent else task.root_id,
        depth=task.depth if parent else 0,
        depends_on=task.depends_on,
        schedule=task.schedule,
        rerun_of=task.id,
        series_id=task.series_id,
        channel=task.channel,
        parent_session_id=task.parent_session_id,
        model=task.model,
        effort=task.effort,
        tools=task.tools,
        priority=task.priority,
        limits=task.limits,
        labels=task.labels,
        metadata=task.metadata,
        awaited=task.awaited or parent is not None,
        creator_task_id=task.creator_task_id,
        via=task.via,
        has_instructions=task.has_instructions,
        title_outdated=task.title_outdated,
        description_only=task.description_only,
    )


def criteria(given: Iterable[cmd.NewCriterion], task: Task | None) -> tuple[Criterion, ...]:
    """Criteria with ids, if their checks can be read; one that stays as it is keeps its id and what is known of it."""
    kept = {(item.text, repr(item.check)): item for item in reversed(task.acceptance if task else ())}
    number = task.counts.criteria if task else 0
    made: list[Criterion] = []
    for index, item in enumerate(given):
        if (same := kept.pop((item.text, repr(item.check)), None)) is None:
            known(item.check, f"acceptance[{index}].check")
            number += 1
            same = Criterion(id=f"c{number}", text=item.text, check=item.check)
        made.append(same)
    return tuple(made)


def resource(kind: Literal["url", "file"], value: str, label: str | None, field: str) -> Resource:
    """A resource, if its value is an absolute URL or an absolute path."""
    if kind == "url" and not all(_scheme_and_rest(value)):
        raise invalid(field, f"is {value[:60]!r}", "an absolute URL such as https://example.org/spec")
    if kind == "file" and not (PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()):
        raise invalid(field, f"is {value[:60]!r}", "an absolute file path")
    return Resource(type=kind, value=value, label=label)


def _scheme_and_rest(value: str) -> tuple[str, str]:
    try:
        parts = urlsplit(value)
    except ValueError:
        return "", ""
    return parts.scheme, parts.netloc or parts.path
