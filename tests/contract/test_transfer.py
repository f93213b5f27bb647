"""A workspace moves from one kind of store to another: everything is kept, and a damaged dump is
refused as a whole.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from remit.adapters.stores.memory import MemoryEventStore
from remit.app.maintenance.event_dump import dump, load
from remit.bootstrap import open_store
from remit.domain.projection.rows import Change
from remit.domain.projection.tables import TABLES
from remit.domain.records.serialize import dumps
from remit.domain.task.task import State
from remit.errors import Conflict, Corrupt, InvalidParam, RemitError, Unavailable, UnknownEvent
from remit.ports import Append, Debit, EventStore, Store, Unit
from remit.store_queries.event_queries import STREAMS
from remit.store_queries.query import Query
from remit.store_queries.run_queries import CALLS, MESSAGES
from remit.store_queries.table_queries import TABLE_COUNTS, TABLE_ROWS, TableRow
from remit.store_queries.tree_queries import BUDGET
from tests.crash.scenario import story
from tests.engine.fleet import fleet
from tests.people import Desk
from tests.postgres import PostgresForTests
from tests.torture.worker import NEVER

Lines = list[str]


async def lines_of(store: EventStore) -> Lines:
    """A whole dump."""
    return [line async for line in dump(store)]


async def rows_of(store: EventStore) -> dict[str, list[TableRow]]:
    """Every row of every table."""
    streams = [row.stream for row in await store.select(STREAMS, {"after_id": "", "limit": 10_000})]
    ids = [int(stream) for stream in streams if stream.isdigit()]
    names = [stream.partition("/")[2] for stream in streams if stream.startswith("guide/")]
    found = {
        name: await store.select(
            TABLE_ROWS[name], {"names": names} if name == "guide" else {"ids": ids}
        )
        for name in TABLES
    }
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


async def views_of(store: EventStore) -> list[dict[str, Any]]:
    """Every task as callers see it."""
    at = Desk(store)
    return [await at.get(str(row[0])) for row in (await rows_of(store))["task"]]


@pytest.fixture
async def told() -> Lines:
    """The dump of a story that fills every table."""
    async with open_store("memory:") as store:
        await story(Desk(store))
        assert all((await rows_of(store)).values()), "there is something in every table"
        return await lines_of(store)


def event_lines(lines: Lines, kind: str = "") -> list[int]:
    """The lines of events in a dump, or of those of one kind."""
    return [
        number
        for number, line in enumerate(lines)
        if json.loads(line).get("stream") and kind in json.loads(line)["type"]
    ]


async def test_a_workspace_goes_round_all_stores_and_nothing_changes(
    tmp_path: Path, postgres: PostgresForTests
) -> None:
    urls = [
        f"sqlite:///{tmp_path / 'one.db'}",
        postgres.new_database(),
        f"sqlite:///{tmp_path / 'two.db'}",
        "memory:",
    ]
    async with open_store(urls[0]) as first:
        await story(Desk(first))
        lines, rows, views = await lines_of(first), await rows_of(first), await views_of(first)
        highest = max(int(view["id"]) for view in views)
    carried = lines
    for url in urls[1:]:
        async with open_store(url) as store:
            assert await load(store, carried) == len(event_lines(lines))
            carried = await lines_of(store)
            assert carried == lines
            assert await rows_of(store) == rows
            assert await views_of(store) == views
            at = Desk(store)
            await at.must_hold_together()
            assert await at.create("New") == str(highest + 1)
            open_task = next(view["id"] for view in views if view["state"] == "pending")
            await at.do("SendMessage", task_id=open_task, message="Work goes on.")
            assert (
                await at.create("First", owner="general", labels=["a", "b"], idempotency_key="k1")
                == "1"
            ), "keys are kept"
            await at.must_hold_together()


@pytest.mark.parametrize("way", ["there", "back"])
async def test_work_continues_in_the_store_that_a_workspace_was_moved_to(
    way: str, tmp_path: Path, postgres: PostgresForTests
) -> None:
    """Tasks that wait for a person, a time, another task or a subtask are woken there.

    Nothing of the queue was carried over.
    """
    urls = [f"sqlite:///{tmp_path / 'one.db'}", postgres.new_database()]
    old, new = urls if way == "there" else reversed(urls)
    async with fleet(old) as team:
        worker = await team.hire(cron=NEVER)
        asking = await team.create(["ask", "Which?"], ["finish", "answered"])
        timed = await team.create(["timer", 0.5], ["finish", "in time"])
        parent = await team.create(
            ["block", {"title": "Child", "metadata": {"script": [["ask", "And?"]]}}],
            ["finish", "told"],
        )
        for task_id in (asking, timed, parent):
            await team.until(task_id, lambda task: task.state is State.WAITING)
        child = (await team.task(parent)).children[0].id
        await team.until(child, lambda task: task.state is State.WAITING)
        worker.stop()
        await team.staff(0)
        fresh = await team.create(["finish", "begun"])
        behind = await team.create(["finish", "last"], depends_on=[asking, parent])
        histories = {
            task_id: await team.events(task_id)
            for task_id in (asking, timed, parent, child, fresh, behind)
        }
        lines = await lines_of(team.core.store)
    async with fleet(new) as team:
        await load(team.core.store, lines)
        await team.hire(cron=NEVER)
        for task_id in (asking, child):
            await team.do(
                "Respond", interaction_id=(await team.task(task_id)).questions[0].id, answer="This"
            )
        ends = [
            (await team.ended(task_id)).summary
            for task_id in (asking, timed, parent, fresh, behind)
        ]
        assert ends == ["answered", "in time", "told", "begun", "last"]
        for task_id, before in histories.items():
            assert (await team.events(task_id))[: len(before)] == before
        await Desk(team.core.store).must_hold_together()


async def test_an_empty_store_is_dumped_and_loaded(store: EventStore) -> None:
    lines = await lines_of(store)
    assert await load(store, lines) == 0
    assert await lines_of(store) == lines


async def test_a_store_that_is_not_empty_takes_no_dump_and_stays_as_it_was(
    store: EventStore, told: Lines
) -> None:
    at = Desk(store)
    await at.create("Mine")
    before = await lines_of(store)
    with pytest.raises(Conflict, match="already has events"):
        await load(store, told)
    assert await lines_of(store) == before
    await at.must_hold_together()


def changed(line: str, **fields: Any) -> str:
    """A line with other fields."""
    return dumps(json.loads(line) | fields)


def put(number: int, change: Callable[[str], str]) -> Callable[[Lines], Lines]:
    """A dump in which one line is changed."""
    return lambda lines: [change(line) if at == number else line for at, line in enumerate(lines)]


DAMAGE: dict[str, tuple[Callable[[Lines], Lines], type[RemitError], str]] = {
    "a line that is not JSON": (
        put(3, lambda line: line[:-20]),
        InvalidParam,
        "line 4: is not JSON",
    ),
    "a line that is not an object": (
        put(3, lambda _: "[]"),
        InvalidParam,
        "line 4: is not an event",
    ),
    "a line that lacks a field": (
        put(3, lambda line: dumps({"id": json.loads(line)["id"]})),
        InvalidParam,
        "line 4: is not an event",
    ),
    "a line with one field more": (
        put(3, lambda line: changed(line, more=1)),
        InvalidParam,
        "line 4: is not an event",
    ),
    "a version that is a word": (
        put(3, lambda line: changed(line, version="one")),
        InvalidParam,
        "line 4: is not an event",
    ),
    "a stream that is a number": (
        put(3, lambda line: changed(line, stream=1)),
        InvalidParam,
        "line 4: is not an event",
    ),
    "a hash that is no hash": (
        put(3, lambda line: changed(line, hash="zz")),
        InvalidParam,
        "line 4: is not an event",
    ),
    "another hash": (
        put(3, lambda line: changed(line, hash="00" * 32)),
        Corrupt,
        "The dump is damaged",
    ),
    "another author": (
        put(3, lambda line: changed(line, actor="user:eve")),
        Corrupt,
        "The dump is damaged",
    ),
    "other data": (
        put(3, lambda line: line.replace('"data":{', '"data":{"x":1,')),
        Corrupt,
        "The dump is damaged",
    ),
    "no first line": (lambda lines: lines[1:], InvalidParam, "line 1: is"),
    "a first line of an older format": (
        put(0, lambda _: '{"remit":"events","format":1}'),
        InvalidParam,
        "begins a dump of format 1; expected format 2. Export it again with this version, or ",
    ),
    "a first line of a newer format": (
        put(0, lambda _: '{"remit":"events","format":3}'),
        InvalidParam,
        "begins a dump of format 3; expected format 2",
    ),
    "a line twice": (
        lambda lines: [*lines[:4], lines[3], *lines[4:]],
        Corrupt,
        "The dump is damaged",
    ),
}


async def test_a_damaged_dump_is_refused_and_nothing_is_written(
    store: EventStore, told: Lines, subtests: pytest.Subtests
) -> None:
    for damage, (change, error, message) in DAMAGE.items():
        with subtests.test(damage):
            with pytest.raises(error, match=message):
                await load(store, change(told))
            await must_be_empty(store)
    assert await load(store, told) == len(event_lines(told)), "the undamaged one still loads"


async def test_a_dump_from_which_any_line_is_missing_is_refused_and_nothing_is_written(
    told: Lines,
) -> None:
    taken: list[str] = []
    for number, line in enumerate(told):
        async with open_store("memory:") as store:
            try:
                await load(store, told[:number] + told[number + 1 :])
                taken.append(line)
            except (Corrupt, InvalidParam):
                await must_be_empty(store)
    assert taken == []


async def test_an_empty_file_is_not_a_dump(store: EventStore) -> None:
    with pytest.raises((Corrupt, InvalidParam)):
        await load(store, [])


async def test_an_event_of_a_newer_remit_is_refused_and_nothing_is_written(
    store: EventStore, told: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from remit import codec

    known = {name: kind for name, kind in codec.EVENTS.items() if name != "UserNotified"}
    with monkeypatch.context() as patch:
        patch.setattr(codec, "EVENTS", known)
        with pytest.raises(UnknownEvent, match="This version does not know the event UserNotified"):
            await load(store, told)
    await must_be_empty(store)


async def must_be_empty(store: EventStore) -> None:
    """The store has no events and no rows."""
    assert await store.feed("", 1) == []
    assert [await store.select(TABLE_COUNTS[name], {}) for name in TABLES] == [[(0,)]] * len(TABLES)


async def test_a_dump_is_complete_while_a_stranger_writes_to_the_same_server(
    postgres: PostgresForTests,
) -> None:
    """Followers wait until the order of events is final.

    A dump that did the same and ended would lose what came last.
    """
    url, strangers = postgres.new_database(), postgres.new_database()
    stranger = await asyncpg.connect(strangers)
    try:
        async with open_store(url) as store, stranger.transaction():
            await stranger.fetchval("SELECT pg_current_xact_id()::text")
            await Desk(store).create("Acknowledged")
            try:
                lines = await lines_of(store)
            except Unavailable:
                return
            assert len(event_lines(lines, "TaskCreated")) == 1
    finally:
        await stranger.close()


async def test_records_beside_the_events_are_moved_with_them(store: Store) -> None:
    task_id = int(await Desk(store).create("Work", owner="general"))
    rows = (
        Change(
            "call",
            (task_id, "1/c"),
            (
                task_id,
                "1/c",
                "1-r000001",
                "Bash",
                "{}",
                0,
                "2026-01-01T00:00:00Z",
                None,
                "started",
                None,
            ),
        ),
        Change(
            "message",
            (task_id, 1),
            (task_id, 1, "1-r000001", 0, "2026-01-01T00:00:00Z", '{"role":"user","parts":[]}'),
        ),
    )
    await store.commit(Unit((Append(str(task_id), 1, ()),), rows, debit=Debit(task_id, 7, 0.5)))
    lines = [line async for line in dump(store)]
    other = MemoryEventStore()
    await load(other, lines)
    kept: tuple[tuple[Query[Any], dict[str, int]], ...] = (
        (CALLS, {"id": task_id}),
        (MESSAGES, {"id": task_id, "after": 0, "limit": 9}),
        (BUDGET, {"id": task_id}),
    )
    for query, asked in kept:
        found = await other.select(query, asked)
        assert found == await store.select(query, asked)
        assert len(found) == 1
    assert [line async for line in dump(other)] == lines
    with pytest.raises(Corrupt):
        await load(MemoryEventStore(), [line for line in lines if '"call"' not in line])
