"""Followers: every event once and in order, from wherever they were left, woken without polling."""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any, NoReturn

import asyncpg
import pytest

from remit.adapters.stores.sqlite import watches as sqlite
from remit.adapters.stores.sqlite.notifier import Notifier
from remit.app.maintenance.event_dump import dump, load
from remit.app.reading import follow as following
from remit.app.reading.follow import follow
from remit.bootstrap import open_store
from remit.ports import EventStore, Recorded
from tests.contract.units import unit
from tests.crash.history import read
from tests.crash.process import children
from tests.crash.scenario import story
from tests.patience import patient
from tests.people import Desk, desk
from tests.postgres import PostgresForTests

INSERT = (
    "INSERT INTO remit.event (id, stream, version, type, at, actor, data, hash) VALUES ($1, $2, $3,"
    " $4, $5, $6, $7, $8)"
)
FOREVER = 3600.0


async def seen(store: EventStore, after: str, count: int) -> list[Recorded]:
    """The first so many events that a follower sees after a position."""
    found: list[Recorded] = []
    async with asyncio.timeout(patient(60)), aclosing(follow(store, after)) as pages:
        while len(found) < count:
            found += await anext(pages)
    return found


@asynccontextmanager
async def background(
    store: EventStore, count: int
) -> AsyncIterator["asyncio.Task[list[Recorded]]"]:
    """A follower from the beginning that runs beside the block and must have seen so many events
    soon after it.
    """
    async with asyncio.TaskGroup() as group:
        yield group.create_task(seen(store, "", count))


async def test_a_follower_that_resumes_at_any_position_sees_every_later_event_once_and_in_order(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await story(Desk(store))
    everything = await store.feed("", 1000)
    assert len(everything) > 25
    monkeypatch.setattr(following, "PAGE", 4)
    assert await seen(store, "", len(everything)) == everything
    for number, recorded in enumerate(everything[:-1], 1):
        assert await seen(store, recorded.position, len(everything) - number) == everything[number:]
    assert await store.feed(everything[-1].position, 10) == []
    assert await store.tail() == everything[-1].position


async def test_a_follower_sees_what_is_written_while_it_follows(store: EventStore) -> None:
    async with background(store, 200) as follower:
        for _ in range(10):
            await asyncio.gather(
                *(store.commit(unit(f"x/{os.urandom(8).hex()}")) for _ in range(20))
            )
    assert follower.result() == await store.feed("", 1000)


async def test_a_follower_beside_writing_processes_misses_none_and_doubles_none(
    durable_url: str, tmp_path: Path
) -> None:
    processes, lanes, each = 4, 5, 10
    with children(
        tmp_path, "create", [{"url": durable_url, "lanes": lanes, "each": each}] * processes
    ) as writers:
        async with open_store(durable_url) as store:
            async with background(store, processes * lanes * each) as follower:
                for writer in writers:
                    writer.go()
            for writer in writers:
                writer.finish()
    assert [recorded.event.id for recorded in follower.result()] == [
        event.id for event in (await read(durable_url)).events
    ]


async def test_transactions_that_commit_out_of_order_are_missed_by_counting_and_by_no_follower(
    postgres: PostgresForTests,
) -> None:
    seed, rounds, writers = 11, 6, 6
    random, url = Random(seed), postgres.new_database()
    counting: list[str] = []
    last = 0
    async with open_store(url) as store, background(store, rounds * writers) as follower:
        connections = [await asyncpg.connect(url) for _ in range(writers)]
        reader = await asyncpg.connect(url)
        for turn in range(rounds):
            open_now = [(connection, connection.transaction()) for connection in connections]
            for number, (connection, transaction) in enumerate(open_now):
                await transaction.start()
                await connection.execute(INSERT, *(unit(f"x/{turn}-{number}").first or ()))
            random.shuffle(open_now)
            for _, transaction in open_now:
                await transaction.commit()
                for pos, stream in await reader.fetch(
                    "SELECT pos, stream FROM remit.event WHERE pos > $1 ORDER BY pos", last
                ):
                    last = pos
                    counting.append(stream)
        for connection in (*connections, reader):
            await connection.close()
    followed = [recorded.event.stream for recorded in follower.result()]
    assert sorted(followed) == sorted(
        f"x/{turn}-{number}" for turn in range(rounds) for number in range(writers)
    ), f"seed {seed}"
    assert len(counting) < len(followed), (
        "one who only counts misses what commits late, so the follower was put to the test"
    )


async def test_the_order_of_postgres_holds_when_transaction_numbers_gain_a_digit(
    postgres: PostgresForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAGE", 7)
    url = postgres.new_database()
    async with open_store(url) as store:
        await let_numbers_gain_a_digit_after(url, 15)
        expected = [f"x/{number}" for number in range(40)]
        for stream in expected:
            await store.commit(unit(stream))
        positions = [recorded.position for recorded in await store.feed("", 1000)]
        assert len({len(position.partition(".")[0]) for position in positions}) == 2, (
            "the digit came in the middle"
        )
        assert [recorded.event.stream for recorded in await seen(store, "", 40)] == expected
        assert await store.tail() == positions[-1]


async def let_numbers_gain_a_digit_after(url: str, count: int) -> None:
    """Use up transaction numbers until so many are left below the next power of ten."""
    connection = await asyncpg.connect(url)
    try:
        now = int(await connection.fetchval("SELECT pg_current_xact_id()::text"))
        left = 10 ** len(str(now)) - now - count
        await connection.execute(
            f"DO $$ BEGIN FOR i IN 1..{left} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP;"
            " END $$"
        )
    finally:
        await connection.close()


def pipes(path: Path) -> list[Path]:
    """The named pipes of everybody who listens to a file."""
    return [
        entry
        for entry in path.with_name(f"{path.name}-wake").iterdir()
        if stat.S_ISFIFO(entry.stat().st_mode)
    ]


async def test_a_follower_in_another_process_is_woken_by_the_notifier_alone(tmp_path: Path) -> None:
    path = tmp_path / "remit.db"
    url = f"sqlite:///{path}"
    with children(
        tmp_path, "listen", [{"url": url, "after": "", "safety_seconds": FOREVER}] * 2
    ) as listeners:
        async with desk(url) as at:
            for turn in range(1, 31):
                for listener in listeners:
                    if turn == 1:
                        listener.go()
                    listener.wait_until_said("waiting", turn)
                await at.create(f"Task {turn}")
            for listener in listeners:
                listener.wait_until_said("seen", 30)
                ids = [line["seen"][1] for line in listener.lines() if "seen" in line]
                assert ids == [recorded.event.id for recorded in await at.store.feed("", 100)]


async def test_pipes_that_killed_listeners_left_are_removed_and_those_of_the_living_are_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "remit.db"
    url = f"sqlite:///{path}"
    with children(
        tmp_path, "listen", [{"url": url, "after": "", "safety_seconds": FOREVER}] * 3
    ) as listeners:
        for listener in listeners:
            listener.go()
            listener.wait_until_said("waiting", 1)
        living, *doomed = listeners
        assert len(pipes(path)) == 3
        for listener in doomed:
            listener.kill()
        async with desk(url) as at:
            await at.create()
            living.wait_until_said("seen", 1)
            assert [pipe.name.partition("-")[0] for pipe in pipes(path)] == [
                str(living.process.pid)
            ]
            await seen(at.store, "", 1)
            assert len(pipes(path)) == 1, "one who stops following takes the pipe away"


async def test_a_load_wakes_followers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SAFETY_SECONDS", FOREVER)
    async with (
        open_store("memory:") as source,
        open_store(f"sqlite:///{tmp_path / 'remit.db'}") as store,
    ):
        await Desk(source).create()
        waiting = asyncio.Event()
        feed = store.feed

        async def announced(after: str, limit: int) -> list[Recorded]:
            page = await feed(after, limit)
            waiting.set()
            return page

        monkeypatch.setattr(store, "feed", announced)
        async with background(store, 1):
            await waiting.wait()
            await load(store, [line async for line in dump(source)])


# The notifier of a SQLite file.


class Ear:
    """A listener on a file."""

    def __init__(self, path: Path) -> None:
        self.heard = Event()
        self.listener = Notifier(path).listen(self.heard.set)

    def hears(self) -> bool:
        """Return True if a notification arrives."""
        return self.heard.wait(patient(5))


def test_a_listener_that_starts_within_the_same_tick_of_the_clock_is_notified(
    tmp_path: Path,
) -> None:
    """Many systems keep times of files in ticks of some milliseconds, so a folder can change
    without a new time.
    """
    path = tmp_path / "remit.db"
    ringer, early = Notifier(path), Ear(path)
    folder = path.with_name("remit.db-wake")
    tick = folder.stat()
    ringer.notify()
    late = Ear(path)
    os.utime(folder, ns=(tick.st_atime_ns, tick.st_mtime_ns))
    ringer.notify()
    heard = late.hears()
    for ear in (early, late):
        ear.listener.close()
    assert heard


def test_a_notification_while_a_listener_starts_does_not_remove_its_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "remit.db"
    make = os.mkfifo

    def make_and_notify(*arguments: Any) -> None:
        make(*arguments)
        Notifier(path).notify()

    monkeypatch.setattr(os, "mkfifo", make_and_notify)
    ear = Ear(path)
    ear.heard.clear()
    Notifier(path).notify()
    heard = ear.hears()
    ear.listener.close()
    assert heard


def test_a_notifier_without_a_free_file_descriptor_removes_no_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "remit.db"
    ear = Ear(path)

    def exhausted(*arguments: Any, **options: Any) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", exhausted)
        Notifier(path).notify()
    Notifier(path).notify()
    heard = ear.hears()
    ear.listener.close()
    assert heard


def test_listeners_that_come_and_go_never_disturb_a_notifier(tmp_path: Path) -> None:
    path = tmp_path / "remit.db"
    over = Event()
    errors: list[Exception] = []

    def come_and_go() -> None:
        while not over.is_set():
            try:
                Ear(path).listener.close()
            except OSError as error:
                errors.append(error)
                return

    Ear(path).listener.close()
    guests = [Thread(target=come_and_go) for _ in range(3)]
    for guest in guests:
        guest.start()
    try:
        for _ in range(1500):
            Notifier(path).notify()
    finally:
        over.set()
        for guest in guests:
            guest.join()
    assert errors == []
    assert pipes(path) == []


async def test_a_notifier_that_fails_leaves_no_caller_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_notifier: Notifier, _but: object = None) -> NoReturn:
        raise RuntimeError("no notifier")

    monkeypatch.setattr(Notifier, "notify", broken)
    async with (
        open_store(f"sqlite:///{tmp_path / 'remit.db'}") as store,
        asyncio.timeout(patient(60)),
    ):
        for stream in ("x/1", "x/2"):
            await store.commit(unit(stream))
        assert len(await store.feed("", 10)) == 2
