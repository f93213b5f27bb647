"""A judge that knows nothing of remit's own code.

It reads raw tables, what the clients wrote down, the files of the effects, and what was done to the
processes.

Order. On SQLite the row number of an event is the order of commits. On PostgreSQL a transaction's
number is taken before its commit, so two that overlap may commit in either order; but whatever
happened because of a commit began after it and has a higher number. That is enough here: a run ends
and gives up its slot in one commit, and who gets the slot, who is told and who depends on it begins
after that. So counting by (tx, pos) never shows more runs at once than there were, and never shows
an effect before its cause. The clocks of the events (`at`) are read before the commit and prove
nothing.
"""

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import asyncpg

from tests.patience import patient

TERMINAL = {"TaskCompleted": "done", "TaskFailed": "failed", "TaskCanceled": "canceled"}
BAD_ENDS = ("RunLost", "RunFailed", "RunTimedOut")
RUN_ENDS = ("RunYielded", "RunReleased", *BAD_ENDS, "CompletionClaimed", *TERMINAL)
UPDATES = (
    "MessageSent",
    "InstructionsUpdated",
    "AcceptanceUpdated",
    "OutputsUpdated",
    "AcceptanceRejected",
    "SubtaskSettled",
)
SILENCE = "silence"
DEFAULT_ATTEMPTS = 3
DEADLY, FAILING = "kill", "raise"


class Event(NamedTuple):
    """A row of the event table, at its place in the order of all."""

    place: int
    id: str
    stream: str
    version: int
    type: str
    at: str
    actor: str
    text: str
    hash: bytes

    @property
    def data(self) -> dict[str, Any]:
        """Its text as JSON."""
        return json.loads(self.text)  # type: ignore[no-any-return]


class Raw(NamedTuple):
    """The tables as they are: rows by column name."""

    events: list[Event]
    task: list[dict[str, Any]]
    run: list[dict[str, Any]]
    job: list[dict[str, Any]]
    interaction: list[dict[str, Any]]
    task_update: list[dict[str, Any]]
    call: list[dict[str, Any]]


class Faults(NamedTuple):
    """What was done to the processes: killed ones by number, and spans of time in which others
    could be late too.
    """

    killed: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    spans: tuple[tuple[datetime, datetime], ...] = ()
    wanted_kills: int = 0


class Limits(NamedTuple):
    """How many runs there may be at once: of each agent, and in all."""

    agents: Mapping[str, int] = {}
    fleet: int = 0
    lease_seconds: float = 2.0

    @property
    def named(self) -> dict[str, int]:
        """Each limit by the name of what it limits."""
        return {**self.agents, **({"fleet": self.fleet} if self.fleet else {})}


class History:
    """Everything that is known, in the shapes that the rules ask for."""

    def __init__(
        self,
        raw: Raw,
        log: Sequence[dict[str, Any]],
        effects: Sequence[str],
        faults: Faults,
        limits: Limits,
    ) -> None:
        self.raw, self.log, self.effects, self.faults, self.limits = (
            raw,
            log,
            effects,
            faults,
            limits,
        )

    @cached_property
    def streams(self) -> dict[str, list[Event]]:
        """The events of each stream, by version."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.raw.events:
            found[event.stream].append(event)
        return {
            stream: sorted(events, key=lambda event: event.version)
            for stream, events in found.items()
        }

    @cached_property
    def tasks(self) -> dict[str, list[Event]]:
        """The streams of tasks."""
        return {stream: events for stream, events in self.streams.items() if stream.isdigit()}

    @cached_property
    def created(self) -> dict[str, dict[str, Any]]:
        """The fields with which each task was created."""
        return {
            stream: events[0].data
            for stream, events in self.tasks.items()
            if events[0].type == "TaskCreated"
        }

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """The subtasks of each task."""
        found: dict[str, list[str]] = defaultdict(list)
        for stream, data in self.created.items():
            if data.get("parent_id"):
                found[data["parent_id"]].append(stream)
        return found

    @cached_property
    def end(self) -> dict[str, Event]:
        """The terminal event of each task that has one."""
        return {
            stream: event
            for stream, events in self.tasks.items()
            for event in events
            if event.type in TERMINAL
        }

    @cached_property
    def most_at_once(self) -> Counter[str]:
        """How many runs there ever were at once: of each agent, and in the fleet."""
        live: dict[str, str] = {}
        most: Counter[str] = Counter()
        for event in self.raw.events:
            if event.type == "RunStarted":
                live[event.stream] = self.created.get(event.stream, {}).get("owner") or ""
                for name, count in (*Counter(live.values()).items(), ("fleet", len(live))):
                    most[name] = max(most[name], count)
            elif event.type in RUN_ENDS:
                live.pop(event.stream, None)
        return most

    def state(self, stream: str) -> str:
        """How a task ended, with its reason; or how its row says it stands."""
        if (event := self.end.get(stream)) is None:
            return str(self.rows.get(stream, {}).get("state"))
        state, reason = TERMINAL[event.type], event.data.get("reason")
        return f"{state}/{reason}" if reason else state

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The row of each task."""
        return {str(row["id"]): row for row in self.raw.task}

    def script(self, stream: str) -> list[list[Any]]:
        """The steps that a task was given."""
        return (self.created.get(stream, {}).get("metadata") or {}).get("script") or []

    def has(self, stream: str, step: str) -> bool:
        """Whether a task's script has such a step."""
        return any(item[0] == step for item in self.script(stream))

    def answered(self, word: str, command: str) -> list[dict[str, Any]]:
        """The lines of the clients about a command: asked, acked, refused or unsure."""
        return [line for line in self.log if line.get(word, {}).get("command") == command]

    @cached_property
    def called_off(self) -> set[str]:
        """Tasks that some client wanted to be canceled."""
        return {line["asked"]["fields"]["task_id"] for line in self.answered("asked", "CancelTask")}

    def below(self, stream: str) -> Iterator[str]:
        """Every task under one."""
        for child in self.children.get(stream, ()):
            yield child
            yield from self.below(child)

    def above(self, stream: str) -> Iterator[str]:
        """A task and every task over it."""
        at: str | None = stream
        while at is not None:
            yield at
            at = self.created.get(at, {}).get("parent_id")


Rule = Callable[[History], Iterator[str]]


def one_history(history: History) -> Iterator[str]:
    """Streams are dense from 1, and every hash follows from the one before."""
    for stream, events in history.streams.items():
        head = bytes(32)
        for expected, event in enumerate(events, 1):
            if event.version != expected:
                yield f"stream {stream} has version {event.version} where {expected} should be"
                break
            fields = (
                event.id,
                event.stream,
                event.version,
                event.type,
                event.at,
                event.actor,
                event.text,
            )
            if hashlib.sha256(head + "\n".join(map(str, fields)).encode()).digest() != event.hash:
                yield f"the hash of {stream}/{event.version} is wrong"
            head = event.hash
    twice = [
        name
        for name, count in Counter(event.id for event in history.raw.events).items()
        if count > 1
    ]
    yield from (f"event id {name} is there twice" for name in twice)


def created_once(history: History) -> Iterator[str]:
    """Every acknowledged task exists once.

    Nothing is there twice, not even what nobody acknowledged.
    """
    for stream, events in history.tasks.items():
        if [event.type for event in events].count("TaskCreated") != 1 or events[
            0
        ].type != "TaskCreated":
            yield f"task {stream} was not created once, at its beginning"
    titles: dict[str, list[str]] = defaultdict(list)
    for stream, data in history.created.items():
        titles[data["title"]].append(stream)
    yield from (
        f"{title} was created {len(streams)} times: {streams}"
        for title, streams in titles.items()
        if len(streams) > 1
    )
    for line in history.answered("acked", "CreateTask"):
        title = line["acked"]["fields"]["title"]
        if titles.get(title) != [line["task"]]:
            yield f"{title} was acknowledged as task {line['task']}, and is {titles.get(title)}"
    if sorted(history.created) != sorted(history.rows):
        yield "there are tasks without a row, or rows without a task"


def one_end(history: History) -> Iterator[str]:
    """At most one terminal event, nothing after it, and a row that says the same."""
    for stream, events in history.tasks.items():
        ends = [event for event in events if event.type in TERMINAL]
        if len(ends) > 1:
            yield f"task {stream} ended {len(ends)} times"
        elif ends and ends[0] is not events[-1]:
            yield f"task {stream} has {events[-1].type} after its end"
        row = history.rows.get(stream, {})
        if ends and row.get("state") != TERMINAL[ends[0].type]:
            yield f"task {stream} has {ends[0].type}, but its row says {row.get('state')}"
        if row.get("version") != events[-1].version:
            yield f"task {stream} is at {events[-1].version}, but its row says {row.get('version')}"


def ended_as_scripted(history: History) -> Iterator[str]:
    """Every task is where its script leads to: nothing lost, nothing stuck."""
    for stream in history.created:
        state, allowed = history.state(stream), _allowed(history, stream)
        if state not in allowed:
            wait = history.rows.get(stream, {}).get("wait")
            yield (
                f"task {stream} is {state}{f' (waits for {wait})' if wait else ''}, not"
                f" {' or '.join(sorted(allowed))}"
            )
        elif state == "waiting":
            yield from _waits_for_a_reason(history, stream)


def _allowed(history: History, stream: str) -> set[str]:
    return _by_script(history, stream) | _by_cancel(history, stream)


def _by_script(history: History, stream: str) -> set[str]:
    for need in history.created[stream].get("depends_on") or ():
        if (
            need.get("on", "done") == "done"
            and history.end.get(need["task_id"])
            and history.state(need["task_id"]) != "done"
        ):
            return {"failed/dependency"}
    for step in history.script(stream):
        match step:
            case ["kill"]:
                return {"failed/lost"}
            case ["raise", _]:
                return {"failed/error", "failed/lost"}
            case ["ask", str(question)] if question.startswith(SILENCE):
                return {"waiting"}
            case _:
                pass
    silent = any(
        _by_script(history, child) == {"waiting"} for child in history.children.get(stream, ())
    )
    return {"waiting"} if silent else {"done"}


def _by_cancel(history: History, stream: str) -> set[str]:
    """Called off by a client, or with a task above it; an end that came first stands."""
    above = list(history.above(stream))
    own = {"canceled/user"} if above[0] in history.called_off else set()
    return own | ({"canceled/parent"} if history.called_off.intersection(above[1:]) else set())


def _waits_for_a_reason(history: History, stream: str) -> Iterator[str]:
    items = json.loads(history.rows[stream]["wait"] or "{}").get("on", [])
    if not items:
        yield f"task {stream} waits for nothing"
    open_questions = {
        row["interaction_id"]: row["question"]
        for row in history.raw.interaction
        if row["status"] == "open"
    }
    for item in items:
        asked = item["kind"] == "user" and open_questions.get(item["ref"], "").startswith(SILENCE)
        child = item["kind"] == "subtask" and history.state(item["ref"]) == "waiting"
        if not asked and not child:
            yield f"task {stream} waits for {item['kind']} {item['ref']}, which is no reason"


def one_live_run(history: History) -> Iterator[str]:
    """A run begins when none is live, and only the live one ends; at the end none is left."""
    for stream, events in history.tasks.items():
        live: str | None = None
        for event in events:
            if event.type == "RunStarted":
                if live is not None:
                    yield f"task {stream} begins {event.data['run_id']} while {live} is live"
                live = event.data["run_id"]
            elif event.type in RUN_ENDS:
                ended = event.data.get("run_id")
                if ended is not None and ended != live:
                    yield f"task {stream} ends {ended} while {live} is live"
                live = None
        if live is not None:
            yield f"run {live} of task {stream} never ended"
    yield from (
        f"the row of run {row['run_id']} has no outcome"
        for row in history.raw.run
        if row["outcome"] is None
    )


def one_answer(history: History) -> Iterator[str]:
    """A question has at most one answer, and it is the one that was acknowledged."""
    given: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for event in history.raw.events:
        if event.type == "UserInteractionResponded":
            given[event.data["interaction_id"]].append((event.actor, event.data["answer"]))
    yield from (
        f"question {question} was answered {len(answers)} times"
        for question, answers in given.items()
        if len(answers) > 1
    )
    for line in history.answered("acked", "Respond"):
        asked, actor = line["acked"]["fields"], f"user:{line['acked']['call'].partition('/')[0]}"
        if given.get(asked["interaction_id"]) != [(actor, asked["answer"])]:
            yield (
                f"{actor} was told that {asked['interaction_id']} has its answer; it has"
                f" {given.get(asked['interaction_id'])}"
            )
    for event in history.raw.events:
        if event.type == "UserInteractionRequested" and [
            "ask",
            event.data["question"],
        ] not in history.script(event.stream):
            yield f"task {event.stream} asked {event.data['question']!r}, which its script does not"
    for row in history.raw.interaction:
        if row["status"] == "answered" and [(row["answered_by"], row["answer"])] != given.get(
            row["interaction_id"]
        ):
            yield f"the row of question {row['interaction_id']} says {row['answer']}"
        if row["status"] == "open" and (
            str(row["task_id"]) in history.end or not row["question"].startswith(SILENCE)
        ):
            yield f"question {row['interaction_id']} ({row['question']}) is still open"


def updates_once(history: History) -> Iterator[str]:
    """Each acknowledged update was delivered once and in order, or is recorded as undelivered."""
    sent: dict[str, str] = {}
    for stream, events in history.tasks.items():
        queued: list[str] = []
        for event in events:
            if event.type in UPDATES and event.data.get("update_id"):
                queued.append(event.data["update_id"])
                sent[event.data["update_id"]] = (
                    event.data.get("message") or event.data.get("instructions") or ""
                )
            if event.type == "UpdateDelivered":
                told = list(event.data["update_ids"])
                if told != queued[: len(told)]:
                    yield f"task {stream} was told {told} where {queued} waited"
                queued = queued[len(told) :]
        states = (
            {
                row["update_id"]: row["status"]
                for row in history.raw.task_update
                if str(row["task_id"]) == stream
            }
            if queued
            else {}
        )
        for update in queued:
            if states.get(update) != ("undelivered" if stream in history.end else "queued"):
                yield (
                    f"update {update} of task {stream} was never delivered and is recorded as"
                    f" {states.get(update)}"
                )
    texts = Counter(sent.values())
    for line in history.answered("acked", "SendMessage"):
        text = line["acked"]["fields"]["message"]
        if [sent.get(update) for update in line["updates"]] != [text] or texts[text] != 1:
            yield (
                f"message {text!r} was acknowledged as {line['updates']}, and is there"
                f" {texts[text]} times"
            )


def told_once(history: History) -> Iterator[str]:
    """A parent hears of each ended subtask once, and is done only after all of them.

    A timer fires once.
    """
    for stream, events in history.tasks.items():
        heard = Counter(
            event.data["child_id"] for event in events if event.type == "SubtaskSettled"
        )
        yield from (
            f"task {stream} was told {count} times of {child}"
            for child, count in heard.items()
            if count > 1
        )
        fired = Counter(event.data["ref"] for event in events if event.type == "TimerFired")
        yield from (
            f"timer {ref} of task {stream} fired {count} times"
            for ref, count in fired.items()
            if count > 1
        )
        for event in events:
            child = (
                history.end.get(event.data["child_id"]) if event.type == "SubtaskSettled" else None
            )
            if event.type == "SubtaskSettled" and child is None:
                yield f"task {stream} was told that {event.data['child_id']} ended, which did not"
            if child is not None and (
                child.place > event.place or TERMINAL[child.type] != event.data["state"]
            ):
                yield f"task {stream} was told of {child.stream} before its end, or wrongly"
        if history.state(stream) == "done":
            for name in history.children.get(stream, ()):
                if (
                    heard[name] != 1
                    or name not in history.end
                    or history.end[name].place > history.end[stream].place
                ):
                    yield f"task {stream} is done without its subtask {name}"


def cancel_reaches_all(history: History) -> Iterator[str]:
    """Whatever is below a canceled task has ended, and an acknowledged cancel is there."""
    for stream, event in history.end.items():
        if event.type == "TaskCanceled" and event.data["reason"] != "superseded":
            alive = [child for child in history.below(stream) if child not in history.end]
            if alive:
                yield f"task {stream} is canceled, but {alive} below it live on"
    for line in history.answered("acked", "CancelTask"):
        for task in [line["task"], *line["canceled"]]:
            if not history.state(task).startswith("canceled"):
                yield f"the cancel of task {task} was acknowledged, but it is {history.state(task)}"


def effects_once(history: History) -> Iterator[str]:
    """An effect happens at most once.

    One whose end nobody saw is recorded as unknown, and is not made again.
    """
    lines = Counter(line.split(" ")[0] for line in history.effects)
    yield from (
        f"the effect {text} happened {count} times" for text, count in lines.items() if count > 1
    )
    recorded: dict[str, str] = {}
    for call in history.raw.call:
        if call["tool"] != "write":
            continue
        text = json.loads(call["arguments"])[1]
        recorded[text] = call["status"]
        if call["status"] == "done" and f"{text} {call['run_id']}" not in history.effects:
            yield (
                f"the effect {text} is recorded as done by {call['run_id']}, but did not happen so"
            )
        if call["status"] == "failed":
            yield f"the effect {text} failed: {call['result']}"
        if call["status"] == "started" and history.state(str(call["task_id"])) == "done":
            yield f"the effect {text} was begun and never ended, in a task that is done"
    yield from (
        f"the effect {text} happened, but nothing is recorded of it"
        for text in lines
        if text not in recorded
    )
    for stream in history.created:
        if history.state(stream) == "done":
            steps = [step[2] for step in history.script(stream) if step[0] == "write"]
            yield from (
                f"task {stream} is done without its effect {text}"
                for text in steps
                if recorded.get(text) not in ("done", "unknown")
            )


def dependents_wait(history: History) -> Iterator[str]:
    """A task starts only after what it needs has ended, and ended well where that is asked for."""
    for stream, data in history.created.items():
        started = next(
            (event for event in history.tasks[stream] if event.type == "TaskStarted"), None
        )
        for need in (data.get("depends_on") or ()) if started else ():
            end = history.end.get(need["task_id"])
            if (
                end is None
                or (started and end.place > started.place)
                or (need.get("on", "done") == "done" and end.type != "TaskCompleted")
            ):
                yield f"task {stream} started before task {need['task_id']} was {need['on']}"


def limits_hold(history: History) -> Iterator[str]:
    """Never more live runs at once than configured, of an agent and in the fleet.

    And as many, or nothing was shown.
    """
    for name, limit in history.limits.named.items():
        if (most := history.most_at_once[name]) > limit:
            yield f"{most} runs of {name} were live at once; {limit} may be"
        elif most < limit:
            yield (
                f"only {most} runs of {name} were ever live at once; that they are never more than"
                f" {limit} was not tried"
            )


def queue_is_empty(history: History) -> Iterator[str]:
    """When all is over only the tick is left."""
    yield from (
        f"job {row['key']} of {row['worker']} is left"
        for row in history.raw.job
        if not row["key"].startswith("tick")
    )


def bad_ends_are_counted(history: History) -> Iterator[str]:
    """A task that failed as lost had exactly as many bad runs as allowed.

    Runs fail only where the script says so.
    """
    for stream, events in history.tasks.items():
        bad = [event for event in events if event.type in BAD_ENDS]
        most = (history.created.get(stream, {}).get("limits") or {}).get(
            "max_attempts"
        ) or DEFAULT_ATTEMPTS
        given_up = history.state(stream) in ("failed/lost", "failed/error")
        if given_up and len(bad) != most:
            yield f"task {stream} was given up after {len(bad)} bad runs, not {most}"
        unforeseen = [
            event.data["error"]
            for event in bad
            if event.type != "RunLost" and not history.has(stream, FAILING)
        ]
        yield from (f"a run of task {stream} failed: {error}" for error in unforeseen)


def lost_with_their_worker(history: History) -> Iterator[str]:
    """A run is taken away only from a worker that died or was late.

    And nothing had to be repaired.
    """
    dead = {str(pid) for pid in (*history.faults.killed, *history.faults.stopped)}
    slack = timedelta(seconds=3 * history.limits.lease_seconds)
    workers = {row["run_id"]: row["worker"] for row in history.raw.run}
    suicides = {worker.split("-")[-2] for worker in _who_ran_a_deadly_step(history)}
    for event in history.raw.events:
        if event.type == "RunLost":
            worker = workers.get(event.data["run_id"], "--")
            at = datetime.fromisoformat(event.at)
            late = any(begin <= at <= end + slack for begin, end in history.faults.spans)
            if worker.split("-")[-2] not in dead | suicides and not late:
                yield f"run {event.data['run_id']} was taken from {worker}, which lived"
        if event.actor == "system:recovery":
            yield f"{event.type} of task {event.stream} was a repair"


def _who_ran_a_deadly_step(history: History) -> Iterator[str]:
    for row in history.raw.run:
        if history.has(str(row["task_id"]), DEADLY) or history.has(str(row["task_id"]), "die"):
            yield row["worker"]


def not_vacuous(history: History) -> Iterator[str]:
    """Most of what was asked succeeded, and the kills hit workers that were at work."""
    asked = sum("asked" in line for line in history.log)
    acked = sum("acked" in line for line in history.log)
    if acked < 0.8 * asked or not asked:
        yield f"only {acked} of {asked} operations succeeded"
    worked = {
        event.data["worker"].split("-")[-2]
        for event in history.raw.events
        if event.type == "RunStarted"
    }
    hits = sum(str(pid) in worked for pid in history.faults.killed)
    if hits < history.faults.wanted_kills:
        yield (
            f"only {hits} kills hit a worker that had work; {history.faults.wanted_kills} were"
            " wanted"
        )


RULES: tuple[Rule, ...] = (
    one_history,
    created_once,
    one_end,
    ended_as_scripted,
    one_live_run,
    one_answer,
    updates_once,
    told_once,
    cancel_reaches_all,
    effects_once,
    dependents_wait,
    limits_hold,
    queue_is_empty,
    bad_ends_are_counted,
    lost_with_their_worker,
    not_vacuous,
)


def violations(history: History, rules: Iterable[Rule] = RULES) -> list[str]:
    """Everything that is wrong, each with the name of its rule."""
    return [f"{rule.__name__}: {found}" for rule in rules for found in rule(history)]


def read(url: str) -> Raw:
    """All the tables of a database, straight from its driver."""
    path = url.removeprefix("sqlite:///")
    return _read_sqlite(path) if path != url else asyncio.run(_read_postgres(url))


_COLUMNS = "id, stream, version, type, at, actor, data, hash"
_TABLES = Raw._fields[1:]


def sqlite(path: str, mode: str = "ro") -> Any:
    """A connection that only reads, from the newest SQLite there is: older ones can misread a
    log that several write.
    """
    try:
        driver = import_module("pysqlite3.dbapi2")
    except ImportError:
        driver = import_module("sqlite3")
    return driver.connect(f"file:{path}?mode={mode}", uri=True, timeout=patient(30))


def _read_sqlite(path: str) -> Raw:
    connection = sqlite(path)
    try:
        events = [
            Event(place, *row)
            for place, row in enumerate(
                connection.execute(f"SELECT {_COLUMNS} FROM event ORDER BY pos")
            )
        ]
        tables: list[list[dict[str, Any]]] = []
        for name in _TABLES:
            cursor = connection.execute(f"SELECT * FROM {name}")
            names = [column[0] for column in cursor.description]
            tables.append([dict(zip(names, row, strict=True)) for row in cursor])
        return Raw(events, *tables)
    finally:
        connection.close()


async def _read_postgres(url: str) -> Raw:
    connection = await asyncpg.connect(
        url, server_settings={"search_path": "remit", "application_name": "checker"}
    )
    try:
        rows = await connection.fetch(f"SELECT {_COLUMNS} FROM event ORDER BY tx, pos")
        events = [Event(place, *row) for place, row in enumerate(rows)]
        return Raw(
            events,
            *[
                [dict(row) for row in await connection.fetch(f"SELECT * FROM {name}")]
                for name in _TABLES
            ],
        )
    finally:
        await connection.close()


def ascending(values: Sequence[Any]) -> bool:
    """Whether each is above the one before."""
    return all(one < other for one, other in pairwise(values))
