"""Creation of a task from a brief, or as the successor of another task."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from remit.domain.outputs.criteria import parse_check
from remit.domain.outputs.required_outputs import validate_outputs
from remit.domain.prompts.reports import reported_end
from remit.domain.prompts.update_messages import is_said
from remit.domain.records.record import record, replace
from remit.domain.task import commands as cmd
from remit.domain.task import events as ev
from remit.domain.task.policy import (
    agent_of,
    max_children,
    max_depth,
    must_own,
    narrow_tools,
    with_tool_list,
)
from remit.domain.task.task import Criterion, Limits, Resource, Step, Task, Tools, Update
from remit.errors import Conflict, LimitExceeded, invalid

B = TypeVar("B", bound=cmd.Brief | cmd.UpdateTask)


def drop_blank_texts(command: B) -> B:
    """Treat blank instructions and descriptions as not given."""
    return replace(
        command,
        instructions=_text_or_none(command.instructions),
        description=_text_or_none(command.description),
    )


def _text_or_none(text: str | None) -> str | None:
    """Return the text, or None if it is blank."""
    if text is None or not text.strip():
        return None
    return text


@record
class NewIds:
    """The ids of a new task."""

    id: str
    uid: str
    thread_id: str


@record
class _Inherited:
    """The fields of a new task that depend on its parent."""

    parent_id: str | None
    root_id: str
    depth: int
    tools: Tools
    limits: Limits
    via: str | None


def creation_event(
    command: cmd.CreateTask | cmd.CreateSubtask,
    ids: NewIds,
    actor: str,
    parent: Task | None,
    creator_task_id: str | None = None,
    via: str | None = None,
) -> ev.TaskCreated:
    """Return the event that creates a task from a brief.

    `creator_task_id` is the task whose run asked for the new one.
    """
    instructions = command.instructions or command.description
    is_described = command.description is not None
    inherited = _inherit(command, ids, parent, via)
    return ev.TaskCreated(
        id=ids.id,
        uid=ids.uid,
        thread_id=ids.thread_id,
        title=command.title,
        description=command.description or command.instructions or command.title,
        instructions=instructions or command.title,
        draft=command.status == "draft",
        acceptance=build_criteria(command.acceptance),
        completion=command.completion,
        outputs=validate_outputs(command.outputs),
        guides=tuple(dict.fromkeys(command.tsgs)),
        steps=tuple(
            Step(title=step.title, details=step.details, done=step.done) for step in command.steps
        ),
        resources=tuple(
            build_resource(item.type, item.value, item.label, f"resources[{index}].value")
            for index, item in enumerate(command.resources)
        ),
        owner=command.owner or agent_of(actor),
        parent_id=inherited.parent_id,
        step_index=command.step_index if isinstance(command, cmd.CreateSubtask) else None,
        root_id=inherited.root_id,
        depth=inherited.depth,
        depends_on=command.depends_on,
        schedule=command.schedule,
        channel=command.channel,
        session_id=command.session_id,
        parent_session_id=command.parent_session,
        model=command.model,
        effort=command.effort,
        tools=inherited.tools,
        priority=command.priority,
        limits=inherited.limits,
        labels=tuple(dict.fromkeys(command.labels)),
        metadata=command.metadata,
        idempotency_key=command.idempotency_key,
        cache_key=_cache_key(command),
        awaited=parent is not None or isinstance(command, cmd.CreateDelegated),
        creator_task_id=creator_task_id,
        via=inherited.via,
        has_instructions=instructions == command.title,
        description_only=is_described and command.instructions is None,
        has_description=is_described and command.description == command.instructions,
    )


def _inherit(
    command: cmd.CreateTask | cmd.CreateSubtask,
    ids: NewIds,
    parent: Task | None,
    via: str | None,
) -> _Inherited:
    """Return the place of a new task in its tree, and its tools and limits within its parent's."""
    if parent is None:
        return _Inherited(
            parent_id=None,
            root_id=ids.id,
            depth=0,
            tools=command.tools,
            limits=command.limits,
            via=via,
        )
    return _Inherited(
        parent_id=parent.id,
        root_id=parent.root_id,
        depth=parent.depth + 1,
        tools=narrow_tools(command.tools, parent.tools),
        limits=cap_limits(command.limits, parent.limits),
        via=parent.via,
    )


def _cache_key(command: cmd.CreateTask | cmd.CreateSubtask) -> str | None:
    if isinstance(command, cmd.CreateCached | cmd.CreateCachedSubtask):
        return command.cache_key
    return None


def cap_limits(asked: Limits, parent: Limits) -> Limits:
    """Return the limits of a subtask; its `max_depth` never exceeds that of its parent."""
    if parent.max_depth is None and asked.max_depth is None:
        return asked
    return replace(asked, max_depth=min(max_depth(asked), max_depth(parent)))


def list_tools(
    command: cmd.CreateSubtask,
    granted: tuple[str, ...],
    parent: Task,
    parent_tools: tuple[str, ...] | None,
) -> tuple[cmd.CreateSubtask, Task]:
    """Return the command and the parent with their effective tools listed.

    `creation_event` then limits the subtask's tools to those of its parent.
    """
    tools = with_tool_list(command.tools, granted)
    listed_parent = replace(parent, tools=replace(parent.tools, allow=parent_tools))
    return replace(command, tools=tools), listed_parent


def must_accept_subtask(parent: Task, command: cmd.CreateSubtask, actor: str) -> None:
    """Refuse a subtask that its parent does not allow: wrong owner, too deep, or too many."""
    must_own(actor, parent, "give it subtasks")
    if (command.wait, command.status) == ("block", "draft"):
        raise invalid(
            "wait",
            "is 'block', but a draft does not run",
            "wake or none, or status: active",
        )
    if parent.depth + 1 > max_depth(parent.limits):
        raise LimitExceeded(
            f"A subtask of task {parent.id} would be {parent.depth + 1} levels deep; the limit is"
            f" {max_depth(parent.limits)}."
        )
    if len(parent.children) >= max_children(parent.limits):
        raise LimitExceeded(
            f"Task {parent.id} already has {len(parent.children)} subtasks, the maximum.",
            hint="Raise limits.max_children.",
        )
    if command.step_index is not None:
        _must_be_free_step(parent, command.step_index)


def _must_be_free_step(parent: Task, index: int) -> None:
    """Refuse a step that the parent does not have, or that is linked to another subtask."""
    count = len(parent.steps)
    if index >= count:
        expected = f"0 to {count - 1}" if count else "none: it has no steps"
        raise invalid(
            "step_index",
            f"is {index}, but task {parent.id} has {count} steps",
            expected,
        )
    linked = parent.steps[index].task_id
    if linked is not None:
        raise Conflict(
            f"Step {index} of task {parent.id} is already linked to task {linked}.",
            details={"task_id": linked},
        )


def successor_event(
    task: Task, ids: NewIds, owner: str | None, parent: Task | None
) -> ev.TaskCreated:
    """Return the event that creates the successor of a task.

    Without a parent, the successor is the root of a new tree.
    """
    root = ev.TaskCreated(
        id=ids.id,
        uid=ids.uid,
        thread_id=ids.thread_id,
        title=task.title,
        description=task.description,
        instructions=task.instructions,
        acceptance=tuple(
            replace(item, status="unchecked", evidence=None, by=None) for item in task.acceptance
        ),
        completion=task.completion,
        outputs=task.outputs,
        guides=task.guides,
        steps=task.steps,
        resources=task.resources,
        owner=owner,
        root_id=ids.id,
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
        awaited=task.awaited,
        creator_task_id=task.creator_task_id,
        via=task.via,
        has_instructions=task.has_instructions,
        title_outdated=task.title_outdated,
        description_only=task.description_only,
        has_description=task.has_description,
    )
    if parent is None:
        return root
    return replace(
        root,
        parent_id=parent.id,
        step_index=task.step_index,
        root_id=parent.root_id,
        depth=task.depth,
        awaited=True,
    )


def passed_on(task: Task, successor_id: str) -> list[ev.MessageSent | ev.SubtaskSettled]:
    """Return the messages and reports that the agent of a task has not read, for its successor.

    The successor is created with the current terms, so it needs no updates of them.
    """
    unread = enumerate(filter(is_said, task.queued), 1)
    return [_repeated(update, f"{successor_id}-u{number}") for number, update in unread]


def _repeated(update: Update, update_id: str) -> ev.MessageSent | ev.SubtaskSettled:
    """Return the event that queues a message or a report again."""
    if update.type == "message":
        return ev.MessageSent(update_id=update_id, message=update.content, question=update.question)
    child_id, state = reported_end(update.content)
    return ev.SubtaskSettled(
        child_id=child_id, state=state, update_id=update_id, report=update.content
    )


def build_criteria(
    given: Iterable[cmd.NewCriterion], current: Sequence[Criterion] = (), number: int = 0
) -> tuple[Criterion, ...]:
    """Return criteria with ids, which follow `number`. Refuse a check that is not valid.

    An unchanged criterion keeps its id and its status.
    """
    unchanged = {(item.text, repr(item.check)): item for item in reversed(current)}
    result: list[Criterion] = []
    for index, item in enumerate(given):
        criterion = unchanged.pop((item.text, repr(item.check)), None)
        if criterion is None:
            parse_check(item.check, f"acceptance[{index}].check")
            number += 1
            criterion = Criterion(id=f"c{number}", text=item.text, check=item.check)
        result.append(criterion)
    return tuple(result)


def build_resource(
    kind: Literal["url", "file"], value: str, label: str | None, field: str
) -> Resource:
    """Return a resource. Refuse a relative URL or path."""
    is_absolute, expected = _ABSOLUTE[kind]
    if not is_absolute(value):
        raise invalid(field, f"is {value[:60]!r}", expected)
    return Resource(type=kind, value=value, label=label)


def _is_absolute_path(value: str) -> bool:
    """Return whether a path is absolute on any operating system."""
    return PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()


def _is_absolute_url(value: str) -> bool:
    """Return whether a URL has a scheme and a host or a path."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme) and bool(parts.netloc or parts.path)


_ABSOLUTE: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "url": (_is_absolute_url, "an absolute URL such as https://example.org/spec"),
    "file": (_is_absolute_path, "an absolute file path"),
}
"""The check of each kind of resource, and what it expects."""
