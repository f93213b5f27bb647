"""The task and the values it is made of."""

from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from remit.domain.agent import ID as AGENT_ID
from remit.domain.agent import agent_id
from remit.domain.record import MEGABYTE, Coerce, Items, Matches, Range, Text, record

Json = Any

TASK_ID = r"[1-9][0-9]{0,17}"
UID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def plain_id(value: Any) -> Any:
    """A task id as people write it (42, "#42", an upper-case uid), in its one stored form."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip().removeprefix("#").lower() if isinstance(value, str) else value


TaskId = Annotated[str, Coerce(plain_id), Matches(f"{TASK_ID}|{UID}", "a task id such as 42, #42, or a uid")]
AgentId = Annotated[str, Coerce(agent_id), Matches(AGENT_ID, "an agent id: lower-case letters, digits, - and _, at most 64")]
GuideId = Annotated[str, Matches(r"[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?", "a guide id: lower-case letters, digits, . - and _, at most 128")]
SessionId = Annotated[str, Text(1, 256, "characters")]
Actor = Annotated[str, Matches(r"(?:user|agent|system):[^\s/]{1,128}", "user:<name>, agent:<id> or system:<part>")]
Title = Annotated[str, Text(1, 256, "characters")]
StepTitle = Annotated[str, Text(1, 60, "characters")]
Line = Annotated[str, Text(1, 1000, "characters")]
Body = Annotated[str, Text(0, MEGABYTE)]
Words = Annotated[str, Text(1, MEGABYTE)]
Label = Annotated[str, Text(1, 64, "characters")]
Labels = Annotated[tuple[Label, ...], Items(64)]
Metadata = Annotated[Mapping[str, Json], Items(256)]
ToolName = Annotated[str, Text(1, 128, "characters")]
Count = Annotated[int, Range(0, 2**53)]

NAMED_PRIORITY = {"urgent": 0, "high": 1, "normal": 2, "low": 3}


def plain_priority(value: Any) -> Any:
    """A priority by name, as its number."""
    return NAMED_PRIORITY.get(value, value) if isinstance(value, str) else value


Priority = Annotated[int, Range(0, 4), Coerce(plain_priority, '{"type": "string", "enum": ["urgent", "high", "normal", "low"]}')]
Model = Annotated[str, Matches(r"main|light|[a-z0-9][a-z0-9_.-]*:\S{1,200}", "main, light, or provider:name")]

Effort = Literal["none", "low", "medium", "high"]
"""How much a model thinks; `none` sends no such parameter."""


class State(StrEnum):
    """Where a task is in its life."""

    DRAFT = "draft"
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    VERIFYING = "verifying"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """True once the task can never change again."""
        return self in TERMINAL

    @property
    def status(self) -> str:
        """What boards show."""
        return self.value if self is State.DRAFT or self.terminal else "active"


TERMINAL = frozenset({State.DONE, State.FAILED, State.CANCELED})

FailCause = Literal[
    "model_authentication",
    "model_forbidden",
    "model_not_found",
    "model_quota",
    "model_context",
    "model_unconfigured",
    "model_unreachable",
]
"""Why a task failed with the reason `error`, where the operator can do something about it."""
FailReason = Literal["error", "timeout", "budget", "acceptance", "lost", "rejected", "dependency", "turns"]
CancelReason = Literal["user", "parent", "superseded"]
RunOutcome = Literal["completed", "failed", "timeout", "canceled", "lost", "released", "yielded"]
CriterionStatus = Literal["unchecked", "attested", "pass", "fail", "unverified", "waived"]
Verification = Literal["none", "unverified", "verified"]
Completion = Literal["auto", "explicit"]
OutputKind = Literal["text", "json", "file", "url"]
WaitKind = Literal["user", "subtask", "timer", "tick", "external"]
ChildWait = Literal["wake", "block", "none"]
DependencyRule = Literal["done", "settled"]
UpdateType = Literal["instructions", "acceptance", "outputs", "message", "steps", "rejection", "subtask"]
UpdateStatus = Literal["queued", "delivered", "undelivered"]
InteractionStatus = Literal["open", "answered", "closed"]
WakeCause = Literal["timer", "tick", "run", "update", "message", "timeout"]


@record
class Criterion:
    """One acceptance criterion and what is known of it."""

    id: str
    text: Words
    check: Json = None
    status: CriterionStatus = "unchecked"
    evidence: str | None = None
    by: str | None = None

    @property
    def decided(self) -> bool:
        """False while code has still to look at it."""
        return self.check is None or self.status not in ("unchecked", "attested")


@record
class Output:
    """Something that must be there when the task completes."""

    name: Annotated[str, Text(1, 128, "characters")]
    kind: OutputKind = "text"
    schema: Mapping[str, Json] | None = None
    required: bool = True


@record
class Step:
    """One item of the plan."""

    title: StepTitle
    details: Body | None = None
    done: bool = False
    task_id: str | None = None


@record
class Resource:
    """A URL or a file that belongs to the work."""

    type: Literal["url", "file"]
    value: Annotated[str, Text(1, 4096, "characters")]
    label: Title | None = None


@record
class Dependency:
    """Another task that must be done, or merely settled, before this one starts."""

    task_id: TaskId
    on: DependencyRule = "done"


@record
class Schedule:
    """When a task may start, or starts again."""

    not_before: datetime | None = None
    cron: Annotated[str, Matches(r"\S+(?:\s+\S+){4}", "five cron fields such as 0 6-21 * * *")] | None = None


@record
class Tools:
    """Which tools a task may use or pass on; without an allow list its agent's own set stands."""

    allow: Annotated[tuple[ToolName, ...], Items(256)] | None = None
    deny: Annotated[tuple[ToolName, ...], Items(256)] = ()
    offer: Annotated[tuple[ToolName, ...], Items(256)] | None = None
    """Which of them its own model is shown; the others it can only pass on. Without a list, all."""
    named: Annotated[tuple[ToolName, ...], Items(256)] | None = None
    """Which of them the call itself asks for; the others are defaults of its agent. Without a list, all."""

    def permits(self, tool: str) -> bool:
        """True if this grant, by itself, does not stand in the way of a tool."""
        return tool not in self.deny and (self.allow is None or tool in self.allow)


@record
class Limits:
    """How far a task may go; what is not set has a default."""

    timeout_seconds: Annotated[float, Range(0.001, 31_536_000)] | None = None
    max_turns: Annotated[int, Range(1, 10_000)] | None = None
    max_attempts: Annotated[int, Range(1, 100)] | None = None
    max_tokens: Annotated[int, Range(1, 10**12)] | None = None
    max_cost: Annotated[float, Range(0, 10**9)] | None = None
    max_depth: Annotated[int, Range(0, 32)] | None = None
    max_children: Annotated[int, Range(0, 10_000)] | None = None


@record
class Usage:
    """What a task has consumed."""

    requests: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    tool_calls: Count = 0
    cost: Annotated[float, Range(0, 10**12)] = 0.0

    def beyond(self, known: "Usage") -> "Usage":
        """How much more model use this is than is known already."""
        return Usage(
            requests=max(0, self.requests - known.requests),
            input_tokens=max(0, self.input_tokens - known.input_tokens),
            output_tokens=max(0, self.output_tokens - known.output_tokens),
            cost=max(0.0, self.cost - known.cost),
        )

    def plus(self, other: "Usage") -> "Usage":
        """The sum of both."""
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            tool_calls=self.tool_calls + other.tool_calls,
            cost=self.cost + other.cost,
        )


@record
class Reservation:
    """Tokens and money set aside for a model call that has not come back."""

    id: str
    tokens: int
    cost: float = 0.0


@record
class ToolCount:
    """How often a tool was called."""

    tool: ToolName
    count: Count


@record
class WaitFor:
    """One thing a task waits for; `call_id` names the open tool call that will get the answer."""

    kind: WaitKind
    ref: str
    call_id: str | None = None


@record
class Wait:
    """What a task waits for, and since when."""

    on: tuple[WaitFor, ...]
    since: datetime

    @property
    def holds(self) -> bool:
        """True while an answer is outstanding that nothing else can stand in for."""
        return any(item.call_id is not None or item.kind in ("user", "external") for item in self.on)


@record
class Child:
    """A subtask as its parent knows it; `settled` is the state it ended in."""

    id: str
    wait: ChildWait = "wake"
    settled: str | None = None

    @property
    def holds(self) -> bool:
        """True while it keeps its parent from completing by itself."""
        return self.settled is None and self.wait != "none"


@record
class Run:
    """The live run of a task: its id is the fence that every write of the worker carries."""

    id: str
    worker: str
    started_at: datetime
    progressed: bool = False


@record
class Update:
    """A change the agent has not been told of yet."""

    update_id: str
    type: UpdateType
    content: str
    at: datetime


@record
class Interaction:
    """An open question to a person."""

    id: str
    question: str
    options: tuple[str, ...] = ()
    blocking: bool = True
    asked_by: str
    asked_at: datetime
    call_id: str | None = None
    allow_other: bool = False


@record
class Counts:
    """How many of each numbered part a task has had; ids are made of them and never reused."""

    updates: int = 0
    interactions: int = 0
    notifications: int = 0
    runs: int = 0
    criteria: int = 0
    timers: int = 0


def _number(child: Child) -> int:
    return int(child.id)


@record
class Task:
    """One unit of work, bound to one agent: the record of the contract, as a fold of its events."""

    id: str
    uid: str
    title: str
    description: str
    instructions: str
    instructions_version: int = 1
    acceptance: tuple[Criterion, ...] = ()
    completion: Completion = "auto"
    verification: Verification = "none"
    outputs: tuple[Output, ...] = ()
    completion_outputs: Mapping[str, Json] | None = None
    guides: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    resources: tuple[Resource, ...] = ()
    owner: str | None = None
    created_by: str
    parent_id: str | None = None
    children: tuple[Child, ...] = ()
    step_index: int | None = None
    root_id: str
    depth: int = 0
    depends_on: tuple[Dependency, ...] = ()
    schedule: Schedule | None = None
    rerun_of: str | None = None
    superseded_by: str | None = None
    series_id: str | None = None
    """The first task of the series that this one continues."""
    state: State
    paused_from: State | None = None
    paused_by_agent: bool = False
    """True while it is paused by an agent: no person knows that it waits to be resumed."""
    wait: Wait | None = None
    reason: str | None = None
    failure_reason: str | None = None
    cause: FailCause | None = None
    thread_id: str
    channel: str = "local"
    session_id: str | None = None
    parent_session_id: str | None = None
    model: str | None = None
    effort: Effort | None = None
    tools: Tools = Tools()
    priority: int = 2
    limits: Limits = Limits()
    summary: str | None = None
    final_message: str | None = None
    usage: Usage = Usage()
    reserved: tuple[Reservation, ...] = ()
    tool_summary: tuple[ToolCount, ...] = ()
    duration: float = 0.0
    clock_since: datetime | None = None
    held: bool = False
    """Everybody it waits for waits for a person."""
    overdue: datetime | None = None
    """Since when a task whose time was up while it waited stands in line for its last report."""
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    archived_at: datetime | None = None
    version: int
    language: int = 1
    """The newest language of events that its stream needs: whoever knows less must leave it alone."""
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Json] | None = None
    idempotency_key: str | None = None
    cache_key: str | None = None
    via: str | None = None
    """How the root of its tree was created: `mcp`, or None for every other way."""
    vouched: bool = False
    terms_version: int = 1
    """One more with each change of instructions, acceptance or outputs."""
    has_instructions: bool = False
    """Whether instructions that read like the title were given, so that the title does not stand for them."""
    title_outdated: bool = False
    """Whether the title stood for the instructions, which have changed since."""
    description_only: bool = False
    """Whether a description was given and no instructions, so that it stands for them."""
    awaited: bool = False
    """Whether the task was delegated or a caller has waited for it since."""
    creator_task_id: str | None = None
    """The task whose run created this one."""
    run: Run | None = None
    attempts: int = 0
    rounds: int = 0
    output_asks: int = 0
    idle_runs: int = 0
    reminded: bool = False
    """Whether the agent was told what its final message left undone: once in a task that completes by a message and that a caller
    waits for, else once since it last ended a run by a final message."""
    briefed: bool = False
    queued: tuple[Update, ...] = ()
    questions: tuple[Interaction, ...] = ()
    counts: Counts = Counts()

    def child_index(self, child_id: str) -> int | None:
        """Where a subtask stands, perhaps among thousands: they are in the order of their ids."""
        index = bisect_left(self.children, int(child_id), key=_number)
        return index if index < len(self.children) and self.children[index].id == child_id else None

    def child(self, child_id: str) -> Child | None:
        """A subtask as this task knows it."""
        index = self.child_index(child_id)
        return None if index is None else self.children[index]

    @property
    def delegated(self) -> bool:
        """True for a task that was delegated or that a caller waits for: it never waits for a tick."""
        return self.awaited or self.parent_id is not None

    @property
    def waits_for_tick(self) -> bool:
        """True while the task waits for its next tick."""
        return self.wait is not None and any(item.kind == "tick" for item in self.wait.on)

    @property
    def in_flight(self) -> bool:
        """True while a worker or a session is at it, or its result is being checked."""
        return self.run is not None or self.state in (State.RUNNING, State.VERIFYING)


@record
class Guide:
    """A troubleshooting guide that tasks link to."""

    id: str
    title: str
    body: str
    created_by: str
    created_at: datetime
