"""The short form of the ordeal: thousands of tasks while workers are killed and stopped and the
server crashes. Nothing lost, doubled or stuck.

The seed is printed; `REMIT_TORTURE_SEED` sets it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom

import pytest

from tests.postgres import PostgresForTests
from tests.torture.ordeal import Settings, on_postgres, on_sqlite

SQLITE = Settings(seed=0, tasks=2000, kills=30, stops=2)
POSTGRES = Settings(seed=0, tasks=2000, kills=30, stops=2, restarts=2, cuts=2, clients=1)


def test_the_short_form_is_not_too_short() -> None:
    assert min(SQLITE.tasks, POSTGRES.tasks) >= 2000
    assert min(SQLITE.kills, POSTGRES.kills) >= 30
    assert min(SQLITE.stops, POSTGRES.stops, POSTGRES.restarts, POSTGRES.cuts) >= 1


@pytest.fixture
def seed() -> int:
    """Another one each time, unless one is wanted."""
    return int(os.environ.get("REMIT_TORTURE_SEED") or SystemRandom().randrange(10**6))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresForTests]:
    """A server of our own, since it is going to crash."""
    own = PostgresForTests()
    yield own
    own.close()


def test_nothing_is_lost_doubled_or_stuck_on_sqlite(seed: int, tmp_path: Path) -> None:
    report = on_sqlite(SQLITE._replace(seed=seed), tmp_path)
    print(report)
    assert report.violations == [], str(report)
    assert (report.tasks >= SQLITE.tasks, report.kills, report.stops) == (
        True,
        SQLITE.kills,
        SQLITE.stops,
    ), str(report)


def test_nothing_is_lost_doubled_or_stuck_on_postgres(
    seed: int, tmp_path: Path, server: PostgresForTests
) -> None:
    report = on_postgres(POSTGRES._replace(seed=seed), tmp_path, server)
    print(report)
    assert report.violations == [], str(report)
    assert (report.tasks >= POSTGRES.tasks, report.kills, report.stops) == (
        True,
        POSTGRES.kills,
        POSTGRES.stops,
    ), str(report)
    assert (report.restarts, report.cuts > 0) == (POSTGRES.restarts, True), str(report)
