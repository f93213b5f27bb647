"""The roles that remit needs somebody to play, and the values that cross them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from remit.domain.due import Job
from remit.domain.environment import Environment
from remit.domain.event import Stored
from remit.domain.model import ModelOrigin
from remit.domain.project import Change
from remit.domain.table import BESIDE, TABLES
from remit.domain.value import Effort, Tools
from remit.errors import RemitError

if TYPE_CHECKING:  # only who runs agents pays for it
    from remit.domain.message import OnPart, Pause, Request, Response, Tokens
    from remit.domain.output import Files, Sought
    from remit.domain.tool import ToolCallRequest, ToolOutcome, ToolSpec

Row = tuple[Any, ...]
Topic = Literal["events", "jobs"]


class Append(NamedTuple):
    """Events for one stream that must be at `expected` when they land; without events only that is checked."""

    stream: str
    expected: int
    events: tuple[Stored, ...]


class Unit(NamedTuple):
    """What lands together or not at all."""

    appends: tuple[Append, ...]
    changes: tuple[Change, ...]
    dependents: tuple[tuple[int, int], ...] = ()
    """Tasks, and how many others may name them as a dependency."""
    jobs: tuple[Job, ...] = ()
    drops: tuple[str, ...] = ()
    """Keys of queued jobs that are not wanted any more."""
    lease: "Lease | None" = None
    """The job that is being worked on; somebody else's means that nothing is written."""
    ack: bool = False
    """Whether that job is done with this unit."""
    debit: "Debit | None" = None
    """What is taken from a tree's budget; if that is not there, nothing is written."""

    @property
    def first(self) -> Stored | None:
        """The event by which a store recognises a unit that it has already."""
        return next((event for append in self.appends for event in append.events), None)


class Lease(NamedTuple):
    """A claimed job and the worker that holds it."""

    job: int
    worker: str


class Debit(NamedTuple):
    """Tokens and money for a tree, set aside before a call and put right after it; nothing is refused where there is no most."""

    root_id: int
    tokens: int
    cost: float
    max_tokens: int | None = None
    max_cost: float | None = None
    used_tokens: int = 0
    """What the tree had used before it had a ledger; it counts when this is the first debit."""
    used_cost: float = 0.0


class Taken(NamedTuple):
    """A job as a worker gets it; `tries` counts how often it was claimed."""

    id: int
    key: str
    queue: str
    tries: int
    at: str | None = None
    head: bytes | None = None
    document: str | None = None
    """The task that a run is about, as it was when the job was claimed: that saves reading it."""
    seen: str | None = None
    """When the worker that held the job before was last heard of, if one did."""


class Claim(NamedTuple):
    """What a worker asks of the queue: signals first, then as many runs as it has room for."""

    worker: str
    queues: Mapping[str, int]
    """The agents' queues it serves, each with its limit in the whole fleet (0: none)."""
    room: int
    signals: int
    lease_seconds: float
    fleet: int = 0
    """How many runs there may be at once in the whole fleet (0: any number)."""
    roots: tuple[int, ...] | None = None
    """The roots of the trees whose jobs it wants; None for all jobs."""


class Claimed(NamedTuple):
    """What a worker got of the queue; where that is nothing, also when to come back."""

    jobs: list[Taken]
    next_in: float | None = None
    """Seconds until there may be something that it has room for: 0 if only a limit of the fleet keeps it, None while there is nothing."""


class WorkerRow(NamedTuple):
    """A worker as others see it."""

    worker: str
    host: str
    pid: int
    version: str
    agents: str
    concurrency: int
    since: str
    running: int = 0
    age_seconds: float = 0.0
    """How long ago it was last heard of, by the store's own clock."""
    place: str = ""
    """Which process it is, among all there ever were; nothing where that cannot be told."""
    models: str = ""
    """The model endpoints that it leaves alone for now, as JSON; nothing while all is well."""
    scope: str = ""
    """The roots of the trees that it works on, as a JSON list; empty for a worker that works on everything."""

    @property
    def roots(self) -> tuple[int, ...] | None:
        """The roots of the trees that it works on; None for everything."""
        return tuple(json.loads(self.scope)) if self.scope else None


class Postponed(Exception):
    """A job cannot be done here and now; it goes back into the queue."""

    def __init__(self, why: str, delay_seconds: float) -> None:
        super().__init__(why)
        self.delay_seconds = delay_seconds


class OverBudget(Exception):
    """A tree has not got what was asked for; nothing was written."""


class Stale(Exception):
    """A stream of the unit has moved on; nothing was written."""


class LeaseLost(Exception):
    """The job belongs to another worker by now; nothing was written."""


class Recorded(NamedTuple):
    """A stored event at its place in the order of the whole store."""

    position: str
    event: Stored


class EventStore(Protocol):
    """Keeps events for ever and the rows that follow from them."""

    async def new_ids(self, count: int) -> list[int]:
        """Numbers that nobody was given before, ascending."""
        ...

    async def commit(self, unit: Unit) -> None:
        """Store a unit durably, with its jobs. Stale if a stream moved on, LeaseLost if its job did; what is there is not stored again."""
        ...

    async def select(self, query: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows of a named query (`QUERIES`)."""
        ...

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Events of all streams after a position ("" is the beginning), in the one order every reader sees."""
        ...

    async def tail(self) -> str:
        """The position after which every event of the future comes."""
        ...

    def watch(self, topic: Topic = "events") -> AbstractAsyncContextManager["Watch"]:
        """Be told when there may be something new: any event, or a job that can be claimed."""
        ...

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store, in one transaction."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go."""
        ...


class JobQueue(Protocol):
    """Hands jobs to workers, one worker each, and takes back what the dead have left."""

    def now(self) -> datetime:
        """This instant, by the clock that decides what is due."""
        ...

    async def claim(self, claim: Claim) -> Claimed:
        """Jobs that are due, or whose worker has not been heard of for the time of a lease; now they are this worker's."""
        ...

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Say that a worker lives and works on these; those of them that another worker has by now."""
        ...

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue."""
        ...

    async def leave(self, worker: str) -> None:
        """Take a worker off the list; what it had claimed can be claimed by others at once."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Everybody who was heard of lately, the longest at it first."""
        ...


class Store(EventStore, JobQueue, Protocol):
    """Both on one database: that is what makes a commit and its jobs one."""


class ServedTrees(Protocol):
    """The trees that a worker serves, if it does not serve everything."""

    on_adopt: Callable[[], None]
    """Called when there may be jobs to claim that were not wanted before."""

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of all trees that are served."""
        ...

    @property
    def shown(self) -> str:
        """The same as `WorkerRow.scope` has it."""
        ...

    async def refresh(self) -> None:
        """Forget the trees that have ended; serve what the others have come to depend on."""
        ...


class Watch(Protocol):
    """A bell that rings when a store has changed."""

    async def wait(self) -> None:
        """Return once something may have changed since the last return; a short while at most."""
        ...


class Clock(Protocol):
    """Time and names."""

    def now(self) -> datetime:
        """This instant, in UTC."""
        ...

    def uid(self) -> str:
        """A UUIDv7."""
        ...

    def next_slot(self, cron: str, after: datetime) -> datetime:
        """The first instant of a cron expression after another."""
        ...


class Runner(Protocol):
    """Carries out one activation of a task: reads it, writes under its fence, and yields or ends it."""

    async def run(self, activation: Any) -> None:
        """Work until the run has ended (`activation.over`); an error ends it as failed."""
        ...


class Agents(Protocol):
    """Who can be given work."""

    def ids(self) -> frozenset[str]:
        """Every known agent."""
        ...

    def grant(self, agent_id: str, tools: Tools) -> tuple[str, ...]:
        """The tools that an agent has under a grant."""
        ...

    def seconds(self, agent_id: str) -> float | None:
        """How long an agent may work on a task that does not say so itself."""
        ...


SUMMARY = ("id", "title", "state", "owner", "parent_id", "wait", "priority", "updated_at")

QUESTION = (
    "interaction_id",
    "task_id",
    "question",
    "options",
    "blocking",
    "asked_by",
    "asked_at",
    "status",
    "answer",
    "answered_by",
    "answered_at",
    "allow_other",
)
PAGE = ("owner", "parent", "parent_session", "session", "root", "label", "states", "state", "before", "limit")

QUERIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "heads": (("streams",), ("stream", "version", "hash")),
    "tasks": (("ids",), ("id", "hash", "doc")),
    "head": (("id",), ("hash",)),
    "tasks_by_uid": (("uids",), ("id", "uid", "hash", "doc")),
    "list_live": (PAGE, SUMMARY),
    "list_owner": (PAGE, SUMMARY),
    "list_ended": (PAGE, SUMMARY),
    "list_any": (PAGE, SUMMARY),
    "list_parent": (PAGE, SUMMARY),
    "list_session": (PAGE, SUMMARY),
    "list_assigned": (PAGE, SUMMARY),
    "list_tree": (PAGE, SUMMARY),
    "list_label": (PAGE, SUMMARY),
    "history": (("before_at", "before", "limit"), (*SUMMARY, "archived_at")),
    "ready": (("now", "priority", "after", "limit"), SUMMARY),
    "in_flight": ((), ("id",)),
    "dependents": (("id",), ("id",)),
    "unmet": (("ids",), ("id", "needs", "state")),
    "starts": (("ids",), ("id", "session_id", "not_before", "started_at", "at")),
    "scheduled": (("after", "limit"), ("id",)),
    "recurring": (("after", "limit"), ("id",)),
    "owners": ((), ("owner", "id", "count")),
    "running": ((), ("worker", "count")),
    "successor": (("id",), ("first", "newest")),
    "series": (("id", "pattern"), ("id",)),
    "result": (("key",), ("id",)),
    "path": (("id",), ("id",)),
    "events": (("stream", "after", "limit"), (*Stored._fields, "position")),
    "updates": (("id", "after", "limit"), ("update_id", "type", "content", "status", "run_id", "turn", "at")),
    "interactions": (("statuses", "task", "after", "number", "limit"), QUESTION),
    "interaction": (("interaction",), QUESTION),
    "notifications": (("after_at", "after_id", "limit"), ("notification_id", "task_id", "message", "actor", "at")),
    "runs": (("id",), ("run_id", "worker", "started_at", "ended_at", "outcome", "error")),
    "guides": (("after_id", "limit"), ("id", "title", "created_by", "created_at")),
    "guide": (("names",), ("id", "title", "body", "created_by", "created_at")),
    "counts": ((), ("state", "count")),
    "ended_children": (("id",), ("id",)),
    "held": (("id", "job"), ("hash", "doc", "worker")),
    "queued": (("names",), ("key", "at", "worker")),
    "roots": (("ids",), ("id", "root_id")),
    "needed_workers": (("ids",), ("id", "root_id", "agent")),
    "roots_in_use": (("ids",), ("root_id",)),
    "roots_needed": (("ids",), ("root_id",)),
    "roots_via": (("via",), ("root_id",)),
    "roots_due": (("now",), ("root_id",)),
    "attended": (("ids",), ("root_id", "at")),
    "clocks": (("after", "limit"), ("id", "root_id", "at")),
    "clocks_of": (("ids",), ("id", "root_id", "at")),
    "ended": (("ids",), ("id", "state")),
    "live_runs": (("ids",), ("id", "run_id", "state")),
    "ticking": (("after", "limit"), ("id",)),
    "turning": (("after", "limit"), ("id",)),
    "documents": (("after", "limit"), ("id", "doc")),
    "unheard": (("after", "limit"), ("id",)),
    "alarmed": (("after", "limit"), ("id",)),
    "jobless": (("after", "limit"), ("id",)),
    "runless": (("after", "limit"), ("id", "run_id", "worker")),
    "untold": (("after", "limit"), ("id",)),
    "unreleased": (("after", "limit"), ("id",)),
    "unchecked": (("after", "limit"), ("id",)),
    "jobs": (("limit",), ("id", "key", "queue", "priority", "at", "worker", "tries")),
    "job_count": ((), ("queue", "queued", "claimed")),
    "budget": (("id",), ("tokens", "cost")),
    "budgets": (("after", "limit"), ("id", "tokens", "cost")),
    "tree": (("id",), ("doc",)),
    "calls": (("id",), BESIDE["call"].columns),
    "call": (("id", "call"), BESIDE["call"].columns),
    "messages": (("id", "after", "limit"), BESIDE["message"].columns),
    "pulse": (("ids",), ("id", "version", "number", "denied")),
    "streams": (("after_id", "limit"), ("stream",)),
    "events_of": (("streams",), Stored._fields),
    **{f"rows_{name}": (("names" if name == "guide" else "ids",), table.columns) for name, table in TABLES.items()},
    **{f"count_{name}": ((), ("count",)) for name in ("event", *TABLES)},
}
"""Every question a store can be asked: by name, its parameters and the columns of its rows, the same on each."""


class ModelGateway(Protocol):
    """Asks a language model, or what stands in for one."""

    async def request(self, request: "Request", *, on_part: "OnPart | None" = None, pause: "Pause | None" = None) -> "Response":
        """One answer; pieces of it go to `on_part` as they come. ModelFailed says why there is none; `pause` comes before every further try."""
        ...

    def cost(self, model: str, tokens: "Tokens", /) -> float | None:
        """What a call that takes so many tokens costs, in US dollars; None where nobody knows."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class Models(Protocol):
    """Knows who answers for `main`, `light` or `provider:name`."""

    def resolve(self, model: str | None = None) -> "Chosen":
        """The gateway that answers for a name; an error says what is not set."""
        ...

    def trouble(self) -> list[dict[str, Any]]:
        """The endpoints that are left alone or asked for a pause, and for which agent: nothing while all is well."""
        ...


class Chosen(NamedTuple):
    """A gateway, the name to ask it for, and what a person is told will run."""

    gateway: ModelGateway
    model: str
    shown: str
    origin: ModelOrigin = ModelOrigin()
    offline: bool = False
    """True for the built-in model that only searches and reads."""
    effort: Effort | None = None
    """How much its tier lets it think, where that is set."""
    takes_media: bool = False
    """The model can be shown images and PDFs."""


class Equipment(NamedTuple):
    """What agents work with: models, and a host of tools for each run."""

    models: Models
    tools: Callable[[], "ToolHost"]


class Surroundings(Protocol):
    """Describes to agents where they work."""

    async def look(self) -> Environment:
        """Describe the workspace and the machine as they are now."""
        ...


class OperationTools(Protocol):
    """The operations of the catalogue, as tools of a running agent."""

    @property
    def folder(self) -> str:
        """The workspace that relative paths belong to."""
        ...

    def usable(self, agent: Any, granted: frozenset[str]) -> Sequence["ToolSpec"]:
        """What an agent can call, by its capabilities and what is granted to its task; it is shown a part of it."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any], activation: Any, beside: Sequence[Change] = ()) -> "ToolOutcome":
        """Carry one out as a run, with rows that land with what it does; whatever is refused is an outcome for the model."""
        ...

    def refusal(self, name: str, refused: RemitError, activation: Any) -> str:
        """Why a call was refused, in words for the model, which names only fields that the model was shown."""
        ...


class ToolHost(Protocol):
    """Does what a sub-agent's tools ask for; one for each run."""

    def specs(self) -> tuple["ToolSpec", ...]:
        """Every tool there is, granted or not."""
        ...

    async def refusal(self, tools: frozenset[str]) -> str:
        """Why one of these can surely not be used on this machine, whoever grants it; nothing if all can."""
        ...

    async def call(self, call: "ToolCallRequest") -> "ToolOutcome":
        """Do one call, if it is granted; whatever goes wrong is an outcome for the model. Nothing of it runs on afterwards."""
        ...

    async def look_for(self, files: Sequence["Sought"]) -> "Files":
        """What is seen of these where its tools can read; folders are not files."""
        ...

    async def fingerprint(self) -> str | None:
        """All files that its tools can see, in one word that changes with any of them; nothing if they are too many."""
        ...

    async def close(self) -> None:
        """Let go of the workspace."""
        ...
