"""The guarantees of every event store: memory, SQLite and PostgreSQL."""

import asyncio
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from remit import store_queries
from remit.adapters.stores.select_statements import FILES
from remit.codec import GENESIS, encode_event
from remit.domain.task import events as ev
from remit.domain.task.stored_event import Stored
from remit.errors import Conflict
from remit.ports import Append, EventStore, Stale, Unit
from remit.store_queries.query import Query
from remit.store_queries.table_queries import TABLE_COUNTS, TABLE_ROWS
from tests.contract.units import CLOCK, unit
from tests.patience import patient


async def stored(store: EventStore) -> list[Stored]:
    return [recorded.event for recorded in await store.feed("", 10_000)]


async def test_a_commit_is_there_with_every_field(store: EventStore) -> None:
    one = unit("x/1")
    await store.commit(one)
    assert await stored(store) == [one.first]


async def test_a_stream_that_moved_on_makes_a_unit_stale_and_nothing_is_written(
    store: EventStore,
) -> None:
    await store.commit(unit("x/1"))
    both = Unit((*unit("x/2").appends, *unit("x/1", title="other").appends), ())
    with pytest.raises(Stale):
        await store.commit(both)
    assert [event.stream for event in await stored(store)] == ["x/1"]


async def test_an_append_without_events_only_guards(store: EventStore) -> None:
    await store.commit(unit("x/1"))
    await store.commit(Unit((Append("x/1", 1, ()), *unit("x/2").appends), ()))
    with pytest.raises(Stale):
        await store.commit(Unit((Append("x/1", 0, ()), *unit("x/3").appends), ()))
    assert [event.stream for event in await stored(store)] == ["x/1", "x/2"]


async def test_the_same_unit_sent_again_is_acknowledged_and_not_doubled(store: EventStore) -> None:
    one = unit("x/1")
    for _ in range(3):
        await store.commit(one)
    assert len(await stored(store)) == 1


async def test_one_stale_unit_does_not_fail_those_committed_with_it(store: EventStore) -> None:
    await store.commit(unit("x/0"))
    results = await asyncio.gather(
        *(store.commit(unit(f"x/{n % 40}")) for n in range(80)), return_exceptions=True
    )
    assert sum(result is None for result in results) == 39
    assert all(result is None or isinstance(result, Stale) for result in results)
    assert sorted(event.stream for event in await stored(store)) == sorted(
        {f"x/{n}" for n in range(40)}
    )


async def test_units_of_one_stream_follow_one_another_however_many_are_under_way(
    store: EventStore,
) -> None:
    lanes: list[list[Unit]] = []
    for lane in range(3):
        chain = [unit(f"x/{lane}")]
        while len(chain) < 40:
            assert chain[-1].appends[0].events
            chain.append(unit(f"x/{lane}", len(chain), chain[-1].appends[0].events[0].hash))
        lanes.append(chain)
    await asyncio.gather(*(store.commit(one) for row in zip(*lanes, strict=True) for one in row))
    found = await stored(store)
    for lane, chain in enumerate(lanes):
        assert [event for event in found if event.stream == f"x/{lane}"] == [
            one.first for one in chain
        ]


async def test_ids_ascend_and_are_given_once(store: EventStore) -> None:
    batches = await asyncio.gather(*(store.new_ids(1 + n % 3) for n in range(60)))
    numbers = [number for batch in batches for number in batch]
    assert len(set(numbers)) == len(numbers)
    assert all(batch == sorted(batch) for batch in batches)
    assert min(numbers) >= 1
    (after,) = await store.new_ids(1)
    assert after > max(numbers)


async def test_the_feed_resumes_where_it_was_left(store: EventStore) -> None:
    for n in range(10):
        await store.commit(unit(f"x/{n}"))
    seen: list[str] = []
    after = ""
    while page := await store.feed(after, 3):
        seen += [recorded.event.stream for recorded in page]
        after = page[-1].position
    assert seen == [f"x/{n}" for n in range(10)]
    assert after == await store.tail()


async def test_a_watch_rings_for_what_lands_after_it_was_opened(store: EventStore) -> None:
    async with store.watch() as watch:
        before = await store.tail()
        await store.commit(unit("x/1"))
        while not (page := await store.feed(before, 10)):
            await asyncio.wait_for(watch.wait(), patient(10))
    assert [recorded.event.stream for recorded in page] == ["x/1"]


async def test_only_an_empty_store_takes_over_a_history(store: EventStore) -> None:
    await store.import_events(unit("x/1").appends[0].events, [])
    assert [event.stream for event in await stored(store)] == ["x/1"]
    with pytest.raises(Conflict, match="already has events"):
        await store.import_events(unit("x/2").appends[0].events, [])
    assert [event.stream for event in await stored(store)] == ["x/1"]


async def test_ids_after_a_take_over_are_new(store: EventStore) -> None:
    event = ev.TaskCreated(
        id="41", uid="u", thread_id="t", title="t", description="d", instructions="i", root_id="41"
    )
    entry = ev.Entry(
        id=CLOCK.uid(), stream="41", version=1, at=CLOCK.now(), actor="user:ann", event=event
    )
    await store.import_events([encode_event(entry, GENESIS)], [])
    assert (await store.new_ids(1))[0] > 41


def test_every_named_query_is_written_once_for_all_databases() -> None:
    written = [name for file in FILES for name in file.names]
    made = [f"rows_{name}" for name in TABLE_ROWS] + [f"count_{name}" for name in TABLE_COUNTS]
    assert sorted([*written, *made]) == sorted(QUERIES)


def all_queries() -> dict[str, Query[Any]]:
    """Every query of the package, by name."""
    modules = [import_module(found.name) for found in iter_modules(store_queries.__path__, PREFIX)]
    values = [value for module in modules for value in vars(module).values()]
    tables: list[Any] = [*TABLE_ROWS.values(), *TABLE_COUNTS.values()]
    return {query.name: query for query in [*values, *tables] if isinstance(query, Query)}


PREFIX = "remit.store_queries."
QUERIES = all_queries()


@pytest.mark.parametrize("query", QUERIES)
async def test_every_named_query_answers_an_empty_store(store: EventStore, query: str) -> None:
    lists = {"streams", "ids", "uids", "states", "statuses", "names"}
    words = {
        "owner",
        "state",
        "parent_session",
        "session",
        "label",
        "before_at",
        "now",
        "stream",
        "interaction",
        "after_at",
        "after_id",
    }
    words |= {"call", "key", "via", "pattern"}
    params: dict[str, Any] = {
        name: [] if name in lists else "x" if name in words else 1 for name in QUERIES[query].params
    }
    rows = await store.select(QUERIES[query], params)
    assert rows == ([(0,)] if query.startswith("count_") else [])
