"""A store in plain dictionaries, for tests: the reference that the real ones are compared with."""

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from remit.domain.due import SIGNALS
from remit.domain.event import Stored
from remit.domain.project import Change, Key
from remit.domain.table import BESIDE, TABLES
from remit.domain.wire import instant
from remit.errors import Conflict
from remit.ports import QUERIES, Claim, Claimed, Debit, Lease, LeaseLost, OverBudget, Recorded, Row, Stale, Taken, Topic, Unit, WorkerRow

Record = dict[str, Any]


class MemoryEventStore:
    """Keeps everything in this process and forgets it with it."""

    def __init__(self) -> None:
        self._events: list[Stored] = []
        self._streams: dict[str, list[Stored]] = {}
        self._tables: dict[str, dict[Key, tuple[Any, ...]]] = {name: {} for name in TABLES | BESIDE}
        self._jobs = MemoryJobs()
        self._budgets: dict[int, tuple[int, float]] = {}
        self._last_id = 0
        self._bells: set[asyncio.Event] = set()

    async def new_ids(self, count: int) -> list[int]:
        """Numbers that nobody was given before, ascending."""
        self._last_id += count
        return list(range(self._last_id - count + 1, self._last_id + 1))

    async def commit(self, unit: Unit) -> None:
        """Store a unit; nothing can come in between since nothing is awaited."""
        held = unit.lease is None or self._jobs.holds(unit.lease)
        if not held or not self._fits(unit):
            first = unit.first
            stream = self._streams.get(first.stream, []) if first else []
            if first and len(stream) >= first.version and stream[first.version - 1].id == first.id:
                return
            raise Stale if held else LeaseLost
        if unit.debit is not None:
            self._debit(unit.debit)
        for append in unit.appends:
            self._append(append.events)
        self._write(unit.changes)
        self._jobs.write(unit, {needs for _, needs in self._tables["task_dependency"]})
        self._ring()

    def now(self) -> datetime:
        """This instant, by the clock of the one machine that there is."""
        return datetime.now(UTC)

    async def claim(self, claim: Claim) -> Claimed:
        """Jobs for a worker."""
        return self._jobs.claim(claim)

    async def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Say that a worker lives; those of its jobs that another has by now."""
        return self._jobs.beat(row, jobs)

    async def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back into the queue."""
        self._jobs.give_back(lease, delay_seconds)
        self._ring()

    async def leave(self, worker: str) -> None:
        """Take a worker off the list, and its leases."""
        self._jobs.leave(worker)
        self._ring()

    async def workers(self) -> list[WorkerRow]:
        """Everybody who was heard of."""
        return self._jobs.workers()

    async def select(self, query: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows of a named query."""
        columns = QUERIES[query][1]
        return [tuple(record[column] for column in columns) for record in self._answer(query, params)]

    async def feed(self, after: str, limit: int) -> list[Recorded]:
        """Events after a position."""
        start = int(after or 0)
        return [Recorded(str(number), event) for number, event in enumerate(self._events[start : start + limit], start + 1)]

    async def tail(self) -> str:
        """The last position."""
        return str(len(self._events))

    @asynccontextmanager
    async def watch(self, topic: Topic = "events") -> AsyncGenerator["MemoryWatch", None]:  # noqa: ARG002 - one bell for both
        """Be told of commits."""
        bell = asyncio.Event()
        self._bells.add(bell)
        try:
            yield MemoryWatch(bell)
        finally:
            self._bells.discard(bell)

    async def import_events(self, events: Iterable[Stored], changes: Iterable[Change]) -> None:
        """Take over a whole history into an empty store."""
        if self._events:
            raise Conflict("The store already has events.", hint="Import into a new one.")
        self._append(events)
        self._write(changes)
        self._last_id = max([self._last_id, *(int(stream) for stream in self._streams if stream.isdigit())])

    async def close(self) -> None:
        """Nothing to let go of."""

    def _debit(self, debit: Debit) -> None:
        tokens, cost = self._budgets.get(debit.root_id, (debit.used_tokens, debit.used_cost))
        tokens, cost = tokens + debit.tokens, cost + debit.cost
        if (debit.max_tokens is not None and tokens > debit.max_tokens) or (debit.max_cost is not None and cost > debit.max_cost):
            raise OverBudget
        self._budgets[debit.root_id] = tokens, cost

    def _fits(self, unit: Unit) -> bool:
        needed = [needs for _, needs in self._tables["task_dependency"]]
        current = all(len(self._streams.get(append.stream, ())) == append.expected for append in unit.appends)
        return current and all(needed.count(task_id) == count for task_id, count in unit.dependents)

    def _append(self, events: Iterable[Stored]) -> None:
        for event in events:
            self._events.append(event)
            self._streams.setdefault(event.stream, []).append(event)

    def _ring(self) -> None:
        for bell in self._bells:
            bell.set()

    def _write(self, changes: Iterable[Change]) -> None:
        for table, key, values in changes:
            if table == "budget" and values is not None:
                self._budgets[int(str(values[0]))] = int(str(values[1])), float(str(values[2]))
            elif values is None:
                self._tables[table].pop(key, None)
            else:
                self._move(table, key, values)
                self._tables[table][key] = values

    def _move(self, table: str, key: Key, values: tuple[Any, ...]) -> None:
        """Move the jobs of a task to another tree with it."""
        place = TABLES["task"].columns.index("root_id")
        before = self._tables["task"].get(key) if table == "task" else None
        if before is not None and before[place] != values[place]:
            self._jobs.move(int(str(key[0])), int(values[place]))

    def _records(self, table: str) -> Iterator[Record]:
        columns = (TABLES | BESIDE)[table].columns
        return (dict(zip(columns, values, strict=True)) for _, values in sorted(self._tables[table].items()))

    def _task(self, task_id: int) -> Record | None:
        values = self._tables["task"].get((task_id,))
        return dict(zip(TABLES["task"].columns, values, strict=True)) if values else None

    def _answer(self, query: str, params: Mapping[str, Any]) -> Iterable[Record]:
        if query.startswith("list_"):
            return self._list(query.removeprefix("list_"), params)
        if query.startswith("rows_"):
            wanted = set(next(iter(params.values())))
            return (record for record in self._records(query.removeprefix("rows_")) if next(iter(record.values())) in wanted)
        if query == "count_event":
            return [{"count": len(self._events)}]
        if query.startswith("count_"):
            return [{"count": len(self._tables[query.removeprefix("count_")])}]
        answers: dict[str, Callable[[Mapping[str, Any]], Iterable[Record]]] = {
            "heads": lambda p: [self._streams[name][-1]._asdict() for name in sorted(p["streams"]) if name in self._streams],
            "tasks": lambda p: (record for task_id in sorted(p["ids"]) if (record := self._task(task_id))),
            "head": lambda p: [{"hash": record["hash"]} for record in [self._task(p["id"])] if record],
            "tasks_by_uid": lambda p: (record for record in self._records("task") if record["uid"] in p["uids"]),
            "history": self._history,
            "ready": self._ready,
            "in_flight": lambda _: self._in_flight(),
            "dependents": lambda p: [{"id": record["task_id"]} for record in self._records("task_dependency") if record["needs"] == p["id"]],
            "unmet": lambda p: (
                {"id": r["id"], "needs": needs, "state": (self._task(needs) or {})["state"]}
                for r in self._records("task")
                if r["id"] in p["ids"]
                for needs in self._unmet(r["id"])
            ),
            "starts": lambda p: ({**r, "at": self._jobs.due(r["id"])} for r in self._records("task") if r["id"] in p["ids"]),
            "scheduled": lambda p: [
                r
                for r in self._records("task")
                if r["state"] == "pending" and r["started_at"] is None and '"cron"' in r["doc"] and r["id"] > p["after"]
            ][: p["limit"]],
            "owners": lambda _: self._owners(),
            "running": lambda _: self._running(),
            "recurring": lambda p: [
                r
                for r in self._records("task")
                if r["archived_at"] is None
                and r["parent_id"] is None
                and r["started_at"] is not None
                and '"cron"' in r["doc"]
                and r["id"] > p["after"]
            ][: p["limit"]],
            "series": lambda p: [
                r for r in self._records("task") if r["archived_at"] is None and (r["id"] == p["id"] or p["pattern"].strip("%") in r["doc"])
            ][::-1],
            "successor": lambda p: [
                {"first": ids[0], "newest": ids[-1]} for ids in [[r["id"] for r in self._records("task") if r["rerun_of"] == p["id"]]] if ids
            ],
            "result": lambda p: [{"id": r["task_id"]} for r in self._records("task_result") if r["key"] == p["key"]][-1:],
            "path": self._path,
            "events": self._stream,
            "updates": lambda p: [r for r in self._records("task_update") if r["task_id"] == p["id"] and r["number"] > p["after"]][: p["limit"]],
            "interactions": self._interactions,
            "interaction": lambda p: (r for r in self._records("interaction") if r["interaction_id"] == p["interaction"]),
            "notifications": self._notifications,
            "runs": lambda p: (record for record in self._records("run") if record["task_id"] == p["id"]),
            "guides": lambda p: [record for record in self._records("guide") if record["id"] > p["after_id"]][: p["limit"]],
            "guide": lambda p: (record for record in self._records("guide") if record["id"] in p["names"]),
            "counts": lambda _: self._counts(),
            "ended_children": lambda p: (r for r in self._records("task") if r["parent_id"] == p["id"] and r["archived_at"] is not None),
            "held": lambda p: [{**task, "worker": self._jobs.worker(p["job"])} for task in [self._task(p["id"])] if task],
            "queued": lambda p: (job._asdict() for job in self._jobs.jobs.values() if job.key in p["names"]),
            "roots": lambda p: (r for r in self._records("task") if r["id"] in p["ids"]),
            "needed_workers": lambda p: (
                r | {"agent": None if r["state"] == "verifying" else r["owner"]} for r in self._records("task") if r["id"] in p["ids"]
            ),
            "roots_in_use": self._roots_in_use,
            "roots_needed": self._roots_needed,
            "roots_via": lambda p: self._roots(r for r in self._records("task") if r["via"] == p["via"] and r["archived_at"] is None),
            "roots_due": self._roots_due,
            "attended": lambda p: self._attended(p["ids"]),
            "clocks": lambda p: [r for r in self._clocks() if r["id"] > p["after"]][: p["limit"]],
            "clocks_of": lambda p: (r for r in self._clocks() if r["root_id"] in p["ids"]),
            "ended": lambda p: (r for r in self._records("task") if r["id"] in p["ids"] and r["archived_at"] is not None),
            "live_runs": lambda p: (
                {**(self._task(r["task_id"]) or {}), **r} for r in self._records("run") if r["task_id"] in p["ids"] and r["outcome"] is None
            ),
            "ticking": lambda p: [r for r in self._records("task") if r["state"] == "waiting" and '"tick"' in r["wait"] and r["id"] > p["after"]],
            "turning": self._turning,
            "documents": lambda p: [r for r in self._records("task") if r["id"] > p["after"]][: p["limit"]],
            "unheard": lambda _: (
                r
                for r in self._records("task")
                if r["state"] == "waiting" and any(u["task_id"] == r["id"] and u["status"] == "queued" for u in self._records("task_update"))
            ),
            "alarmed": lambda _: (r for r in self._records("task") if r["state"] == "waiting"),
            "jobless": lambda _: (
                r for r in self._ready({"priority": -1, "after": 0, "now": "9", "limit": None}) if not self._jobs.has(f"run/{r['id']}")
            ),
            "runless": lambda _: (
                {"id": r["task_id"], **r} for r in self._records("run") if r["outcome"] is None and not self._jobs.has(f"run/{r['task_id']}")
            ),
            "untold": lambda _: self._untold(),
            "unreleased": lambda _: self._unreleased(),
            "unchecked": lambda _: (r for r in self._records("task") if r["state"] == "verifying" and not self._jobs.has(f"check/{r['id']}")),
            "jobs": lambda _: (job._asdict() for job in self._jobs.jobs.values()),
            "job_count": lambda _: self._jobs.count(),
            "budget": lambda p: [dict(zip(("tokens", "cost"), self._budgets[p["id"]], strict=True))] if p["id"] in self._budgets else [],
            "budgets": lambda p: [
                {"id": root, "tokens": tokens, "cost": cost} for root, (tokens, cost) in sorted(self._budgets.items()) if root > p["after"]
            ],
            "tree": lambda p: (r for r in self._records("task") if r["root_id"] == p["id"]),
            "calls": lambda p: (record for record in self._records("call") if record["task_id"] == p["id"]),
            "call": lambda p: (record for record in self._records("call") if (record["task_id"], record["call_id"]) == (p["id"], p["call"])),
            "messages": lambda p: [r for r in self._records("message") if r["task_id"] == p["id"] and r["number"] > p["after"]][: p["limit"]],
            "pulse": self._pulse,
            "streams": lambda p: [{"stream": name} for name in sorted(self._streams) if name > p["after_id"]][: p["limit"]],
            "events_of": lambda p: [event._asdict() for name in sorted(p["streams"]) for event in self._streams.get(name, ())],
        }
        return answers[query](params)

    def _roots(self, records: Iterable[Record]) -> list[Record]:
        return [{"root_id": root} for root in sorted({record["root_id"] for record in records})]

    def _roots_in_use(self, params: Mapping[str, Any]) -> list[Record]:
        live = [record for record in self._records("task") if record["archived_at"] is None]
        jobs = [{"root_id": job.root} for job in self._jobs.jobs.values()]
        return self._roots(record for record in live + jobs if record["root_id"] in params["ids"])

    def _roots_needed(self, params: Mapping[str, Any]) -> list[Record]:
        needed: list[Record] = []
        for record in self._records("task_dependency"):
            task, other = self._task(record["task_id"]), self._task(record["needs"])
            waits = task is not None and task["root_id"] in params["ids"] and task["archived_at"] is None
            if waits and other is not None:
                open_ = other["archived_at"] is None or self._jobs.has(f"release/{other['id']}")
                needed += [other] if open_ else []
        return self._roots(needed)

    def _attended(self, roots: Sequence[int]) -> Iterator[Record]:
        attendance = self._jobs.attendance
        for root in sorted(set(roots) & attendance.keys()):
            yield {"root_id": root, "at": attendance[root]}

    def _clocks(self) -> Iterator[Record]:
        attendance = self._jobs.attendance
        for record in self._records("task"):
            if record["state"] == "waiting" and '"clock_since"' in record["doc"]:
                seen = [attendance[root] for root in (0, record["root_id"]) if root in attendance]
                yield {"id": record["id"], "root_id": record["root_id"], "at": max(seen, default=None)}

    def _roots_due(self, params: Mapping[str, Any]) -> list[Record]:
        due = [job for job in self._jobs.jobs.values() if job.root and (job.worker or job.at is None or job.at <= params["now"])]
        return self._roots({"root_id": job.root} for job in due)

    def _turning(self, params: Mapping[str, Any]) -> Iterator[Record]:
        """Who was given its turn by the scheduler and has not ended a run in order since."""
        for record in self._records("task"):
            marks = [event for event in self._streams[str(record["id"])] if event.type == "RunYielded" or '"cause":"tick"' in event.data]
            if record["id"] > params["after"] and record["state"] in ("pending", "running", "paused") and marks and marks[-1].type != "RunYielded":
                yield record

    def _stream(self, params: Mapping[str, Any]) -> list[Record]:
        places = [(str(place), event) for place, event in enumerate(self._events, 1) if event.stream == params["stream"]]
        return [event._asdict() | {"position": place} for place, event in places if event.version > params["after"]][: params["limit"]]

    def _list(self, kind: str, params: Mapping[str, Any]) -> list[Record]:
        filters = {"owner": "owner", "parent": "parent_id", "parent_session": "parent_session_id", "session": "session_id", "root": "root_id"}
        labels = self._tables["task_label"]
        live = {"live": True, "owner": True, "ended": False}.get(kind)
        found = [
            record
            for record in self._records("task")
            if live in (None, record["archived_at"] is None)
            and record["id"] < params["before"]
            and record["state"] in params["states"]
            and all(params[name] in (None, record[column]) for name, column in filters.items())
            and (params["label"] is None or (record["id"], params["label"]) in labels)
        ]
        return found[::-1][: params["limit"]]

    def _history(self, params: Mapping[str, Any]) -> list[Record]:
        ended = [record for record in self._records("task") if record["archived_at"] is not None]
        ended.sort(key=lambda record: (record["archived_at"], record["id"]), reverse=True)
        return [record for record in ended if (record["archived_at"], record["id"]) < (params["before_at"], params["before"])][: params["limit"]]

    def _ready(self, params: Mapping[str, Any]) -> list[Record]:
        ready = [
            record
            for record in self._records("task")
            if record["state"] == "pending"
            and (record["priority"], record["id"]) > (params["priority"], params["after"])
            and record["owner"] is not None
            and record["session_id"] is None
            and (record["not_before"] is None or record["not_before"] <= params["now"])
            and not self._unmet(record["id"])
            and (self._jobs.due(record["id"], "run/") or "") <= params["now"]
        ]
        return sorted(ready, key=lambda record: (record["priority"], record["id"]))[: params["limit"]]

    def _in_flight(self) -> list[Record]:
        running = {record["id"] for record in self._records("task") if record["state"] in ("running", "verifying")}
        return [{"id": task_id} for task_id in sorted(running | {record["task_id"] for record in self._records("run") if record["outcome"] is None})]

    def _unmet(self, task_id: int) -> list[int]:
        unmet: list[int] = []
        for record in self._records("task_dependency"):
            other = self._task(record["needs"])
            enough = ("done", "failed", "canceled") if record["rule"] == "settled" else ("done",)
            if record["task_id"] == task_id and other is not None and other["state"] not in enough:
                unmet.append(record["needs"])
        return unmet

    def _owners(self) -> list[Record]:
        owned: dict[str, list[int]] = {}
        for record in self._records("task"):
            if record["archived_at"] is None and record["owner"] is not None:
                owned.setdefault(record["owner"], []).append(record["id"])
        return [{"owner": owner, "id": min(ids), "count": len(ids)} for owner, ids in sorted(owned.items())]

    def _running(self) -> list[Record]:
        workers = [record["worker"] for record in self._records("run") if record["outcome"] is None]
        return [{"worker": worker, "count": workers.count(worker)} for worker in sorted(set(workers))]

    def _untold(self) -> list[Record]:
        ended = {record["parent_id"] for record in self._records("task") if record["archived_at"] is not None}
        live = (record for record in self._records("task") if record["archived_at"] is None and record["id"] in ended)
        return [record for record in live if not self._jobs.has(f"tell/{record['id']}")]

    def _unreleased(self) -> list[Record]:
        found: set[int] = set()
        for record in self._records("task_dependency"):
            waiting, other = self._task(record["task_id"]), self._task(record["needs"])
            if waiting and other and other["state"] in ("failed", "canceled") and record["rule"] == "done":
                fresh = waiting["archived_at"] is None and waiting["started_at"] is None
                found |= {other["id"]} if fresh and not self._jobs.has(f"release/{other['id']}") else set()
        return [{"id": task_id} for task_id in sorted(found)]

    def _path(self, params: Mapping[str, Any]) -> list[Record]:
        path: list[Record] = []
        record = self._task(params["id"])
        while record is not None:
            path.insert(0, record)
            record = self._task(record["parent_id"]) if record["parent_id"] else None
        return path

    def _interactions(self, params: Mapping[str, Any]) -> list[Record]:
        return [
            record
            for record in self._records("interaction")
            if record["status"] in params["statuses"]
            and params["task"] in (None, record["task_id"])
            and (record["task_id"], record["number"]) > (params["after"], params["number"])
        ][: params["limit"]]

    def _pulse(self, params: Mapping[str, Any]) -> list[Record]:
        last = {record["task_id"]: record["number"] for record in self._records("message")}
        denied = Counter(record["task_id"] for record in self._records("call") if record["status"] == "denied")
        found = [record for record in self._records("task") if record["id"] in params["ids"]]
        return [record | {"number": last.get(record["id"], 0), "denied": denied[record["id"]]} for record in found]

    def _notifications(self, params: Mapping[str, Any]) -> list[Record]:
        told = sorted(self._records("notification"), key=lambda record: (record["at"], record["notification_id"]))
        after = (params["after_at"], params["after_id"])
        return [record for record in told if (record["at"], record["notification_id"]) > after][: params["limit"]]

    def _counts(self) -> list[Record]:
        states = [record["state"] for record in self._records("task")]
        return [{"state": state, "count": states.count(state)} for state in sorted(set(states))]


class MemoryWatch:
    """Wakes on a commit."""

    def __init__(self, bell: asyncio.Event) -> None:
        self._bell = bell

    async def wait(self) -> None:
        """Return after a commit."""
        await self._bell.wait()
        self._bell.clear()


class _Job(NamedTuple):
    id: int
    key: str
    queue: str
    priority: int
    at: str | None
    worker: str | None = None
    beat: float = 0.0
    tries: int = 0
    root: int = 0
    seen: str | None = None


def _wanted(job: _Job, roots: Sequence[int] | None) -> bool:
    return roots is None or job.root in roots


class MemoryJobs:
    """The queue, as plainly as it can be said."""

    def __init__(self) -> None:
        self.jobs: dict[int, _Job] = {}
        self.rows: dict[str, tuple[WorkerRow, float]] = {}
        self.attendance: dict[int, str] = {}
        """When a live worker was last heard of, by the tree that it serves; 0 stands for every tree."""
        self._last = 0

    def has(self, key: str) -> bool:
        """True if there is a job with a key, claimed or not."""
        return any(job.key == key for job in self.jobs.values())

    def due(self, task_id: int, *kinds: str) -> str | None:
        """When the next queued job of a task is due: its run, or its turn by a calendar of its own."""
        keys = {f"{kind}{task_id}" for kind in kinds or ("run/", "cron/")}
        return max((job.at for job in self.jobs.values() if job.key in keys and job.worker is None and job.at), default=None)

    def holds(self, lease: Lease) -> bool:
        """True while a job is this worker's."""
        return lease.job in self.jobs and self.jobs[lease.job].worker == lease.worker

    def worker(self, number: int) -> str | None:
        """Who has a job."""
        return self.jobs[number].worker if number in self.jobs else None

    def write(self, unit: Unit, needed: set[Any]) -> None:
        """What a commit does to the queue."""
        if unit.ack and unit.lease:
            del self.jobs[unit.lease.job]
        for key in unit.drops:
            self._drop(key)
        for job in unit.jobs:
            if job.if_needed_by_others is None or job.if_needed_by_others in needed:
                same = next((known.id for known in self.jobs.values() if known.key == job.key and known.worker is None), None)
                self._last += same is None
                number = same or self._last
                self.jobs[number] = _Job(number, job.key, job.queue, job.priority, job.at, root=job.root)

    def move(self, task_id: int, root: int) -> None:
        """Put the jobs of a task under another root."""
        mine = re.compile(rf"\w+/{task_id}(-.*)?")
        self.jobs |= {number: job._replace(root=root) for number, job in self.jobs.items() if mine.fullmatch(job.key)}

    def claim(self, asked: Claim) -> Claimed:
        """Signals, what the dead have left, and runs by priority."""
        now = time.monotonic()
        taken = self._ready([SIGNALS], asked.roots)[: asked.signals]
        mine = [job for job in self.jobs.values() if job.queue in (SIGNALS, *asked.queues) and _wanted(job, asked.roots)]
        expired = [job for job in mine if job.worker and job.beat < now - asked.lease_seconds]
        taken += [job for job in expired if job.queue == SIGNALS]
        runs = [job for job in expired if job.queue != SIGNALS][: asked.room]
        claimed = Counter(job.queue for job in self.jobs.values() if job.worker and job.queue != SIGNALS)
        for job in self._ready(list(asked.queues), asked.roots):
            limit = asked.queues[job.queue]
            full = (limit and claimed[job.queue] >= limit) or (asked.fleet and claimed.total() >= asked.fleet)
            if len(runs) < asked.room and not full:
                claimed[job.queue] += 1
                runs.append(job)
        for job in taken + runs:
            seen = job.seen or instant(datetime.now(UTC))
            self.jobs[job.id] = job._replace(worker=asked.worker, beat=now, tries=job.tries + 1, seen=seen)
        jobs = [Taken(job.id, job.key, job.queue, job.tries + 1, job.at, seen=job.seen) for job in taken + runs]
        return Claimed(jobs, None if jobs else self._next_in(asked))

    def beat(self, row: WorkerRow, jobs: Sequence[int]) -> set[int]:
        """Renew a worker's leases."""
        now = time.monotonic()
        self.rows[row.worker] = (row, now)
        kept = {number for number in jobs if self.holds(Lease(number, row.worker))}
        at = instant(datetime.now(UTC))
        self.jobs |= {number: self.jobs[number]._replace(beat=now, seen=at) for number in kept}
        self.attendance |= dict.fromkeys((0,) if row.roots is None else row.roots, at)
        return {number for number in jobs if number in self.jobs} - kept

    def give_back(self, lease: Lease, delay_seconds: float) -> None:
        """Put a claimed job back."""
        if self.holds(lease):
            job = self.jobs[lease.job]
            self._drop(job.key)
            at = instant(datetime.now(UTC) + timedelta(seconds=delay_seconds)) if delay_seconds else job.at
            self.jobs[job.id] = job._replace(worker=None, at=at)

    def leave(self, worker: str) -> None:
        """Forget a worker; its leases have run out."""
        self.rows.pop(worker, None)
        self.jobs |= {number: job._replace(beat=-math.inf) for number, job in self.jobs.items() if job.worker == worker}

    def _next_in(self, asked: Claim) -> float | None:
        queues = [SIGNALS, *(asked.queues if asked.room else ())]
        if self._ready(queues, asked.roots):
            return 0.0
        there = [job for job in self.jobs.values() if job.queue in queues and _wanted(job, asked.roots)]
        held = self._held()
        free = [job.at for job in there if job.at and not job.worker and job.key not in held]
        waits = [(datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds() for at in free]
        waits += [job.beat + asked.lease_seconds - time.monotonic() for job in there if job.worker]
        return max(0.0, min(waits)) if waits else None

    def workers(self) -> list[WorkerRow]:
        """Everybody who was heard of."""
        now = time.monotonic()
        return [row._replace(age_seconds=now - beat) for row, beat in sorted(self.rows.values(), key=lambda known: (known[0].since, known[0].worker))]

    def count(self) -> list[dict[str, Any]]:
        """How many jobs each queue has."""
        queues = sorted({job.queue for job in self.jobs.values()})
        return [
            {
                "queue": queue,
                "queued": sum(job.queue == queue and job.worker is None for job in self.jobs.values()),
                "claimed": sum(job.queue == queue and job.worker is not None for job in self.jobs.values()),
            }
            for queue in queues
        ]

    def _drop(self, key: str) -> None:
        self.jobs = {number: job for number, job in self.jobs.items() if job.key != key or job.worker is not None}

    def _ready(self, queues: Sequence[str], roots: Sequence[int] | None) -> list[_Job]:
        now, held = instant(datetime.now(UTC)), self._held()
        queued = [job for job in self.jobs.values() if job.worker is None and job.queue in queues and job.key not in held]
        due = [job for job in queued if (job.at is None or job.at <= now) and _wanted(job, roots)]
        return sorted(due, key=lambda job: (job.priority, job.id))

    def _held(self) -> set[str]:
        """Keys that somebody works on: a successor waits until the job before it is done."""
        return {job.key for job in self.jobs.values() if job.worker is not None}
