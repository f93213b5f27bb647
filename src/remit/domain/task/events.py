"""The events. They are stored forever, so they are never renamed or changed."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from remit.domain.records.record import record
from remit.domain.task.task import (
    CancelReason,
    ChildWait,
    ClaimedFrom,
    Completion,
    Criterion,
    CriterionStatus,
    Dependency,
    Effort,
    FailCause,
    FailReason,
    Json,
    Limits,
    Output,
    Resource,
    Schedule,
    Step,
    ToolCount,
    Tools,
    Usage,
    Verification,
    WakeCause,
)


@record
class TaskCreated:
    """A task was created, as a draft or ready to run."""

    id: str
    uid: str
    thread_id: str
    title: str
    description: str
    instructions: str
    draft: bool = False
    acceptance: tuple[Criterion, ...] = ()
    completion: Completion = "auto"
    outputs: tuple[Output, ...] = ()
    guides: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    resources: tuple[Resource, ...] = ()
    owner: str | None = None
    parent_id: str | None = None
    step_index: int | None = None
    root_id: str
    depth: int = 0
    depends_on: tuple[Dependency, ...] = ()
    schedule: Schedule | None = None
    rerun_of: str | None = None
    channel: str = "local"
    session_id: str | None = None
    parent_session_id: str | None = None
    model: str | None = None
    tools: Tools = Tools()
    priority: int = 2
    limits: Limits = Limits()
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Json] | None = None
    idempotency_key: str | None = None
    cache_key: str | None = None
    awaited: bool = False
    """Whether the task was delegated, so that it never waits for a tick."""
    creator_task_id: str | None = None
    """The task whose run created this one."""
    via: str | None = None
    """The surface that created its tree: `mcp`, or None for every other surface."""
    effort: Effort | None = None
    """The effort of its model, if the task sets it."""
    series_id: str | None = None
    """The first task of the series that this one continues (a task with a cron expression)."""
    created_by: str | None = None
    """The creator, if it is not the actor: all tasks of a series have the creator of the first."""
    has_instructions: bool = False
    """Whether instructions or a description equal to the title were given; without any, the
    title serves as the instructions.
    """
    title_outdated: bool = False
    """Whether the title served as instructions that changed before this successor existed."""
    description_only: bool = False
    """Whether only a description was given, which then serves as the instructions."""
    has_description: bool = False
    """Whether a description equal to the instructions was given; new instructions keep it."""


@record
class TaskAwaited:
    """A caller started to wait for a task that was not delegated; it no longer waits for ticks."""


@record
class TaskActivated:
    """A draft became active."""


@record
class TaskRevised:
    """Fields changed that the agent does not have to know; absent fields are unchanged."""

    title: str | None = None
    description: str | None = None
    priority: int | None = None
    labels: tuple[str, ...] | None = None
    metadata: Mapping[str, Json] | None = None
    limits: Limits | None = None
    has_description: bool = False
    """Whether a description equal to the instructions was given; new instructions keep it."""
    has_instructions: bool = False
    """Whether the new title equals instructions that were given; they do not follow the title."""


@record
class TaskReassigned:
    """The owner changed, which is only possible before the first start."""

    owner: str


@record
class TaskAssigned:
    """The task was assigned to an outside session."""

    session_id: str


@record
class TaskSuperseded:
    """A successor replaced the task."""

    by: str


@record
class ParentReplaced:
    """The task moved to the successor of its parent, and into its tree if that is a new root."""

    parent_id: str
    root_id: str | None = None
    depth: int | None = None


@record
class InstructionsUpdated:
    """The instructions changed."""

    update_id: str
    instructions: str
    description: str | None = None
    """The new description, if the description followed the instructions."""
    terms_version: int = 0
    """The version of the terms (instructions, acceptance, outputs) after the change; 0 in events
    from before versions were counted.
    """
    title: str | None = None
    """The title, if it was derived from the instructions or given, or stays."""
    has_instructions: bool = False
    """Whether they replace a title that served as instructions, or equal the title."""
    has_description: bool = False
    """Whether a description equal to the instructions was given; new instructions keep it."""
    description_only: bool = False
    """Whether they are a description that was added to a title, which still names the task."""
    replaced_hash: str | None = None
    """The hash of the old instructions, if reads returned them as the description too."""


@record
class AcceptanceUpdated:
    """The acceptance criteria changed."""

    update_id: str
    acceptance: tuple[Criterion, ...]
    terms_version: int = 0
    """The version of the terms (instructions, acceptance, outputs) after the change; 0 in events
    from before versions were counted.
    """


@record
class OutputsUpdated:
    """The required outputs changed."""

    update_id: str
    outputs: tuple[Output, ...]
    terms_version: int = 0
    """The version of the terms (instructions, acceptance, outputs) after the change; 0 in events
    from before versions were counted.
    """


@record
class MessageSent:
    """A message was sent to the agent."""

    update_id: str
    message: str
    question: str | None = None
    """The agent's question that the message answers; None for any other message."""


@record
class UpdateDelivered:
    """Updates were included in the agent's next request."""

    update_ids: tuple[str, ...]
    run_id: str | None = None
    session_id: str | None = None
    turn: int = 0


@record
class StepsReplaced:
    """The plan was replaced."""

    steps: tuple[Step, ...]


@record
class StepUpdated:
    """A step changed; absent fields are unchanged."""

    index: int
    title: str | None = None
    details: str | None = None
    done: bool | None = None


@record
class SubtaskLinked:
    """A subtask was added to this task; a successor takes the place of `replaces`."""

    child_id: str
    step_index: int | None = None
    wait: ChildWait = "wake"
    replaces: str | None = None


@record
class ResourceAdded:
    """A resource was added."""

    resource: Resource


@record
class ResourceRemoved:
    """A resource was removed."""

    index: int


@record
class GuideAttached:
    """A guide was linked."""

    guide_id: str


@record
class DependenciesChanged:
    """The dependencies changed."""

    depends_on: tuple[Dependency, ...]


@record
class ScheduleChanged:
    """The schedule changed."""

    schedule: Schedule | None = None


@record
class TaskStarted:
    """The task started for the first time; its owner can no longer change."""


@record
class RunStarted:
    """A worker started a run."""

    run_id: str
    worker: str


@record
class AgentReminded:
    """The agent was reminded of open steps or of complete_task; the run gets one more turn."""

    update_id: str
    message: str
    final_message: str
    open_steps: tuple[int, ...] = ()


@record
class RunYielded:
    """The run ended and the task waits; with `tick`, only for the next wake."""

    run_id: str
    final_message: str | None = None
    tick: bool = False
    tool_summary: tuple[ToolCount, ...] = ()


@record
class RunReleased:
    """The worker gave the task back without a failure."""

    run_id: str
    tool_summary: tuple[ToolCount, ...] = ()
    retry_seconds: float | None = None


@record
class RunFailed:
    """The run ended with an error; `retry_seconds` is the delay that the service asked for."""

    run_id: str
    error: str
    tool_summary: tuple[ToolCount, ...] = ()
    retry_seconds: float | None = None


@record
class RunTimedOut:
    """The run was idle for too long."""

    run_id: str
    error: str
    tool_summary: tuple[ToolCount, ...] = ()


@record
class RunLost:
    """The worker stopped responding; the run counts up to its last heartbeat, which older events
    do not contain.
    """

    run_id: str
    last_seen_at: datetime | None = None


@record
class UserInteractionRequested:
    """A question was asked to a person."""

    interaction_id: str
    question: str
    options: tuple[str, ...] = ()
    blocking: bool = True
    call_id: str | None = None
    allow_other: bool = False
    """Whether the answer may differ from the options."""
    asked_by: str | None = None
    """The asker and actor, if it is not the agent: remit asks how a task should continue."""


@record
class UserInteractionResponded:
    """A person answered."""

    interaction_id: str
    answer: str


@record
class UserNotified:
    """A message was sent to a person."""

    notification_id: str
    message: str


@record
class SubtaskAwaited:
    """The run started to wait for a subtask."""

    child_id: str
    call_id: str | None = None


@record
class SubtaskSettled:
    """A subtask ended."""

    child_id: str
    state: str
    summary: str | None = None
    failure_reason: str | None = None
    update_id: str | None = None
    """The update that reports it to the agent; None if a tool result does."""
    report: str | None = None
    """The report for the agent."""


@record
class TimerSet:
    """The run started to wait until an instant."""

    timer_id: str
    due_at: datetime
    call_id: str | None = None


@record
class TimerFired:
    """The instant came that the task waited for."""

    ref: str


@record
class TaskWoken:
    """A wait ended early: a tick, a caller, an update or a message woke the task, or its time is
    up and its agent gets a last turn to report. A question of remit itself, named by `ref`, is
    closed.
    """

    ref: str
    cause: WakeCause


@record
class ClockStopped:
    """The clock stopped: all subtasks that the task waits for wait for a person."""


@record
class ClockStarted:
    """The clock started again: a subtask that the task waits for can continue."""


@record
class DowntimeExcluded:
    """A period without a live worker was excluded from the clock."""

    since: datetime
    until: datetime


@record
class TaskPaused:
    """The task was paused."""

    by_agent: bool = False


@record
class TaskResumed:
    """The task was resumed in its previous state."""


@record
class ResultVouched:
    """The live run found everything its result depends on unchanged since the creation."""

    run_id: str


@record
class CompletionClaimed:
    """The completion of the task was claimed."""

    run_id: str | None = None
    outputs: Mapping[str, Json] | None = None
    summary: str | None = None
    final_message: str | None = None
    tool_summary: tuple[ToolCount, ...] = ()
    by: str | None = None
    """The person or agent that claims instead of the task's own agent or session."""
    claimed_from: ClaimedFrom | None = None
    """The state of a draft or a paused task, which returns to it if the claim is rejected."""


@record
class CriterionChecked:
    """A criterion was checked."""

    criterion_id: str
    status: CriterionStatus
    evidence: str | None = None


@record
class CriterionWaived:
    """A person waived a criterion."""

    criterion_id: str
    reason: str


@record
class AcceptanceRejected:
    """A claim was rejected because of gaps."""

    update_id: str
    gaps: tuple[str, ...]
    missing_outputs: bool = False
    told: bool = False
    """Whether the tool result of the claim told the agent, so that there is no update."""
    message: str | None = None
    """The message for the agent; older events have none."""
    final_message: str | None = None
    """The final message of the run, if the run did not call complete_task."""
    outdated: bool = False
    """Whether the claim was withdrawn because the terms changed; this event is not an update."""


@record
class TaskCompleted:
    """The task is done."""

    verification: Verification


@record
class TaskFailed:
    """The task failed."""

    reason: FailReason
    message: str
    cause: FailCause | None = None


@record
class TaskCanceled:
    """The task was canceled."""

    reason: CancelReason
    message: str | None = None


@record
class BudgetSettled:
    """The actual usage of model calls and their tool calls was recorded."""

    run_id: str
    usage: Usage
    tool_summary: tuple[ToolCount, ...] = ()


@record
class GuideCreated:
    """A guide was created."""

    id: str
    title: str
    body: str


@record
class KeyClaimed:
    """An idempotency key was bound to a task forever."""

    key: str
    body_hash: str
    task_id: str


Event = (
    TaskCreated
    | TaskAwaited
    | TaskActivated
    | TaskRevised
    | TaskReassigned
    | TaskAssigned
    | TaskSuperseded
    | ParentReplaced
    | InstructionsUpdated
    | AcceptanceUpdated
    | OutputsUpdated
    | MessageSent
    | UpdateDelivered
    | StepsReplaced
    | StepUpdated
    | SubtaskLinked
    | ResourceAdded
    | ResourceRemoved
    | GuideAttached
    | DependenciesChanged
    | ScheduleChanged
    | TaskStarted
    | RunStarted
    | AgentReminded
    | RunYielded
    | RunReleased
    | RunFailed
    | RunTimedOut
    | RunLost
    | UserInteractionRequested
    | UserInteractionResponded
    | UserNotified
    | SubtaskAwaited
    | SubtaskSettled
    | TimerSet
    | TimerFired
    | TaskWoken
    | ClockStopped
    | ClockStarted
    | DowntimeExcluded
    | TaskPaused
    | TaskResumed
    | ResultVouched
    | CompletionClaimed
    | CriterionChecked
    | CriterionWaived
    | AcceptanceRejected
    | TaskCompleted
    | TaskFailed
    | TaskCanceled
    | BudgetSettled
)
"""The events of a task's stream."""

LANGUAGE = 7
"""The event language of this version; incremented with each change of an event
(`tests/golden/language.json`).
"""

SINCE: dict[type[Any], int] = {
    TaskCreated: 4,
    TaskRevised: 5,
    TaskAwaited: 2,
    AgentReminded: 2,
    RunLost: 2,
    DowntimeExcluded: 2,
    TaskFailed: 2,
    InstructionsUpdated: 6,
    AcceptanceUpdated: 2,
    OutputsUpdated: 2,
    MessageSent: 7,
    AcceptanceRejected: 4,
    SubtaskSettled: 2,
    UserInteractionRequested: 2,
    TaskPaused: 2,
    CompletionClaimed: 6,
}
"""The events that were added or changed after language 1, each with its current language."""

ADDED: dict[type[Any], dict[str, int]] = {
    TaskCreated: {
        "awaited": 2,
        "creator_task_id": 2,
        "via": 2,
        "effort": 2,
        "series_id": 2,
        "created_by": 2,
        "has_instructions": 3,
        "title_outdated": 3,
        "description_only": 3,
        "has_description": 4,
    },
    TaskRevised: {"has_description": 4, "has_instructions": 5},
    UserInteractionRequested: {"allow_other": 2, "asked_by": 2},
    RunLost: {"last_seen_at": 2},
    TaskFailed: {"cause": 2},
    InstructionsUpdated: {
        "description": 2,
        "terms_version": 2,
        "title": 2,
        "has_instructions": 3,
        "has_description": 4,
        "description_only": 5,
        "replaced_hash": 6,
    },
    AcceptanceUpdated: {"terms_version": 2},
    OutputsUpdated: {"terms_version": 2},
    MessageSent: {"question": 7},
    AcceptanceRejected: {"message": 2, "final_message": 4, "outdated": 4},
    SubtaskSettled: {"update_id": 2, "report": 2},
    TaskPaused: {"by_agent": 2},
    CompletionClaimed: {"by": 6, "claimed_from": 6},
}
"""The fields that were added to existing events, each with its language.

An event with only default values in these fields is stored unchanged in language 1, so an old
task replays to the row that it has.
"""


@record
class Entry:
    """An event at its position in a stream."""

    id: str
    stream: str
    version: int
    at: datetime
    actor: str
    event: Event | GuideCreated | KeyClaimed


def includes(events: Iterable[object], kinds: type[Any] | tuple[type[Any], ...]) -> bool:
    """Return whether one of the events is of one of these types."""
    return any(isinstance(event, kinds) for event in events)


def signers(events: Iterable[object], actor: str, owner: str | None) -> list[str]:
    """Return the actor of each event of a task in a commit of `actor`.

    remit is the actor of its own questions. A caller that begins to wait claims nothing: a claim
    that follows from the wait, and its outcome, are by the agent that gave the answer.
    """
    signed: list[str] = []
    is_wait = False
    for event in events:
        is_wait |= isinstance(event, TaskAwaited)
        if is_wait and owner is not None and isinstance(event, CompletionClaimed):
            actor = f"agent:{owner}"
        asked_by = event.asked_by if isinstance(event, UserInteractionRequested) else None
        signed.append(asked_by or actor)
    return signed
