"""What happened: stored for ever, never renamed, never changed."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from remit.domain.record import record
from remit.domain.value import (
    CancelReason,
    ChildWait,
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
    """A task exists, as a draft or ready to be worked on."""

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
    """The surface through which its tree was created, where that matters (`mcp`)."""
    effort: Effort | None = None
    """How much its model thinks, where the task sets it."""
    series_id: str | None = None
    """The first task of the series that this one continues: a task with a calendar recurs."""
    created_by: str | None = None
    """Who created it, where that is not the actor: the creator of a series created all its tasks."""
    has_instructions: bool = False
    """Whether instructions or a description were given that read like the title; without any, the title stands for them."""
    title_outdated: bool = False
    """Whether the title stood for instructions that changed before this successor was created."""
    description_only: bool = False
    """Whether a description was given and no instructions: the description stands for them."""


@record
class TaskAwaited:
    """A caller began to wait for the end of a task that was not delegated; it never waits for a tick again."""


@record
class TaskActivated:
    """A draft may be worked on now."""


@record
class TaskRevised:
    """Fields that the agent need not be told of have changed; what is absent stayed."""

    title: str | None = None
    description: str | None = None
    priority: int | None = None
    labels: tuple[str, ...] | None = None
    metadata: Mapping[str, Json] | None = None
    limits: Limits | None = None


@record
class TaskReassigned:
    """Another agent owns the task; only possible before its first start."""

    owner: str


@record
class TaskAssigned:
    """An outside session works on the task from here on."""

    session_id: str


@record
class TaskSuperseded:
    """A successor takes over."""

    by: str


@record
class ParentReplaced:
    """The task hangs below the successor of its parent, and in another tree where that is a root now."""

    parent_id: str
    root_id: str | None = None
    depth: int | None = None


@record
class InstructionsUpdated:
    """The instructions have changed."""

    update_id: str
    instructions: str
    description: str | None = None
    """The new description of a task whose description stood for its instructions."""
    terms_version: int = 0
    """The version of the terms (instructions, acceptance, outputs) after it; 0 in events from before versions were counted."""
    title: str | None = None
    """The new title of a task whose title was taken from its instructions."""
    has_instructions: bool = False
    """Whether they were given to a task whose title stood for them, or read like its title."""


@record
class AcceptanceUpdated:
    """The acceptance criteria have changed."""

    update_id: str
    acceptance: tuple[Criterion, ...]
    terms_version: int = 0
    """The version of the terms (instructions, acceptance, outputs) after it; 0 in events from before versions were counted."""


@record
class OutputsUpdated:
    """The required outputs have changed."""

    update_id: str
    outputs: tuple[Output, ...]
    terms_version: int = 0
    """The version of the terms (instructions, acceptance, outputs) after it; 0 in events from before versions were counted."""


@record
class MessageSent:
    """Somebody said something to the agent."""

    update_id: str
    message: str


@record
class UpdateDelivered:
    """These updates are in the agent's next request."""

    update_ids: tuple[str, ...]
    run_id: str | None = None
    session_id: str | None = None
    turn: int = 0


@record
class StepsReplaced:
    """The plan is a new one."""

    steps: tuple[Step, ...]


@record
class StepUpdated:
    """One step has changed; what is absent stayed."""

    index: int
    title: str | None = None
    details: str | None = None
    done: bool | None = None


@record
class SubtaskLinked:
    """A subtask belongs to this task, in place of `replaces` where it is a successor."""

    child_id: str
    step_index: int | None = None
    wait: ChildWait = "wake"
    replaces: str | None = None


@record
class ResourceAdded:
    """A resource is attached."""

    resource: Resource


@record
class ResourceRemoved:
    """A resource is gone."""

    index: int


@record
class GuideAttached:
    """A guide is linked."""

    guide_id: str


@record
class DependenciesChanged:
    """The task waits for other tasks than before."""

    depends_on: tuple[Dependency, ...]


@record
class ScheduleChanged:
    """The task starts at other times than before."""

    schedule: Schedule | None = None


@record
class TaskStarted:
    """Work has begun for the first time; the owner is sealed."""


@record
class RunStarted:
    """A worker is at it."""

    run_id: str
    worker: str


@record
class AgentReminded:
    """A final message left steps open, or did not complete a task that needs complete_task; the run goes on for one more turn."""

    update_id: str
    message: str
    final_message: str
    open_steps: tuple[int, ...] = ()


@record
class RunYielded:
    """The run ended in order and waits; `tick` where it waits for nothing but the next wake."""

    run_id: str
    final_message: str | None = None
    tick: bool = False
    tool_summary: tuple[ToolCount, ...] = ()


@record
class RunReleased:
    """The worker gave the task back unharmed, perhaps for later."""

    run_id: str
    tool_summary: tuple[ToolCount, ...] = ()
    retry_seconds: float | None = None


@record
class RunFailed:
    """The run ended in an error; whoever caused it may have said when to come back."""

    run_id: str
    error: str
    tool_summary: tuple[ToolCount, ...] = ()
    retry_seconds: float | None = None


@record
class RunTimedOut:
    """The run stood idle for too long."""

    run_id: str
    error: str
    tool_summary: tuple[ToolCount, ...] = ()


@record
class RunLost:
    """The worker of the run is gone; its time counts until it was last heard of. Older events do not say when that was."""

    run_id: str
    last_seen_at: datetime | None = None


@record
class UserInteractionRequested:
    """A person is asked."""

    interaction_id: str
    question: str
    options: tuple[str, ...] = ()
    blocking: bool = True
    call_id: str | None = None
    allow_other: bool = False
    """Whether an answer may be another than one of the options."""
    asked_by: str | None = None
    """Who asks, where that is not the actor: remit itself asks how a task should continue."""


@record
class UserInteractionResponded:
    """A person answered."""

    interaction_id: str
    answer: str


@record
class UserNotified:
    """A person is told something."""

    notification_id: str
    message: str


@record
class SubtaskAwaited:
    """The run will wait for a subtask."""

    child_id: str
    call_id: str | None = None


@record
class SubtaskSettled:
    """A subtask reached its end."""

    child_id: str
    state: str
    summary: str | None = None
    failure_reason: str | None = None
    update_id: str | None = None
    """The update by which the agent is told; None if the answer to a tool call tells it."""
    report: str | None = None
    """What the agent is told."""


@record
class TimerSet:
    """The run will wait for a point in time."""

    timer_id: str
    due_at: datetime
    call_id: str | None = None


@record
class TimerFired:
    """A wait that needs no answer, or has gone on for long enough, is over, and why; a timeout interrupts the wait for the last report."""

    ref: str
    cause: WakeCause = "timer"


@record
class ClockStopped:
    """Everybody it waits for waits for a person, and so its time stands still."""


@record
class ClockStarted:
    """Somebody it waits for can work again."""


@record
class DowntimeExcluded:
    """Its clock ran while no worker was there to go on: that time does not count."""

    since: datetime
    until: datetime


@record
class TaskPaused:
    """Nobody works on it until it is resumed."""

    by_agent: bool = False


@record
class TaskResumed:
    """It goes on where it was."""


@record
class ResultVouched:
    """The live run found everything that its result depends on to be as it was when the task was made."""

    run_id: str


@record
class CompletionClaimed:
    """Somebody says that it is done."""

    run_id: str | None = None
    outputs: Mapping[str, Json] | None = None
    summary: str | None = None
    final_message: str | None = None
    tool_summary: tuple[ToolCount, ...] = ()


@record
class CriterionChecked:
    """A criterion has been looked at."""

    criterion_id: str
    status: CriterionStatus
    evidence: str | None = None


@record
class CriterionWaived:
    """A named person does not insist on a criterion."""

    criterion_id: str
    reason: str


@record
class AcceptanceRejected:
    """It is not done yet: these are the gaps."""

    update_id: str
    gaps: tuple[str, ...]
    missing_outputs: bool = False
    told: bool = False
    """The agent was told in the answer to its claim, so that this is no update."""
    message: str | None = None
    """What the agent is told; events from before there was such a message have none."""


@record
class TaskCompleted:
    """Done, with what stands behind it."""

    verification: Verification


@record
class TaskFailed:
    """It ended without success."""

    reason: FailReason
    message: str
    cause: FailCause | None = None


@record
class TaskCanceled:
    """It was called off."""

    reason: CancelReason
    message: str | None = None


@record
class BudgetReserved:
    """Tokens and money are set aside before a model call."""

    reservation_id: str
    run_id: str
    tokens: int
    cost: float = 0.0


@record
class BudgetSettled:
    """What model calls, and the tools they called for, really used."""

    reservation_id: str
    run_id: str
    usage: Usage
    tool_summary: tuple[ToolCount, ...] = ()


@record
class GuideCreated:
    """A guide exists."""

    id: str
    title: str
    body: str


@record
class KeyClaimed:
    """An idempotency key stands for this task for ever."""

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
    | BudgetReserved
    | BudgetSettled
)
"""What can stand in a task's stream."""

LANGUAGE = 3
"""How much of the language of events this version knows: one more for each change of it (`tests/golden/language.json`)."""

SINCE: dict[type[Any], int] = {
    TaskCreated: 3,
    TaskAwaited: 2,
    AgentReminded: 2,
    RunLost: 2,
    DowntimeExcluded: 2,
    TaskFailed: 2,
    InstructionsUpdated: 3,
    AcceptanceUpdated: 2,
    OutputsUpdated: 2,
    AcceptanceRejected: 2,
    SubtaskSettled: 2,
    UserInteractionRequested: 2,
    TaskPaused: 2,
}
"""The events that came, or got another shape, after language 1, each with the language that it belongs to now."""

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
    },
    UserInteractionRequested: {"allow_other": 2, "asked_by": 2},
    RunLost: {"last_seen_at": 2},
    TaskFailed: {"cause": 2},
    InstructionsUpdated: {"description": 2, "terms_version": 2, "title": 2, "has_instructions": 3},
    AcceptanceUpdated: {"terms_version": 2},
    OutputsUpdated: {"terms_version": 2},
    AcceptanceRejected: {"message": 2},
    SubtaskSettled: {"update_id": 2, "report": 2},
    TaskPaused: {"by_agent": 2},
}
"""The fields that an older event got later, each with its language.

An event in which all of them have their defaults is stored as it was before, so it is of language 1: a task from before must replay
to the row that it has.
"""


@record
class Entry:
    """An event as it stands in its stream."""

    id: str
    stream: str
    version: int
    at: datetime
    actor: str
    event: Event | GuideCreated | KeyClaimed


class Stored(NamedTuple):
    """An event as a store keeps it: its data as JSON text, chained by hash to the one before it in its stream."""

    id: str
    stream: str
    version: int
    type: str
    at: str
    actor: str
    data: str
    hash: bytes
