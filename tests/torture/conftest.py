"""Fixtures of the torture tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import PostgresForTests
from tests.torture.ordeal import Place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database of each kind."""
    if request.param == "sqlite":
        where = Place(f"sqlite:///{tmp_path / 'remit.db'}")
    else:
        server: PostgresForTests = request.getfixturevalue("postgres")
        where = Place(server.new_database(), server)
    yield where
    where.close()
