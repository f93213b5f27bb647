"""What can be asked of remit: each docstring is the operation's description, each field's text its parameter's."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from remit.domain.record import Coerce, Items, Range, Text, record
from remit.domain.value import (
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

CHECK = 'How code checks it: {"file": path, "contains"?: text} or {"output": name, "equals"?: value, "contains"?: text}.'


@record
class NewCriterion:
    """An acceptance criterion as it is given."""

    text: Words
    check: Annotated[Json, CHECK] = None


@record
class NewStep:
    """A step as it is given; links to subtasks are made by create_subtask alone."""

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
"""What an agent changes its plan with; empty if it can only follow it."""
RunId = Annotated[str, Text(1, 64, "characters")]
CallId = Annotated[str, Text(1, 256, "characters")]
Worker = Annotated[str, Text(1, 256, "characters")]


@record
class Brief:
    """What every new task is given."""

    title: Annotated[Title, "A short, clear name."]
    instructions: Annotated[Words, "What to do."] | None = None
    description: Annotated[Body, "Why it is needed, and the context."] | None = None
    acceptance: Annotated[Acceptance, "What must be true when it is done."] = ()
    outputs: Annotated[Outputs, "What complete_task must hand over."] = ()
    tsgs: Annotated[Guides, "Ids of troubleshooting guides to link."] = ()
    steps: Annotated[Steps, "The plan, in order."] = ()
    resources: Annotated[Resources, "URLs and absolute file paths to use."] = ()
    priority: Annotated[Priority, "0 (urgent) to 4 (low)."] = 2
    depends_on: Annotated[Dependencies, "Ids of tasks that must be done first."] = ()
    model: Annotated[Model, "main, light or provider:name."] | None = None
    effort: Annotated[Effort, "How much its model thinks; none sends nothing."] | None = None
    tools: Annotated[Grant, "Names of the tools it may use."] = Tools()
    limits: Annotated[Limits, "Limits for the work."] = Limits()
    labels: Annotated[Labels, "Words to find it by."] = ()
    metadata: Annotated[Metadata, "Other data, stored as given."] | None = None
    completion: Annotated[Completion, "auto: the last message completes it; explicit: only complete_task does."] = "auto"
    channel: Annotated[Channel, "Channel of its conversation."] = "local"
    schedule: Annotated[Schedule, "When it may start."] | None = None
    status: Annotated[Literal["active", "draft"], "draft: nobody works on it yet."] = "active"
    parent_session: Annotated[SessionId, "Session of the caller."] | None = None
    session_id: Annotated[SessionId, "Outside session that will work on it."] | None = None
    idempotency_key: Annotated[IdempotencyKey, "Repeating a call with the same key returns the same task."] | None = None


@record
class CreateTask(Brief):
    """Create a task that its owner, an agent, works on by itself; to wait for a result, use task."""

    owner: Annotated[AgentId, "Id of the agent that does it."] | None = None


@record
class CreateDelegated(CreateTask):
    """Create a task that its caller delegates; only the operations that delegate make it."""


@record
class CreateCached(CreateDelegated):
    """Create a task whose result may answer for others; nobody outside can say what it is known by."""

    cache_key: str


@record
class CreateSubtask(Brief):
    """Create a subtask of a task, for a step of its plan if step_index is given."""

    task_id: Annotated[TaskId, "Id of the parent task."]
    owner: Annotated[AgentId, "Id of the agent that does it."]
    step_index: Annotated[Index, "The step it does, from 0."] | None = None
    wait: Annotated[ChildWait, "wake: its end wakes the parent; block: wait for its result; none: neither."] = "wake"


@record
class CreateCachedSubtask(CreateSubtask):
    """Create a subtask whose result may answer for others."""

    cache_key: str


@record
class UpdateTask:
    """Change a task; its agent is told before its next step."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    title: Annotated[Title, "New title."] | None = None
    description: Annotated[Words, "New description."] | None = None
    instructions: Annotated[Words, "New instructions."] | None = None
    acceptance: Annotated[Acceptance, "New criteria, all of them."] | None = None
    outputs: Annotated[Outputs, "New required outputs, all of them."] | None = None
    status: Annotated[Literal["active", "done", "canceled"], "active starts a draft."] | None = None
    owner: Annotated[AgentId, "Another agent; a started task gets a successor."] | None = None
    priority: Annotated[Priority, "0 (urgent) to 4 (low)."] | None = None
    depends_on: Annotated[Dependencies, "New dependencies, before it starts."] | None = None
    labels: Annotated[Labels, "New labels, all of them."] | None = None
    metadata: Annotated[Metadata, "New metadata, all of it."] | None = None
    limits: Annotated[Limits, "New limits, all of them."] | None = None
    expected_version: Annotated[Count, "Refuse the change if the task has another version."] | None = None


@record
class CompleteTask:
    """Complete a task and hand over its required outputs."""

    task_id: Annotated[TaskId, "Id of the task, such as 42."]
    outputs: Annotated[Metadata, "The required outputs, by name."] | None = None
    summary: Annotated[Body, "What was done, in short."] | None = None


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
    """Do an ended task again, as a new task in its place."""

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
    """Replace the plan; keep steps that have a subtask in their place."""

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
    allow_other: Annotated[bool, "true: the answer may be other than the options."] = False
    blocking: Annotated[bool, "false: do not wait; the answer comes as a message."] = True
    call_id: Annotated[CallId, "The open tool call that gets the answer."] | None = None


@record
class Respond:
    """Answer a question of an agent; only the first answer counts."""

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
    body: Annotated[Words, "What to do when that goes wrong."]
    id: Annotated[GuideId, "Its id; without one it is made from the title."] | None = None


@record
class AwaitTask:
    """A caller begins to wait for the end of a task; if the task waits for a tick, it is woken."""

    task_id: TaskId


@record
class StartRun:
    """A worker begins to work on a task."""

    task_id: TaskId
    worker: Worker


@record
class DeliverUpdates:
    """Take what is queued for the agent into its next request; a session's first request starts its task."""

    task_id: TaskId
    turn: Count = 0
    session_id: SessionId | None = None
    update_ids: tuple[Line, ...] | None = None
    """Those that are in it; without a list, all that are queued."""


@record
class AwaitSubtask:
    """The run will wait for a subtask, and no longer than until an instant if one is given."""

    task_id: TaskId
    child_id: TaskId
    call_id: CallId | None = None
    until: datetime | None = None


@record
class SetTimer:
    """The run will wait for a point in time."""

    task_id: TaskId
    due_at: datetime
    call_id: CallId | None = None


@record
class YieldRun:
    """The run ends and waits for what it has asked for."""

    task_id: TaskId
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class FinishRun:
    """The run ends with a final message."""

    task_id: TaskId
    final_message: Body
    plan_tool: PlanTool = "update_step"
    outputs: Mapping[str, Json] | None = None
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class VouchResult:
    """The run is about to end, and whatever its result depends on is as it was when the task was made."""

    task_id: TaskId


@record
class ReleaseRun:
    """The worker gives the task back unharmed; not before the seconds that were named anybody should take it again."""

    task_id: TaskId
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()
    retry_seconds: float | None = None


@record
class FailRun:
    """The run ends in an error; a permanent one ends the task, another is tried again, not before the seconds that were named."""

    task_id: TaskId
    error: Words
    permanent: bool = False
    cause: FailCause | None = None
    retry_seconds: float | None = None
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class TimeOutRun:
    """The run stood idle for too long."""

    task_id: TaskId
    error: Words
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class LoseRun:
    """The run's worker is gone; it was last heard of at an instant, or never after the run began."""

    task_id: TaskId
    run_id: RunId
    last_seen_at: datetime | None = None


@record
class FireTimer:
    """A timer that a task waits for is due."""

    task_id: TaskId
    timer_id: Line


@record
class Tick:
    """The scheduler's turn for a task that waits for it."""

    task_id: TaskId


@record
class SettleSubtask:
    """Tell a parent how its subtask ended."""

    task_id: TaskId
    child_id: TaskId
    state: Literal["done", "failed", "canceled"]
    summary: str | None = None
    failure_reason: str | None = None
    report: str | None = None
    """What the agent of the parent is told, unless the answer to a tool call tells it."""
    ahead: int = 1
    """Which of the next updates of the parent this one is, where several subtasks end at once."""


@record
class Delegate:
    """Make several subtasks at once and wait for those that block; each is the answer to a tool call."""

    task_id: TaskId
    subtasks: tuple[CreateSubtask, ...]


@record
class SettleSubtasks:
    """Tell a parent of every subtask that has ended since it was last told."""

    task_id: TaskId


@record
class ReleaseDependents:
    """See who waited for a task that has ended: they are ready, or can never be."""

    task_id: TaskId


@record
class ExcludeDowntime:
    """While a task waited with its clock running, no worker was there to go on: that time does not count."""

    task_id: TaskId
    since: datetime
    until: datetime


@record
class EndTime:
    """See whether the time of a task is up that waits for its subtasks; where its agent can, it reports before it fails."""

    task_id: TaskId
    seconds: float
    report: bool = False


@record
class CheckCriteria:
    """Decide every criterion of a claimed task that code decides, and conclude."""

    task_id: TaskId


@record
class AbortTask:
    """End a task because of a limit or a dependency, or because it cannot be carried out as it was asked for."""

    task_id: TaskId
    reason: FailReason
    message: Words
    cause: FailCause | None = None
    tool_summary: tuple[ToolCount, ...] = ()
    usage: Usage = Usage()


@record
class ChangeSchedule:
    """Set when a task may start, or starts again."""

    task_id: TaskId
    schedule: Schedule | None = None


@record
class ReserveBudget:
    """Set tokens and money aside before a model call."""

    task_id: TaskId
    reservation_id: Line
    tokens: Count
    cost: Annotated[float, Range(0, 10**9)] = 0.0


@record
class SettleBudget:
    """Record what model calls, and the tools they called for, really used."""

    task_id: TaskId
    reservation_id: Line
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
"""What people, programs and agents may ask."""

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
    | ReserveBudget
    | SettleBudget
)
"""What remit's own engine asks."""

Command = Operation | Signal | CreateDelegated | CreateCached | Delegate | SettleSubtasks | EndTime | ExcludeDowntime | ReleaseDependents
