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
    'How code decides it: {"file": path, "contains"?: text} in the workspace, or {"output": name, "equals"?: value, "contains"?: text} '
    "of what was handed over. A check of another kind is kept and called unverified."
)


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
RunId = Annotated[str, Text(1, 64, "characters")]
CallId = Annotated[str, Text(1, 256, "characters")]
Worker = Annotated[str, Text(1, 256, "characters")]


@record
class Brief:
    """What every new task is given."""

    title: Annotated[Title, "A clear, actionable label."]
    instructions: Annotated[Words, "What to do; without it the description stands in."] | None = None
    description: Annotated[Words, "Why, and the context; without it the instructions stand in."] | None = None
    acceptance: Annotated[Acceptance, "What must be true for the work to count as done."] = ()
    outputs: Annotated[Outputs, "What must be handed over at completion."] = ()
    tsgs: Annotated[Guides, "Troubleshooting guides to link, by id."] = ()
    steps: Annotated[Steps, "The plan."] = ()
    resources: Annotated[Resources, "URLs and absolute file paths that belong to the work."] = ()
    priority: Annotated[Priority, "0 (most urgent) to 4."] = 2
    depends_on: Annotated[Dependencies, "Tasks that must be done, or settled, first."] = ()
    model: Annotated[Model, "main, light, or provider:name."] | None = None
    tools: Annotated[Grant, "Tools it may use; a subtask never more than its parent."] = Tools()
    limits: Annotated[Limits, "How far it may go."] = Limits()
    labels: Annotated[Labels, "Words to find it by."] = ()
    metadata: Annotated[Metadata, "Anything else, kept as it is."] | None = None
    completion: Annotated[Completion, "auto: a run's last message claims completion; explicit: only complete_task does."] = "auto"
    channel: Annotated[Channel, "Where its conversation lives."] = "local"
    schedule: Annotated[Schedule, "When it may start."] | None = None
    status: Annotated[Literal["active", "draft"], "draft keeps it from being worked on."] = "active"
    parent_session: Annotated[SessionId, "The session of whoever creates it."] | None = None
    session_id: Annotated[SessionId, "The outside session that will work on it."] | None = None
    idempotency_key: Annotated[IdempotencyKey, "The same key and body give the same task, for ever."] | None = None


@record
class CreateTask(Brief):
    """Create a task: a unit of work with instructions, acceptance criteria, required outputs and a plan."""

    owner: Annotated[AgentId, "The agent that does the work."] | None = None


@record
class CreateCached(CreateTask):
    """Create a task whose result may answer for others; nobody outside can say what it is known by."""

    cache_key: str


@record
class CreateSubtask(Brief):
    """Create a subtask of a task, linked to a step of its plan if one is named."""

    task_id: Annotated[TaskId, "The parent task."]
    owner: Annotated[AgentId, "The agent that does the work."]
    step_index: Annotated[Index, "The parent's step it carries out, counted from 0."] | None = None
    wait: Annotated[ChildWait, "wake: its end wakes the parent; block: the caller waits for it; none: neither."] = "wake"


@record
class CreateCachedSubtask(CreateSubtask):
    """Create a subtask whose result may answer for others."""

    cache_key: str


@record
class UpdateTask:
    """Change a task; its agent is told of new instructions, acceptance or outputs before its next request."""

    task_id: Annotated[TaskId, "The task."]
    title: Annotated[Title, "A new label."] | None = None
    description: Annotated[Body, "A new description."] | None = None
    instructions: Annotated[Words, "New instructions; they replace the old ones."] | None = None
    acceptance: Annotated[Acceptance, "New criteria; they replace the old ones."] | None = None
    outputs: Annotated[Outputs, "New required outputs; they replace the old ones."] | None = None
    status: Annotated[Literal["active", "done", "canceled"], "active starts a draft, done completes, canceled cancels."] | None = None
    owner: Annotated[AgentId, "Another owner; after the first start this makes a successor."] | None = None
    priority: Annotated[Priority, "0 (most urgent) to 4."] | None = None
    depends_on: Annotated[Dependencies, "Other dependencies; only before the first start."] | None = None
    labels: Annotated[Labels, "New labels; they replace the old ones."] | None = None
    metadata: Annotated[Metadata, "New metadata; it replaces the old."] | None = None
    limits: Annotated[Limits, "New limits; they replace the old ones."] | None = None
    expected_version: Annotated[Count, "Refuse if the task has changed since this version."] | None = None


@record
class CompleteTask:
    """Say that a task is done, and hand over its required outputs."""

    task_id: Annotated[TaskId, "The task."]
    outputs: Annotated[Metadata, "The required outputs by name."] | None = None
    summary: Annotated[Body, "What was done, in short."] | None = None


@record
class FailTask:
    """Say that a task cannot be done, and why."""

    task_id: Annotated[TaskId, "The task."]
    message: Annotated[Words, "Why."]


@record
class WaiveCriterion:
    """Do without an acceptance criterion; only a person can."""

    task_id: Annotated[TaskId, "The task."]
    criterion_id: Annotated[Line, "The criterion."]
    reason: Annotated[Words, "Why it is not needed."]


@record
class CancelTask:
    """Call a task off, with everything below it."""

    task_id: Annotated[TaskId, "The task."]
    message: Annotated[Body, "Why."] | None = None


@record
class PauseTask:
    """Hold a task; its agent stops at the next boundary and keeps its place."""

    task_id: Annotated[TaskId, "The task."]


@record
class ResumeTask:
    """Let a paused task go on."""

    task_id: Annotated[TaskId, "The task."]


@record
class RunTask:
    """Run a task now instead of at the next tick."""

    task_id: Annotated[TaskId, "The task."]


@record
class RerunTask:
    """Do an ended task again, as a new task that takes its place."""

    task_id: Annotated[TaskId, "The ended task."]


@record
class AssignTask:
    """Give a task to an outside session, which gets it with its next request."""

    task_id: Annotated[TaskId, "The task."]
    subagent_session_id: Annotated[SessionId, "The session that will work on it."]


@record
class AttachTsg:
    """Link a troubleshooting guide to a task."""

    task_id: Annotated[TaskId, "The task."]
    tsg_id: Annotated[GuideId, "The guide."]


@record
class UpdateSteps:
    """Replace the plan; a step with a subtask must keep its place and title."""

    task_id: Annotated[TaskId, "The task."]
    steps: Annotated[Steps, "The whole new plan."]


@record
class UpdateStep:
    """Change one step: its title, its details, or whether it is done."""

    task_id: Annotated[TaskId, "The task."]
    index: Annotated[Index, "Which step, counted from 0."]
    title: Annotated[StepTitle, "A new title."] | None = None
    details: Annotated[Body, "New details."] | None = None
    done: Annotated[bool, "Whether it is done."] | None = None


@record
class AddResource:
    """Attach a URL or a file to a task."""

    task_id: Annotated[TaskId, "The task."]
    type: Annotated[Literal["url", "file"], "What it is."]
    value: Annotated[str, Text(1, 4096, "characters"), "The URL, or the file's absolute path."]
    label: Annotated[Title, "A name to show."] | None = None


@record
class RemoveResource:
    """Take a resource off a task."""

    task_id: Annotated[TaskId, "The task."]
    index: Annotated[Index, "Which resource, counted from 0."]


@record
class SendMessage:
    """Say something to the agent of a task; it reads it with its next request."""

    task_id: Annotated[TaskId, "The task."]
    message: Annotated[Words, "What to say."]


@record
class AskUser:
    """Ask a person, and wait for the answer unless told otherwise."""

    task_id: Annotated[TaskId, "The asking task."]
    question: Annotated[Words, "What to ask."]
    options: Annotated[tuple[Line, ...], Items(32), "Answers to choose from."] = ()
    blocking: Annotated[bool, "Whether the task waits for the answer."] = True
    call_id: Annotated[CallId, "The open tool call that gets the answer."] | None = None


@record
class Respond:
    """Answer a question; the first answer stands."""

    interaction_id: Annotated[Line, "The question."]
    answer: Annotated[Words, "The answer."]


@record
class NotifyUser:
    """Tell a person something without waiting."""

    task_id: Annotated[TaskId, "The task that speaks."]
    message: Annotated[Words, "What to say."]


@record
class CreateGuide:
    """Write a troubleshooting guide that tasks can link to."""

    title: Annotated[Title, "What it helps with."]
    body: Annotated[Words, "What to do when that goes wrong."]
    id: Annotated[GuideId, "Its id; without one it is made from the title."] | None = None


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
    """The run's worker is gone."""

    task_id: TaskId
    run_id: RunId


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
    StartRun
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

Command = Operation | Signal | CreateCached | Delegate | SettleSubtasks | EndTime | ReleaseDependents
