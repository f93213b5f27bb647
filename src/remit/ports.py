"""The protocols that adapters implement, and the values that they exchange."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from remit.domain.llm.failures import ModelOrigin
from remit.domain.projection.follow_up_jobs import Job
from remit.domain.projection.rows import Change
from remit.domain.prompts.environment import Environment
from remit.domain.task.stored_event import Stored
from remit.domain.task.task import Effort, Tools
from remit.errors import RemitError
from remit.store_queries.query import Query, R

if TYPE_CHECKING:  # avoid slow imports in processes that do not run agents
    from remit.domain.agents.tools import ToolCallRequest, ToolOutcome, ToolSpec
    from remit.domain.llm.messages import Pause, Request, Response, Tokens
    from remit.domain.outputs.required_outputs import FileQuery, Files

Topic = Literal["events", "jobs"]


class Append(NamedTuple):
    """Events for one stream, which must be at version `expected` at the commit.

    Without events, only the version is checked.
    """

    stream: str
    expected: int
    events: tuple[Stored, ...]


class Unit(NamedTuple):
    """All writes of one atomic commit."""

    appends: tuple[Append, ...]
    changes: tuple[Change, ...]
    dependents: tuple[tuple[int, int], ...] = ()
    """Task ids, each with the maximum number of tasks that depend on it."""
    jobs: tuple[Job, ...] = ()
    drops: tuple[str, ...] = ()
    """Keys of queued jobs to remove."""
    lease: "Lease | None" = None
    """The job being worked on; if another worker holds it, nothing is written."""
    ack: bool = False
    """Whether this unit finishes the job."""
    debit: "Debit | None" = None
    """The amount to take from a tree's budget; if it is too much, nothing is written."""

    @property
    def first(self) -> Stored | None:
        """Return the event by which a store recognizes a unit that it already has."""
        return next((event for append in self.appends for event in append.events), None)

    @property
    def finished(self) -> "Lease | None":
        """Return the lease of the job that this unit finishes; None if it finishes none."""
        return self.lease if self.ack else None


class Lease(NamedTuple):
    """A claimed job and the worker that holds it."""

    job: int
    worker: str


class Debit(NamedTuple):
    """Tokens and cost to add to the ledger of a tree.

    A call is reserved before it is made and settled afterwards. Without a maximum, no debit is
    refused.
    """

    root_id: int
    tokens: int
    cost: float
    max_tokens: int | None = None
    max_cost: float | None = None
    opens: bool = True
    """Whether to open a missing ledger of a tree with the usage of its stored answers.

    False for the debit of an answer without a reservation. Such an answer counts once: it is
    stored before the ledger is opened, or it is added to the open ledger.
    """


class ClaimedJob(NamedTuple):
    """A claimed job; `tries` counts how often it was claimed."""

    id: int
    key: str
    queue: str
    tries: int
    at: str | None = None
    head: bytes | None = None
    document: str | None = None
    """The document of the task of a run at the claim, which saves a read."""
    seen: str | None = None
    """The last heartbeat of the worker that held the job before, if there was one."""


class Claim(NamedTuple):
    """A request for jobs: signals first, then as many runs as there is room for."""

    worker: str
    queues: Mapping[str, int]
    """The agent queues it serves, each with its limit for all workers (0: no limit)."""
    room: int
    signals: int
    lease_seconds: float
    fleet: int = 0
    """The maximum number of concurrent runs of all workers (0: no limit)."""
    roots: tuple[int, ...] | None = None
    """The roots of the trees that it serves; None for all jobs."""


class ClaimResult(NamedTuple):
    """The claimed jobs; if there are none, also when to try again."""

    jobs: list[ClaimedJob]
    next_in: float | None = None
    """Seconds until a suitable job may be due: 0 if only a limit for all workers blocks one,
    None if there is no job.
    """


class WorkerRow(NamedTuple):
    """A registered worker."""

    worker: str
    host: str
    pid: int
    version: str
    agents: str
    concurrency: int
    since: str
    running: int = 0
    age_seconds: float = 0.0
    """Seconds since its last heartbeat, by the clock of the store."""
    place: str = ""
    """The unique identity of its process; empty if it is unknown."""
    models: str = ""
    """The model endpoints that it currently avoids, as JSON; empty if there are none."""
    scope: str = ""
    """The roots of the trees that it serves, as a JSON list; empty for all trees."""

    @property
    def roots(self) -> tuple[int, ...] | None:
        """Return the roots of the trees that it serves; None for all trees."""
        return tuple(json.loads(self.scope)) if self.scope else None

    @property
    def attended(self) -> tuple[int, ...]:
        """Return the roots whose attendance it records; root 0 stands for all trees."""
        return (0,) if self.roots is None else self.roots


class Postponed(Exception):
    """A job cannot be done now on this worker; it returns to the queue."""

    def __init__(self, why: str, delay_seconds: float) -> None:
        super().__init__(why)
        self.delay_seconds = delay_seconds


class OverBudget(Exception):
    """A debit exceeds the budget of its tree; nothing was written."""


class Stale(Exception):
    """A stream of the unit has a newer version; nothing was written."""


class LeaseLost(Exception):
    """Another worker holds the job; nothing was written."""


class Recorded(NamedTuple):
    """A stored event with its position in the order of the whole store."""

    position: str
    event: Stored


class EventStore(Protocol):
    """Stores events forever, and the rows derived from them."""

    async def new_ids(self, count: int) -> list[int]:
        """Return new unique numbers in ascending order."""
        ...

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, with its jobs; do nothing if it is already stored.

        Raise Stale if a stream has a newer version, and LeaseLost if another worker holds the
        job.
        """
        ...

    async def select(self, query: Query[R], params: Mapping[str, Any]) -> list[R]:
        """Return the rows of a query (`remit.store_queries`)."""
        ...

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Return events of all streams after a position ("" is the start), in the order that
        every reader sees.
        """
        ...

    async def tail(self) -> str:
        """Return the position of the last event; all later events come after it."""
        ...

    async def check(self) -> None:
        """Raise RolledBack if the store lacks a state that this process has seen.

        A read can be older than the last check of a store on a server.
        """
        ...

    def watch(self, topic: Topic = "events") -> AbstractAsyncContextManager["Watch"]:
        """Watch for new events, or for jobs that can be claimed."""
        ...

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Import a whole history into an empty store, in one transaction."""
        ...

    def end_within(self, seconds: float) -> None:
        """Limit how long later calls wait for the store, because the process is ending.

        After that, a call that gets no answer at once fails as Unavailable.
        """
        ...

    async def close(self) -> None:
        """Finish accepted writes and close the store."""
        ...


class JobQueue(Protocol):
    """Gives each job to one worker, and requeues jobs of dead workers."""

    def now(self) -> datetime:
        """Return the current time of the clock that decides which jobs are due."""
        ...

    async def claim(self, claim: Claim) -> ClaimResult:
        """Claim jobs that are due or whose lease has expired."""
        ...

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Record a heartbeat of a worker and its jobs; return the jobs that it has lost."""
        ...

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Return a claimed job to the queue."""
        ...

    async def leave(self, worker: str) -> None:
        """Remove a worker; others can claim its jobs at once."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Return the workers with a recent heartbeat, oldest first."""
        ...


class Store(EventStore, JobQueue, Protocol):
    """An event store and a job queue in one database, so that a commit includes its jobs."""


class ServedTrees(Protocol):
    """The trees that a worker serves."""

    on_adopt: Callable[[], None]
    """Called when newly served trees may have jobs to claim."""

    @property
    def roots(self) -> tuple[int, ...] | None:
        """Return the roots of all served trees; None for every tree."""
        ...

    @property
    def shown(self) -> str:
        """Return the roots in the format of `WorkerRow.scope`."""
        ...

    async def refresh(self) -> None:
        """Remove ended trees, and add trees that the others depend on."""
        ...


class Watch(Protocol):
    """Waits for changes of a store."""

    async def wait(self) -> None:
        """Return when something may have changed since the last return, or after a short time."""
        ...


class Clock(Protocol):
    """Provides the time and unique ids."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        ...

    def uid(self) -> str:
        """Return a new UUIDv7."""
        ...

    def next_slot(self, cron: str, after: datetime) -> datetime:
        """Return the first time of a cron expression after an instant."""
        ...


class Runner(Protocol):
    """Carries out one run of a task: reads it, writes under its fence, and yields or ends it."""

    async def run(self, handle: Any) -> None:
        """Work until the run has ended (`handle.over`); an exception fails the run."""
        ...


class Agents(Protocol):
    """The agents that can be given work."""

    def ids(self) -> frozenset[str]:
        """Return the ids of all known agents."""
        ...

    def tool_names(self) -> frozenset[str]:
        """Return the names of all known tools."""
        ...

    def grant(self, agent_id: str | None, tools: Tools) -> tuple[str, ...]:
        """Return the tools that an agent has under a grant."""
        ...

    def seconds(self, agent_id: str | None) -> float | None:
        """Return the time limit of an agent for tasks without their own; None for no limit."""
        ...


class ModelGateway(Protocol):
    """Sends requests to a language model or a substitute for one."""

    async def request(self, request: "Request", *, pause: "Pause | None" = None) -> "Response":
        """Return one answer; raise ModelFailed if there is none.

        `pause` is called before each retry.
        """
        ...

    def cost(self, model: str, tokens: "Tokens", /) -> float | None:
        """Return the cost of a call in US dollars; None if the price is unknown."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Models(Protocol):
    """Resolves `main`, `light` and `provider:name` to gateways."""

    def resolve(self, model: str | None = None) -> "ResolvedModel":
        """Return the gateway for a name; the error names the missing setting."""
        ...

    def trouble(self) -> list[dict[str, Any]]:
        """Return the endpoints that are avoided or asked for a pause, and the affected agents."""
        ...


class ResolvedModel(NamedTuple):
    """A gateway, the model name for its requests, and the name that people see."""

    gateway: ModelGateway
    model: str
    shown: str
    origin: ModelOrigin = ModelOrigin()
    offline: bool = False
    """True for the built-in model that only searches and reads."""
    effort: Effort | None = None
    """The effort of its tier, if it is set."""
    takes_media: bool = False
    """Whether the model accepts images and PDFs."""


class AgentEquipment(NamedTuple):
    """The models, and a factory for the tool host of each run."""

    models: Models
    tools: Callable[[], "ToolHost"]


class WorkspaceFacts(Protocol):
    """Describes the environment of agents."""

    async def look(self) -> Environment:
        """Describe the workspace and the machine as they are now."""
        ...


class OperationTools(Protocol):
    """The operations of the catalog as tools of a running agent."""

    @property
    def folder(self) -> str:
        """Return the workspace folder, the base of relative paths."""
        ...

    def usable(self, agent: Any, granted: frozenset[str]) -> Sequence["ToolSpec"]:
        """Return the tools that an agent can call by its capabilities and its task's grant.

        Its model sees a part of them.
        """
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        handle: Any,
        beside: Sequence[Change] = (),
    ) -> "ToolOutcome":
        """Execute an operation as a run, and write the rows in `beside` in the same commit.

        Return a refusal as an outcome for the model.
        """
        ...

    def refusal(self, name: str, refused: RemitError, handle: Any) -> str:
        """Return the reason of a refusal for the model, with only the fields that it sees."""
        ...


class ToolHost(Protocol):
    """Executes the tool calls of a sub-agent; one for each run."""

    def specs(self) -> tuple["ToolSpec", ...]:
        """Return all tools, granted or not."""
        ...

    async def refusal(self, tools: frozenset[str]) -> str:
        """Return why one of these tools cannot work on this machine; empty if all can."""
        ...

    async def call(self, call: "ToolCallRequest") -> "ToolOutcome":
        """Execute a call if it is granted; return every error as an outcome for the model.

        No process of the call continues afterwards.
        """
        ...

    async def look_for(self, files: Sequence["FileQuery"]) -> "Files":
        """Look for files where the tools can read; folders do not count as files."""
        ...

    async def fingerprint(self) -> str | None:
        """Return a hash of all files that the tools can see; None if there are too many."""
        ...

    async def close(self) -> None:
        """Release the workspace."""
        ...
