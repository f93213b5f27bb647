"""The task and its parts."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from remit.domain.agents.agent import ID as AGENT_ID
from remit.domain.agents.agent import agent_id
from remit.domain.records.record import MEGABYTE, Coerce, Items, Matches, Range, Text, record

Json = Any

TASK_ID = r"[1-9][0-9]{0,17}"
UID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def plain_id(value: Any) -> Any:
    """Convert a task id as people write it (42, "#42", an upper-case uid) to its stored form."""
    if isinstance(value, str):
        return value.strip().removeprefix("#").lower()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


TaskId = Annotated[
    str, Coerce(plain_id), Matches(f"{TASK_ID}|{UID}", "a task id such as 42, #42, or a uid")
]
AgentId = Annotated[
    str,
    Coerce(agent_id),
    Matches(AGENT_ID, "an agent id: lower-case letters, digits, - and _, at most 64"),
]
GuideId = Annotated[
    str,
    Matches(
        r"[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?",
        "a guide id: lower-case letters, digits, . - and _, at most 128",
    ),
]
SessionId = Annotated[str, Text(1, 256, "characters")]
Actor = Annotated[
    str, Matches(r"(?:user|agent|system):[^\s/]{1,128}", "user:<name>, agent:<id> or system:<part>")
]
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
    """Convert the name of a priority to its number."""
    return NAMED_PRIORITY.get(value, value) if isinstance(value, str) else value


Priority = Annotated[
    int,
    Range(0, 4),
    Coerce(plain_priority, '{"type": "string", "enum": ["urgent", "high", "normal", "low"]}'),
]
Model = Annotated[
    str, Matches(r"main|light|[a-z0-9][a-z0-9_.-]*:\S{1,200}", "main, light, or provider:name")
]

Effort = Literal["none", "low", "medium", "high"]
"""How much a model thinks; `none` sends no such parameter."""


class State(StrEnum):
    """The state of a task."""

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
        """Return whether the task has ended and can no longer change."""
        return self in TERMINAL

    @property
    def status(self) -> str:
        """Return the coarse status that boards show."""
        return "active" if self in ACTIVE else self.value


TERMINAL = frozenset({State.DONE, State.FAILED, State.CANCELED})
ACTIVE = frozenset(State) - TERMINAL - {State.DRAFT}

FailCause = Literal[
    "model_authentication",
    "model_forbidden",
    "model_not_found",
    "model_quota",
    "model_context",
    "model_unconfigured",
    "model_unreachable",
]
"""Causes of the failure reason `error` that the operator can fix."""
FailReason = Literal[
    "error", "timeout", "budget", "acceptance", "lost", "rejected", "dependency", "turns"
]
CancelReason = Literal["user", "parent", "superseded"]
CriterionStatus = Literal["unchecked", "attested", "pass", "fail", "unverified", "waived"]
Verification = Literal["none", "unverified", "verified"]
Completion = Literal["auto", "explicit"]
OutputKind = Literal["text", "json", "file", "url"]
WaitKind = Literal["user", "subtask", "timer", "tick"]
ChildWait = Literal["wake", "block", "none"]
DependencyRule = Literal["done", "settled"]
UpdateType = Literal[
    "instructions", "acceptance", "outputs", "message", "steps", "rejection", "subtask"
]
ClaimedFrom = Literal["draft", "paused"]
"""The states to which a task returns after a rejected claim, so that it does not run by itself."""
WakeCause = Literal["tick", "run", "update", "message", "timeout"]


@record
class Criterion:
    """An acceptance criterion and its status."""

    id: str
    text: Words
    check: Json = None
    status: CriterionStatus = "unchecked"
    evidence: str | None = None
    by: str | None = None

    @property
    def decided(self) -> bool:
        """Return whether no check by code is pending."""
        return self.check is None or self.status not in ("unchecked", "attested")


@record
class Output:
    """An output that the task must have when it completes, unless it is optional."""

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
    """A URL or a file that the task uses."""

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
    """When a task may start, and when it recurs."""

    not_before: datetime | None = None
    cron: (
        Annotated[str, Matches(r"\S+(?:\s+\S+){4}", "five cron fields such as 0 6-21 * * *")] | None
    ) = None


@record
class Tools:
    """The tools that a task may use or pass on; without an allow list, those of its agent."""

    allow: Annotated[tuple[ToolName, ...], Items(256)] | None = None
    deny: Annotated[tuple[ToolName, ...], Items(256)] = ()
    offer: Annotated[tuple[ToolName, ...], Items(256)] | None = None
    """The tools that its own model sees; it can only pass on the others. None means all."""
    named: Annotated[tuple[ToolName, ...], Items(256)] | None = None
    """The tools that the call names; the others are defaults of the agent. None means all."""


@record
class Limits:
    """The limits of a task; a limit that is not set has a default."""

    timeout_seconds: Annotated[float, Range(0.001, 31_536_000)] | None = None
    max_turns: Annotated[int, Range(1, 10_000)] | None = None
    max_attempts: Annotated[int, Range(1, 100)] | None = None
    max_tokens: Annotated[int, Range(1, 10**12)] | None = None
    max_cost: Annotated[float, Range(0, 10**9)] | None = None
    max_depth: Annotated[int, Range(0, 32)] | None = None
    max_children: Annotated[int, Range(0, 10_000)] | None = None


@record
class Usage:
    """The model usage of a task."""

    requests: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    tool_calls: Count = 0
    cost: Annotated[float, Range(0, 10**12)] = 0.0

    def beyond(self, known: "Usage") -> "Usage":
        """Return the model usage that exceeds `known`."""
        return Usage(
            requests=max(0, self.requests - known.requests),
            input_tokens=max(0, self.input_tokens - known.input_tokens),
            output_tokens=max(0, self.output_tokens - known.output_tokens),
            cost=max(0.0, self.cost - known.cost),
        )

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            tool_calls=self.tool_calls + other.tool_calls,
            cost=self.cost + other.cost,
        )


@record
class ToolCount:
    """How often a tool was called."""

    tool: ToolName
    count: Count


def by_tool(counts: Iterable[ToolCount]) -> Counter[str]:
    """Return how often each tool was called, by its name."""
    found: Counter[str] = Counter()
    for item in counts:
        found[item.tool] += item.count
    return found


@record
class WaitFor:
    """One item that a task waits for; `call_id` is the open tool call that gets the answer."""

    kind: WaitKind
    ref: str
    call_id: str | None = None

    def names(self, kind: WaitKind, ref: str) -> bool:
        """Return whether it is the item of this kind with this reference."""
        return (self.kind, self.ref) == (kind, ref)


@record
class Wait:
    """What a task waits for, and since when."""

    on: tuple[WaitFor, ...]
    since: datetime

    @property
    def holds(self) -> bool:
        """Return whether the wait needs an answer, so that no other event can end it."""
        return any(item.call_id is not None or item.kind == "user" for item in self.on)


@record
class Child:
    """A subtask as its parent knows it; `settled` is the state it ended in."""

    id: str
    wait: ChildWait = "wake"
    settled: str | None = None

    @property
    def holds(self) -> bool:
        """Return whether it prevents the automatic completion of its parent."""
        return self.settled is None and self.wait != "none"


@record
class Run:
    """The live run of a task; its id is the fence of every write by the worker."""

    id: str
    worker: str
    started_at: datetime
    progressed: bool = False


@record
class Update:
    """A change that has not been delivered to the agent yet."""

    update_id: str
    type: UpdateType
    content: str
    at: datetime
    question: str | None = None
    """The agent's question that a message answers; None for any other update."""


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
    """How many of each numbered part a task has had, for ids that are never reused."""

    updates: int = 0
    interactions: int = 0
    notifications: int = 0
    runs: int = 0
    criteria: int = 0
    timers: int = 0


def prerequisites(depends_on: Iterable[Dependency]) -> tuple[str, ...]:
    """Return the ids of the tasks that some dependencies name."""
    return tuple(item.task_id for item in depends_on)


def _number(child: Child) -> int:
    return int(child.id)


@record
class Task:
    """One unit of work, bound to one agent; a fold of its events."""

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
    handed_by: Mapping[str, str] | None = None
    """Who handed over each output that the task's own agent or session did not hand over."""
    claimed_by: str | None = None
    """Who claimed completion last, if it was not the task's own agent or session."""
    claimed_from: ClaimedFrom | None = None
    """The state to which it returns if the claim that is being checked is rejected."""
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
    """True while an agent has it paused: no person knows that it waits to be resumed."""
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
    tool_summary: tuple[ToolCount, ...] = ()
    duration: float = 0.0
    clock_since: datetime | None = None
    held: bool = False
    """True while all subtasks that it waits for wait for a person."""
    overdue: datetime | None = None
    """When the time of the waiting task was up; set while it is queued for its last report."""
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    archived_at: datetime | None = None
    version: int
    language: int = 1
    """The newest event language in its stream; versions that do not know it must not change the
    task.
    """
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Json] | None = None
    idempotency_key: str | None = None
    cache_key: str | None = None
    via: str | None = None
    """How the root of its tree was created: `mcp`, or None for every other way."""
    vouched: bool = False
    terms_version: int = 1
    """Incremented with each change of instructions, acceptance or outputs."""
    has_instructions: bool = False
    """Whether instructions equal to the title were given; they do not follow the title."""
    title_outdated: bool = False
    """Whether the title served as the instructions, which have changed since."""
    description_only: bool = False
    """Whether only a description was given, which then serves as the instructions."""
    has_description: bool = False
    """Whether a description equal to the instructions was given; new instructions keep it."""
    earlier_descriptions: tuple[str, ...] = ()
    """The hashes of the last instructions that reads also returned as the description."""
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
    """Whether the agent was reminded of what its final message left undone.

    This happens once in an awaited task with automatic completion, and otherwise once after each
    run that ended with a final message.
    """
    outdated_answer: bool = False
    """Whether the instructions have changed since `final_message`."""
    final_message_claimed: bool = False
    """Whether the task's own agent has claimed completion with a result since `final_message`, or
    with it.
    """
    claimed_version: int | None = None
    """The version of the instructions for which the task's own agent or session claimed completion
    with `summary`; None if someone else did.
    """
    briefed: bool = False
    queued: tuple[Update, ...] = ()
    questions: tuple[Interaction, ...] = ()
    counts: Counts = Counts()

    def update_id(self, ahead: int = 1) -> str:
        """Return the id of the next update, or of a later one."""
        return f"{self.id}-u{self.counts.updates + ahead}"

    def child_index(self, child_id: str) -> int | None:
        """Return the index of a subtask; subtasks are in the order of their ids."""
        index = bisect_left(self.children, int(child_id), key=_number)
        if index == len(self.children) or self.children[index].id != child_id:
            return None
        return index

    def child(self, child_id: str) -> Child | None:
        """Return a subtask as this task knows it; None if it has no such subtask."""
        index = self.child_index(child_id)
        return None if index is None else self.children[index]

    @property
    def open_steps(self) -> tuple[int, ...]:
        """Return the indexes of the steps that are not done."""
        return tuple(index for index, step in enumerate(self.steps) if not step.done)

    @property
    def is_kept_open(self) -> bool:
        """Return whether open steps keep the task from ending with a final message."""
        return bool(self.open_steps) and not self.delegated

    @property
    def provided(self) -> Mapping[str, Json]:
        """Return the outputs that were handed over so far."""
        return self.completion_outputs or {}

    @property
    def given_metadata(self) -> Mapping[str, Json]:
        """Return the metadata; empty if none was given."""
        return self.metadata or {}

    @property
    def unclaimed_message(self) -> str | None:
        """Return the last final message, unless its agent has claimed a result with it or since, or
        the instructions have changed since.

        The message of a refused claim is not kept: the next message must hold the whole result.
        """
        if self.outdated_answer or self.final_message_claimed:
            return None
        return self.final_message or None

    @property
    def refused_summary(self) -> str | None:
        """Return the result of the last claim, unless a final message followed or the instructions
        have changed since.

        A claim of the agent without a summary, a new text or outputs hands it over again.
        """
        is_current = self.claimed_version == self.instructions_version
        return self.summary if is_current and self.unclaimed_message is None else None

    @property
    def answer(self) -> str | None:
        """Return the final message that the agent was asked to complete, a part of the result."""
        return self.unclaimed_message if self.reminded else None

    @property
    def drops_message(self) -> bool:
        """Return whether the result will not contain the last final message.

        It is not an answer that the agent was asked to complete, and it was claimed and refused, or
        sent before the end of subtasks or before the live run did more than send text. The agent is
        told, because its last message must then hold the whole result.
        """
        if not self.final_message or self.answer is not None:
            return False
        has_progressed = self.run is not None and self.run.progressed
        return self.final_message_claimed or has_progressed or bool(self.children)

    @property
    def delegated(self) -> bool:
        """Return whether the task was delegated or a caller waits for it, so that it never waits
        for a tick.
        """
        return self.awaited or self.parent_id is not None

    @property
    def waits_on(self) -> tuple[WaitFor, ...]:
        """Return the items that the task waits for."""
        return () if self.wait is None else self.wait.on

    @property
    def awaited_kinds(self) -> set[WaitKind]:
        """Return the kinds of the items that the task waits for."""
        return {item.kind for item in self.waits_on}

    def waits_for(self, kind: WaitKind) -> bool:
        """Return whether the task waits for an item of this kind."""
        return kind in self.awaited_kinds

    @property
    def waits_for_tick(self) -> bool:
        """Return whether the task waits for its next tick."""
        return self.waits_for("tick")

    @property
    def not_before(self) -> datetime | None:
        """Return the scheduled start of the task; None if it has none."""
        return None if self.schedule is None else self.schedule.not_before

    @property
    def is_unstarted(self) -> bool:
        """Return whether the task has neither started nor ended."""
        return self.started_at is None and not self.state.terminal

    @property
    def run_id(self) -> str | None:
        """Return the id of the live run; None if there is none."""
        return None if self.run is None else self.run.id

    @property
    def in_flight(self) -> bool:
        """Return whether a worker or a session works on it, or its result is being checked."""
        return self.run is not None or self.state in (State.RUNNING, State.VERIFYING)


@record
class Guide:
    """A troubleshooting guide that tasks link to."""

    id: str
    title: str
    body: str
    created_by: str
    created_at: datetime
