"""A store in plain dictionaries, for tests: the reference that the real ones are compared with."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from remit.domain.event import Stored
from remit.domain.project import Change, Key
from remit.domain.table import TABLES
from remit.errors import Conflict
from remit.ports import QUERIES, Recorded, Row, Stale, Unit

Record = dict[str, Any]


class MemoryEventStore:
    """Keeps everything in this process and forgets it with it."""

    def __init__(self) -> None:
        self._events: list[Stored] = []
        self._streams: dict[str, list[Stored]] = {}
        self._tables: dict[str, dict[Key, tuple[Any, ...]]] = {name: {} for name in TABLES}
        self._last_id = 0
        self._bells: set[asyncio.Event] = set()

    async def new_ids(self, count: int) -> list[int]:
        """Numbers that nobody was given before, ascending."""
        self._last_id += count
        return list(range(self._last_id - count + 1, self._last_id + 1))

    async def commit(self, unit: Unit) -> None:
        """Store a unit; nothing can come in between since nothing is awaited."""
        if not self._fits(unit):
            stream = self._streams.get(unit.first.stream, [])
            if len(stream) >= unit.first.version and stream[unit.first.version - 1].id == unit.first.id:
                return
            raise Stale
        for append in unit.appends:
            self._append(append.events)
        self._write(unit.changes)

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
    async def watch(self) -> AsyncGenerator["MemoryWatch", None]:
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

    def _fits(self, unit: Unit) -> bool:
        needed = [needs for _, needs in self._tables["task_dependency"]]
        current = all(len(self._streams.get(append.stream, ())) == append.expected for append in unit.appends)
        return current and all(needed.count(task_id) == count for task_id, count in unit.dependents)

    def _append(self, events: Iterable[Stored]) -> None:
        for event in events:
            self._events.append(event)
            self._streams.setdefault(event.stream, []).append(event)
        for bell in self._bells:
            bell.set()

    def _write(self, changes: Iterable[Change]) -> None:
        for table, key, values in changes:
            if values is None:
                self._tables[table].pop(key, None)
            else:
                self._tables[table][key] = values

    def _records(self, table: str) -> Iterator[Record]:
        columns = TABLES[table].columns
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
            "tasks_by_uid": lambda p: (record for record in self._records("task") if record["uid"] in p["uids"]),
            "history": self._history,
            "ready": self._ready,
            "in_flight": lambda _: self._in_flight(),
            "dependents": lambda p: [{"id": record["task_id"]} for record in self._records("task_dependency") if record["needs"] == p["id"]],
            "blocked_by": lambda p: [{"id": needs} for needs in self._unmet(p["id"])],
            "successor": lambda p: [r for r in self._records("task") if r["rerun_of"] == p["id"]][-1:],
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
            "streams": lambda p: [{"stream": name} for name in sorted(self._streams) if name > p["after_id"]][: p["limit"]],
            "events_of": lambda p: [event._asdict() for name in sorted(p["streams"]) for event in self._streams.get(name, ())],
        }
        return answers[query](params)

    def _stream(self, params: Mapping[str, Any]) -> list[Record]:
        places = [(str(place), event) for place, event in enumerate(self._events, 1) if event.stream == params["stream"]]
        return [event._asdict() | {"position": place} for place, event in places if event.version > params["after"]][: params["limit"]]

    def _list(self, kind: str, params: Mapping[str, Any]) -> list[Record]:
        filters = {"owner": "owner", "parent": "parent_id", "parent_session": "parent_session_id", "root": "root_id"}
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
