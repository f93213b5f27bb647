"""A PostgreSQL server that crashes, connections that are cut and workers that are killed:
nothing acknowledged is lost or doubled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest

from remit.bootstrap import open_store
from tests.crash.around import Witness
from tests.crash.history import log_of, must_be_one_history, must_keep_promises, read
from tests.crash.process import children, until
from tests.crash.worker import life
from tests.patience import patient
from tests.people import Desk, desk
from tests.postgres import PostgresForTests

CRASHES = 8
CALLERS = 8
OURS = "datname = current_database() AND application_name = 'remit'"
WAITING = "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'remit.event'::regclass"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresForTests]:
    """A server of our own, since it is going to crash."""
    own = PostgresForTests()
    yield own
    own.close()


class Callers:
    """Several who work at once, through two stores, until they are told to stop.

    What they were told is written down.
    """

    def __init__(self, seed: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self.errors: list[Exception] = []
        self.lives = 0
        self._seed, self._stopped = seed, False

    @property
    def acknowledged(self) -> int:
        """How many units were acknowledged so far."""
        return sum("acked" in line for line in self.lines)

    async def work(self, url: str, nemesis: Callable[[], Awaitable[None]]) -> None:
        """Work while a nemesis does its worst, and a little longer."""
        async with open_store(url) as one, open_store(url) as other, asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(
                    self._work(
                        Desk(Witness((one, other)[number % 2], self.lines.append)),
                        Random(self._seed + number),
                    )
                )
            await nemesis()
            await self.some_more(20)
            self._stopped = True

    async def some_more(self, count: int) -> None:
        """Wait until some more was acknowledged."""
        wanted = self.acknowledged + count
        await until(lambda: self.acknowledged >= wanted)

    async def _work(self, at: Desk, random: Random) -> None:
        while not self._stopped:
            try:
                await life(at, random, tasks=1)
                self.lives += 1
            except Exception as error:  # noqa: BLE001 - it is looked at after the run
                self.errors.append(error)

    async def must_have_lost_nothing(self, url: str) -> None:
        """All they were told is true, and they were told of no error."""
        log = log_of(self.lines)
        raw = await read(url)
        must_be_one_history(raw)
        must_keep_promises(raw, log)
        assert self.errors == [], f"seed {self._seed}"
        assert len(log.acked) >= 0.8 * len(log.sent), "most of what was tried succeeded"
        async with desk(url) as at:
            assert int(await at.create()) > max(log.given)
            await at.must_hold_together()


async def test_a_server_that_crashes_repeatedly_loses_and_doubles_nothing(
    server: PostgresForTests,
) -> None:
    seed = 1
    random, callers, url = Random(seed), Callers(seed), server.new_database()

    async def crash_often() -> None:
        for _ in range(CRASHES):
            await callers.some_more(random.randrange(20, 120))
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)

    await callers.work(url, crash_often)
    await callers.must_have_lost_nothing(url)
    assert callers.acknowledged > CRASHES * 20


async def test_connections_cut_at_random_times_lose_and_double_nothing(
    server: PostgresForTests,
) -> None:
    seed = 2
    random, callers, url = Random(seed), Callers(seed), server.new_database()
    cut = 0

    async def cut_often() -> None:
        nonlocal cut
        connection = await asyncpg.connect(url)
        try:
            for _ in range(40):
                await callers.some_more(random.randrange(1, 30))
                cut += await connection.fetchval(
                    f"SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {OURS}"
                )
        finally:
            await connection.close()

    await callers.work(url, cut_often)
    await callers.must_have_lost_nothing(url)
    assert cut > 60


async def test_workers_killed_in_the_middle_of_commits_leave_each_commit_whole_or_not_at_all(
    server: PostgresForTests, tmp_path: Path
) -> None:
    seed = 3
    random, url = Random(seed), server.new_database()
    with children(
        tmp_path, "work", [{"url": url, "lanes": 8, "seed": seed + number} for number in range(5)]
    ) as workers:
        for worker in workers:
            worker.go()
        for worker in workers:
            await asyncio.to_thread(
                worker.wait_until_said, "acked", worker.count("acked") + random.randrange(10, 60)
            )
            worker.kill()
        log = log_of(line for worker in workers for line in worker.lines())
    await nobody_else_is_connected(url)
    raw = await read(url)
    must_be_one_history(raw)
    must_keep_promises(raw, log)
    assert len(log.acked) > 5 * 10, f"seed {seed}"
    async with desk(url) as at:
        assert int(await at.create()) > max(log.given)
        await at.must_hold_together()


async def nobody_else_is_connected(url: str) -> None:
    """Wait until the server has noticed that its clients are gone, and has finished what they
    had sent.
    """
    connection = await asyncpg.connect(url)
    try:
        await rows(
            connection,
            f"SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE {OURS})",
            1,
        )
    finally:
        await connection.close()


async def rows(connection: Any, query: str, count: int) -> list[Any]:
    """The rows of a query, once there are this many."""
    async with asyncio.timeout(patient(60)):
        # Only the server knows.
        while len(found := await connection.fetch(query)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return [row[0] for row in found]


async def test_a_commit_that_outlives_its_connection_is_acknowledged_and_stored_once(
    server: PostgresForTests,
) -> None:
    """The answer is lost while the server is still at work, so that the same unit arrives a
    second time beside itself.
    """
    url = server.new_database()
    async with desk(url) as at:
        await at.create("Before")
        blocker = await asyncpg.connect(url)
        try:
            async with asyncio.TaskGroup() as group, blocker.transaction():
                await blocker.execute("LOCK TABLE remit.event IN SHARE MODE")
                making = group.create_task(at.create("During", idempotency_key="k"))
                (first,) = await rows(blocker, WAITING, 1)
                cut_off(at, first)
                await rows(blocker, WAITING, 2)
            assert making.result() == "2"
        finally:
            await blocker.close()
        await at.must_hold_together()
    raw = await read(url)
    must_be_one_history(raw)
    assert [event.type for event in raw.events] == ["TaskCreated", "TaskCreated", "KeyClaimed"]


def cut_off(at: Desk, pid: int) -> None:
    """Tear down our end of the connection that a process of the server serves.

    It does not notice while it waits.
    """
    pool: Any = vars(at.store)["_connections"].pool
    (connection,) = [
        holder._con
        for holder in pool._holders
        if holder._con is not None and holder._con.get_server_pid() == pid
    ]
    connection._transport.abort()
