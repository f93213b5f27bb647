"""The commands of remit.

Each docstring is the description of an operation, each field text that of a parameter.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from remit.domain.records.record import Coerce, Items, Range, Text, record
from remit.domain.task.task import (
    AgentId,
    Body,
    ChildWait,
    Completion,
    Count,
    Dependency,
    Effort,
    FailCause,
    FailReason,
    GuideId,
    Json,
    Labels,
    Limits,
    Line,
    Metadata,
    Model,
    Output,
    Priority,
    Resource,
    Schedule,
    SessionId,
    StepTitle,
    TaskId,
    Title,
    ToolCount,
    Tools,
    Usage,
    Words,
)

CHECK = (
    'How code checks it: {"file": path, "contains"?: text} or {"output": name, "equals"?: value,'
    ' "contains"?: text}.'
)


@record
class NewCriterion:
    """A new acceptance criterion."""

    text: Words
    check: Annotated[Json, CHECK] = None


@record
class NewStep:
    """A new step; only create_subtask links it to a subtask."""

    title: StepTitle
    details: Body | None = None
    done: bool = False


WORD = '{"type": "string", "minLength": 1}'


def _as(field: str) -> Coerce:
    def convert(value: Any) -> Any:
        return {field: value} if isinstance(value, str) else value

    return Coerce(convert, WORD)


def _dependency(value: Any) -> Any:
    return {"task_id": value} if isinstance(value, str | int) else value


def _tools(value: Any) -> Any:
    return {"allow": cast("Any", value)} if isinstance(value, list | tuple) else value


Acceptance = Annotated[tuple[Annotated[NewCriterion, _as("text")], ...], Items(256)]
Outputs = Annotated[tuple[Annotated[Output, _as("name")], ...], Items(256)]
Steps = Annotated[tuple[Annotated[NewStep, _as("title")], ...], Items(1000)]
Dependencies = Annotated[tuple[Annotated[Dependency, Coerce(_dependency, WORD)], ...], Items(256)]
Guides = Annotated[tuple[GuideId, ...], Items(64)]
Resources = Annotated[tuple[Resource, ...], Items(1000)]
Grant = Annotated[Tools, Coerce(_tools, f'{{"type": "array", "items": {WORD}}}')]
IdempotencyKey = Annotated[str, Text(1, 256, "characters")]
Channel = Annotated[str, Text(1, 64, "characters")]
Index = Annotated[int, Range(0, 999)]
PlanTool = Literal["update_step", "TodoWrite", ""]
"""The tool with which an agent changes its plan; empty if it has none."""
RunId = Annotated[str, Text(1, 64, "characters")]
CallId = Annotated[str, Text(1, 256, "characters")]
Worker = Annotated[str, Text(1, 256, "characters")]


@record
class Brief:
    """The fields of every new task."""

    title: Annotated[Title, "A short, clear name."]
    instructions: Annotated[Words, "What to do."] | None = None
    description: Annotated[Body, "Why it is needed, and the context."] | None = None
    acceptance: Annotated[Acceptance, "What must be true when it is done."] = ()
    outputs: Annotated[Outputs, "What complete_task must provide."] = ()
    tsgs: Annotated[Guides, "Ids of troubleshooting guides to link."] = ()
    steps: Annotated[Steps, "The plan, in order."] = ()
    resources: Annotated[Resources, "URLs and absolute file paths to use."] = ()
    priority: Annotated[Priority, "0 (urgent) to 4 (low)."] = 2
    depends_on: Annotated[Dependencies, "Ids of tasks that must be done first."] = ()
    model: Annotated[Model, "main, light or provider:name."] | None = None
    effort: Annotated[Effort, "Reasoning effort of its model; none omits the parameter."] | None = (
        None
    )
    tools: Annotated[Grant, "Names of the tools it may use."] = Tools()
    limits: Annotated[Limits, "Limits for the work."] = Limits()
    labels: Annotated[Labels, "Words to find it by."] = ()
    metadata: Annotated[Metadata, "Other data, stored as given."] | None = None
    completion: Annotated[
        Completion, "auto: the last message completes it; explicit: only complete_task does."
    ] = "auto"
    channel: Annotated[Channel, "Channel of its conversation."] = "local"
    schedule: Annotated[Schedule, "When it may start."] | None = None
    status: Annotated[Literal["active", "draft"], "draft: it does not start yet."] = "active"
    parent_session: Annotated[SessionId, "Session of the caller."] | None = None
    session_id: Annotated[SessionId, "Outside session that will work on it."] | None = None
    idempotency_key: (
        Annotated[IdempotencyKey, "Repeating a call with the same key returns the same task."]
        | None
    ) = None


@record
class CreateTask(Brief):
    """Create a task for an agent to do on its own; to wait for a result, use task."""

    owner: Annotated[AgentId, "Id of the agent that does the task."] | None = None


@record
class CreateDelegated(CreateTask):
    """Create a task for a delegation; only the delegating operations give this command."""


@record
class CreateCached(CreateDelegated):
    """Create a task whose result identical tasks may reuse; callers cannot set the key."""

    cache_key: str


@record
class CreateSubtask(Brief):
    """Create a subtask; step_index links it to a step of the plan."""

    task_id: Annotated[TaskId, "Id of the parent task."]
    owner: Annotated[AgentId, "Id of the agent that does the task."]
    step_index: Annotated[Index, "Plan step that it does, from 0."] | None = None
    wait: Annotated[
        ChildWait, "wake: its end wakes the parent; block: wait for its result; none: neither."
    ] = "wake"


@record
class CreateCachedSubtask(CreateSubtask):
    """Create a subtask whose result identical tasks may reuse."""

    cache_key: str


@record
class UpdateTask:
    """Change a task; its agent is told before its next step."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    title: Annotated[Title, "New title."] | None = None
    description: Annotated[Words, "New description."] | None = None
    instructions: Annotated[Words, "New instructions."] | None = None
    acceptance: Annotated[Acceptance, "New criteria, all of them."] | None = None
    outputs: Annotated[Outputs, "New outputs, all of them."] | None = None
    status: Annotated[Literal["active", "done", "canceled"], "active starts a draft."] | None = None
    owner: Annotated[AgentId, "Another agent; a started task gets a successor."] | None = None
    priority: Annotated[Priority, "0 (urgent) to 4 (low)."] | None = None
    depends_on: Annotated[Dependencies, "New dependencies, before it starts."] | None = None
    labels: Annotated[Labels, "New labels, all of them."] | None = None
    metadata: Annotated[Metadata, "New metadata, all of it."] | None = None
    limits: Annotated[Limits, "New limits, all of them."] | None = None
    expected_version: (
        Annotated[Count, "Refuse the change if the task has another version."] | None
    ) = None


@record
class CompleteTask:
    """Complete a task and provide its required outputs."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    outputs: Annotated[Metadata, "The required outputs, by name."] | None = None
    summary: (
        Annotated[Body, "The whole result, for the person or agent that gave the task."] | None
    ) = None


@record
class FailTask:
    """End a task as failed because it cannot be done."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    message: Annotated[Words, "Why."]


@record
class WaiveCriterion:
    """Waive an acceptance criterion; only a person can."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    criterion_id: Annotated[Line, "Id of the criterion."]
    reason: Annotated[Words, "Why it is not needed."]


@record
class CancelTask:
    """Cancel a task and all its subtasks."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    message: Annotated[Body, "Why."] | None = None


@record
class PauseTask:
    """Pause a task; its agent stops after its current step."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]


@record
class ResumeTask:
    """Resume a paused task."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]


@record
class RunTask:
    """Run a task now instead of at its next scheduled time."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]


@record
class RerunTask:
    """Run an ended task again as a new task."""

    task_id: Annotated[TaskId, "Id of the ended task."]


@record
class AssignTask:
    """Assign a task to an outside session, which gets it with its next request."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    subagent_session_id: Annotated[SessionId, "Session that will work on it."]


@record
class AttachTsg:
    """Link a troubleshooting guide to a task."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    tsg_id: Annotated[GuideId, "Id of the guide."]


@record
class UpdateSteps:
    """Replace the plan. Steps with a subtask must keep their position and title."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    steps: Annotated[Steps, "All steps, in order."]


@record
class UpdateStep:
    """Change one step of the plan, for example mark it done."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    index: Annotated[Index, "Number of the step, from 0."]
    title: Annotated[StepTitle, "New title."] | None = None
    details: Annotated[Body, "New details."] | None = None
    done: Annotated[bool, "True when it is done."] | None = None


@record
class AddResource:
    """Attach a URL or a file to a task."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    type: Annotated[Literal["url", "file"], "Its kind."]
    value: Annotated[str, Text(1, 4096, "characters"), "URL or absolute path."]
    label: Annotated[Title, "Name to show."] | None = None


@record
class RemoveResource:
    """Remove a resource from a task."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    index: Annotated[Index, "Number of the resource, from 0."]


@record
class SendMessage:
    """Send a message to the agent of a task; it reads it before its next step."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    message: Annotated[Words, "The message."]


@record
class AskUser:
    """Ask a person a question and wait for the answer."""

    task_id: Annotated[TaskId, "Id of the asking task."]
    question: Annotated[Words, "The question."]
    options: Annotated[tuple[Line, ...], Items(32), "Answers to choose from."] = ()
    allow_other: Annotated[bool, "Allow an answer that is not one of the options."] = False
    blocking: Annotated[bool, "If false, continue; the answer comes as a message."] = True
    call_id: Annotated[CallId, "The open tool call that gets the answer."] | None = None


@record
class Respond:
    """Answer a question from an agent; only the first answer counts."""

    interaction_id: Annotated[Line, "Id of the question."]
    answer: Annotated[Words, "The answer."]


@record
class NotifyUser:
    """Send a person a message without waiting."""

    task_id: Annotated[TaskId, "Id of the task that sends it."]
    message: Annotated[Words, "The message."]


@record
class CreateGuide:
    """Write a troubleshooting guide that tasks can link to."""

    title: Annotated[Title, "What it helps with."]
    body: Annotated[Words, "What to do about it."]
    id: Annotated[GuideId, "Its id; by default made from the title."] | None = None


@record
class AwaitTask:
    """Record that a caller waits for the end of a task.

    A task that waits for a tick wakes up, or completes if it has given its answer.
    """

    task_id: TaskId


@record
class StartRun:
    """Start a run of a task on a worker."""

    task_id: TaskId
    worker: Worker


@record
class DeliverUpdates:
    """Deliver queued updates with the agent's next request; the first request of a session
    starts its task.
    """

    task_id: TaskId
    turn: Count = 0
    session_id: SessionId | None = None
    update_ids: tuple[Line, ...] | None = None
    """The updates in the request; None for all queued updates."""


@record
class AwaitSubtask:
    """Make the run wait for a subtask, at most until an instant if one is given."""

    task_id: TaskId
    child_id: TaskId
    call_id: CallId | None = None
    until: datetime | None = None


@record
class SetTimer:
    """Make the run wait until an instant."""

    task_id: TaskId
    due_at: datetime
    call_id: CallId | None = None


@record
class YieldRun:
    """End the run so that the task waits for what the run asked for."""

    task_id: TaskId
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class FinishRun:
    """End the run with a final message."""

    task_id: TaskId
    final_message: Body
    plan_tool: PlanTool = "update_step"
    outputs: Mapping[str, Json] | None = None
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class VouchResult:
    """Vouch that everything the result depends on is unchanged since the task was created."""

    task_id: TaskId


@record
class ReleaseRun:
    """Return the task to the queue without a failure, to be retried after `retry_seconds`."""

    task_id: TaskId
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()
    retry_seconds: float | None = None


@record
class FailRun:
    """End the run with an error. A permanent error fails the task; any other is retried after
    `retry_seconds` at the earliest.
    """

    task_id: TaskId
    error: Words
    permanent: bool = False
    cause: FailCause | None = None
    retry_seconds: float | None = None
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class TimeOutRun:
    """End the run because it was idle for too long."""

    task_id: TaskId
    error: Words
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class LoseRun:
    """End the run because its worker stopped responding; `last_seen_at` is its last heartbeat."""

    task_id: TaskId
    run_id: RunId
    last_seen_at: datetime | None = None


@record
class FireTimer:
    """Fire a timer that a task waits for."""

    task_id: TaskId
    timer_id: Line


@record
class Tick:
    """Wake a task that waits for the scheduler."""

    task_id: TaskId


@record
class SettleSubtask:
    """Report to a parent how its subtask ended."""

    task_id: TaskId
    child_id: TaskId
    state: Literal["done", "failed", "canceled"]
    summary: str | None = None
    failure_reason: str | None = None
    report: str | None = None
    """The report for the agent of the parent, unless a tool result contains it."""


@record
class Delegate:
    """Create several subtasks, one for each tool call, and wait for those that block."""

    task_id: TaskId
    subtasks: tuple[CreateSubtask, ...]


@record
class SettleSubtasks:
    """Tell a parent about all subtasks that ended since it was last told."""

    task_id: TaskId


@record
class ReleaseDependents:
    """Wake or fail the dependents of an ended task."""

    task_id: TaskId


@record
class ExcludeDowntime:
    """Exclude a period without a live worker from the clock of a waiting task."""

    task_id: TaskId
    since: datetime
    until: datetime


@record
class EndTime:
    """Fail a task whose time is up while it waits for subtasks; with `report`, let its agent
    report first.
    """

    task_id: TaskId
    seconds: float
    report: bool = False


@record
class CheckCriteria:
    """Check the criteria of a claimed task by code, and conclude."""

    task_id: TaskId


@record
class AbortTask:
    """Fail a task because of a limit, a dependency or a request that cannot be carried out."""

    task_id: TaskId
    reason: FailReason
    message: Words
    cause: FailCause | None = None
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class ChangeSchedule:
    """Set when a task may start, and when it recurs."""

    task_id: TaskId
    schedule: Schedule | None = None


@record
class SettleBudget:
    """Record the actual usage of model calls and their tool calls."""

    task_id: TaskId
    usage: Usage
    tool_summary: tuple[ToolCount, ...] = ()


Operation = (
    CreateTask
    | CreateSubtask
    | UpdateTask
    | CompleteTask
    | FailTask
    | WaiveCriterion
    | CancelTask
    | PauseTask
    | ResumeTask
    | RunTask
    | RerunTask
    | AssignTask
    | AttachTsg
    | UpdateSteps
    | UpdateStep
    | AddResource
    | RemoveResource
    | SendMessage
    | AskUser
    | Respond
    | NotifyUser
    | CreateGuide
)
"""Commands of people, programs and agents."""

Signal = (
    AwaitTask
    | StartRun
    | DeliverUpdates
    | AwaitSubtask
    | SetTimer
    | YieldRun
    | VouchResult
    | FinishRun
    | ReleaseRun
    | FailRun
    | TimeOutRun
    | LoseRun
    | FireTimer
    | Tick
    | SettleSubtask
    | CheckCriteria
    | AbortTask
    | ChangeSchedule
    | SettleBudget
)
"""Commands of remit's engine."""

Command = (
    Operation
    | Signal
    | CreateDelegated
    | CreateCached
    | Delegate
    | SettleSubtasks
    | EndTime
    | ExcludeDowntime
    | ReleaseDependents
)
