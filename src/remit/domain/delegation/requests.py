"""The operations that delegate work.

Each docstring is the description of an operation, each field text that of a parameter.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from remit.domain.records.record import Alias, Coerce, Items, Range, Text, record
from remit.domain.task.commands import Acceptance, Dependencies, Grant, IdempotencyKey, Outputs
from remit.domain.task.task import (
    AgentId,
    Body,
    Effort,
    Json,
    Limits,
    Model,
    Priority,
    Resource,
    SessionId,
    TaskId,
    Title,
    Tools,
    Words,
)

Seconds = Annotated[float, Range(0.001, 31_536_000)]


@record
class Work:
    """A task for a sub-agent."""

    objective: (
        Annotated[Words, "What the sub-agent must do; it does not see your conversation."] | None
    ) = None
    prompt: Annotated[Words, "Same as objective.", Alias("objective", required=True)] | None = None
    description: Annotated[Body, "A short title for the task."] | None = None
    subagent_type: Annotated[AgentId, "The agent that does it."] = "general"
    context: Annotated[Json, "Facts the sub-agent needs, as JSON."] = None
    model: Annotated[Model, "main, light or provider:name; by default the agent's own."] | None = (
        None
    )
    effort: Annotated[Effort, "Reasoning effort of its model; none omits the parameter."] | None = (
        None
    )
    tools: Annotated[Grant, "Names of the tools it may use, instead of its own."] = Tools()
    limits: Annotated[Limits, "Limits for the work."] = Limits()
    acceptance: Annotated[Acceptance, "What must be true when it is done."] = ()
    outputs: Annotated[Outputs, "What it must provide."] = ()
    priority: Annotated[Priority, "0 (urgent) to 4 (low)."] = 2
    depends_on: Annotated[Dependencies, "Ids of tasks that must be done first."] = ()
    timeout_seconds: Annotated[Seconds, "How long it may work."] = 120.0


@record
class DelegateTask(Work):
    """Delegate complex or parallel work to a sub-agent and get its result; model `light` for simple
    work, `main` for reasoning.
    """

    session_id: Annotated[SessionId, "Your own session."] | None = None
    cache: Annotated[bool, "Use the result of an identical read-only task."] = False
    wait: Annotated[bool, "false: return the task_id at once; task_output gets the result."] = True
    format: Annotated[Literal["envelope", "flat"], "The shape of the result."] = "envelope"
    idempotency_key: (
        Annotated[IdempotencyKey, "Repeating a call with the same key returns the same task."]
        | None
    ) = None


def as_work(value: Any) -> Any:
    """Wrap a plain value as the objective of a task; each item of a list is validated by itself."""
    return cast("Any", value) if isinstance(value, Mapping) else {"objective": value}


Works = tuple[Annotated[Mapping[str, Any], Coerce(as_work, '{"type": "string"}')], ...]


@record
class DelegateParallel:
    """Delegate complex work to several sub-agents in parallel and get all results in order; model
    `light` for simple work, `main` for reasoning.
    """

    tasks: Annotated[
        Works, Items(1000, low=1), "One object for each task, with the fields of task."
    ]
    timeout_seconds: Annotated[Seconds, "How long each may work."] | None = None
    session_id: Annotated[SessionId, "Your own session."] | None = None
    format: Annotated[Literal["envelope", "flat"], "The shape of the results."] = "envelope"


@record
class LaunchTask:
    """Launch a sub-agent for complex or parallel work and get its result; model `light` for
    simple work, `main` for reasoning.
    """

    description: Annotated[str, Text(0, 256, "characters"), "A short name for the work."]
    prompt: Annotated[Words, "What the sub-agent must do; it does not see your conversation."]
    subagent_type: Annotated[AgentId, "The agent that does it."]
    model: Annotated[Literal["main", "light"], "By default the agent's own."] | None = None


@record
class TaskOutput:
    """Get the status of a task and, once it has ended, its result."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    wait_seconds: Annotated[Annotated[float, Range(0, 86_400)], "Seconds to wait for its end."] = (
        0.0
    )
    offset: Annotated[Annotated[int, Range(0, 2**53)], "Characters of a long result to skip."] = 0
    format: Annotated[Literal["envelope", "flat"], "The shape of the result."] = "envelope"


@record
class CancelAll:
    """Cancel all tasks that a session created, and wait until they have stopped."""

    session_id: Annotated[SessionId, "Id of the session."]


@record
class PreRequest:
    """Get what an outside session must add to its next request: its assignment first, later each
    update once.
    """

    session_id: Annotated[SessionId, "The session that makes the request."]


def as_resource(value: Any) -> Any:
    """Convert a URL or a path to a resource."""
    if not isinstance(value, str):
        return value
    return {"type": "url" if "://" in value else "file", "value": value}


References = tuple[Annotated[Resource, Coerce(as_resource, '{"type": "string"}')], ...]


@record
class LaunchSubtask:
    """Delegate a complex or parallel part of this task to one agent and wait for its result."""

    title: Annotated[Title, "A short, clear name."]
    intent: Annotated[Words, "What to do, and why."] | None = None
    # The name is part of the wire format.
    artifactRefs: Annotated[References, Items(100), "URLs and paths to use."] = ()  # noqa: N815
    priority: Annotated[Priority, "0 (urgent) to 4 (low)."] = 2
