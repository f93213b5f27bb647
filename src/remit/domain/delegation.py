"""What can be asked of sub-agents: each docstring is the operation's description, each field's text its parameter's."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from remit.domain.command import Acceptance, Dependencies, Grant, IdempotencyKey, Outputs
from remit.domain.record import Coerce, Items, Range, record
from remit.domain.value import AgentId, Json, Limits, Model, Priority, Resource, SessionId, TaskId, Title, Tools, Words

Seconds = Annotated[float, Range(0.001, 31_536_000)]


@record
class Work:
    """A piece of work for a sub-agent."""

    objective: Annotated[Words, "What the sub-agent has to do; it sees nothing of your conversation."] | None = None
    prompt: Annotated[Words, "Another word for objective."] | None = None
    description: Annotated[Words, "What it is for, in a few words."] | None = None
    subagent_type: Annotated[AgentId, "Who does it."] = "general"
    context: Annotated[Json, "Facts that belong to it; they are added to what the sub-agent reads."] = None
    model: Annotated[Model, "main for reasoning, light for simple work, or provider:name; without it, the agent's own tier."] | None = None
    tools: Annotated[Grant, "Tools it may use, beyond or instead of its own."] = Tools()
    limits: Annotated[Limits, "How far it may go."] = Limits()
    acceptance: Annotated[Acceptance, "What must be true for the work to count as done."] = ()
    outputs: Annotated[Outputs, "What must be handed over."] = ()
    priority: Annotated[Priority, "0 (most urgent) to 4."] = 2
    depends_on: Annotated[Dependencies, "Tasks that must be done, or settled, first."] = ()
    timeout_seconds: Annotated[Seconds, "How long it may work."] = 120.0


@record
class DelegateTask(Work):
    """Hand complex or parallel work to a sub-agent and get what comes of it; model `light` for simple work, `main` for reasoning."""

    session_id: Annotated[SessionId, "The caller's own session."] | None = None
    cache: Annotated[bool, "Take the result of an identical read-only task if there is one."] = False
    wait: Annotated[bool, "Whether to wait for the end; otherwise a receipt comes at once."] = True
    format: Annotated[Literal["envelope", "flat"], "The shape of the result."] = "envelope"
    idempotency_key: Annotated[IdempotencyKey, "The same key and body give the same task, for ever."] | None = None


def _work(value: Any) -> Any:
    """A piece of work in a word is its objective; whether that can be one, is found out with the others of its kind, each by itself."""
    return cast("Any", value) if isinstance(value, Mapping) else {"objective": value}


@record
class DelegateParallel:
    """Hand out complex work in parallel pieces: results in the order of the list, failures alone; `light` for simple ones, `main` for reasoning."""

    tasks: Annotated[tuple[Annotated[Mapping[str, Any], Coerce(_work, '{"type": "string"}')], ...], Items(1000, low=1), "The pieces of work."]
    timeout_seconds: Annotated[Seconds, "How long each may work, unless it says so itself."] | None = None
    session_id: Annotated[SessionId, "The caller's own session."] | None = None
    format: Annotated[Literal["envelope", "flat"], "The shape of the results."] = "envelope"


@record
class LaunchTask:
    """Launch a sub-agent for a complex or parallel part of the work; `light` for simple work, `main` for reasoning."""

    description: Annotated[Title, "What it is for, in a few words."]
    prompt: Annotated[Words, "What the sub-agent has to do; it sees nothing of your conversation."]
    subagent_type: Annotated[AgentId, "Who does it."]
    model: Annotated[Literal["main", "light"], "Which tier; without it, the agent's own."] | None = None


@record
class TaskOutput:
    """Get how a delegated task stands, or what came of it."""

    task_id: Annotated[TaskId, "The task."]
    wait_seconds: Annotated[Annotated[float, Range(0, 86_400)], "Wait so long for its end."] = 0.0
    offset: Annotated[Annotated[int, Range(0, 2**53)], "Leave out so many characters of the result: where to go on with one that was cut."] = 0
    format: Annotated[Literal["envelope", "flat"], "The shape of the result."] = "envelope"


@record
class CancelAll:
    """Cancel every task that a session has handed out, and wait until they have stopped; TIMEOUT names those that have not."""

    session_id: Annotated[SessionId, "The session."]


@record
class PreRequest:
    """Get what an outside session must be told before its next request: its assignment first, later each update once."""

    session_id: Annotated[SessionId, "The session that is about to ask its model."]


def reference(value: Any) -> Any:
    """A URL or a path as people write it, as a resource."""
    if not isinstance(value, str):
        return value
    return {"type": "url" if "://" in value else "file", "value": value}


References = tuple[Annotated[Resource, Coerce(reference, '{"type": "string"}')], ...]


@record
class LaunchSubtask:
    """Give a complex part of this task, or one of several parallel ones, to another agent and wait for what comes of it."""

    title: Annotated[Title, "A clear, actionable label."]
    intent: Annotated[Words, "What has to be done, and why."] | None = None
    artifactRefs: Annotated[References, Items(100), "URLs and paths that belong to it."] = ()  # noqa: N815 - the wire's own name
    priority: Annotated[Priority, "0 (most urgent) to 4."] = 2
