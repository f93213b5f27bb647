"""Fixtures of all tests."""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from remit.adapters.models.refusals.remembered_limits import limits_file
from remit.bootstrap import open_store
from remit.ports import Store
from tests.postgres import PostgresForTests
from tests.selection import markers

# Marks of the stores that tests make do not belong into the home of the person who runs them.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="remit-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# How long an example takes says more about the machine than about the code.
settings.register_profile("remit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("remit")


def pytest_configure() -> None:
    """Listen to Ctrl-C and SIGHUP, so that processes of tests do too, also below nohup and in
    the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test as `tests/selection.py` says."""
    folder = Path(__file__).parent
    for item in items:
        callspec = getattr(item, "callspec", None)
        parameters = callspec.params if callspec is not None else {}
        for name in markers(item.path.relative_to(folder), item.name, parameters):
            item.add_marker(name)


def pytest_sessionfinish() -> None:
    """Save the measured coverage: pytest-xdist kills processes that take more than ten seconds
    to exit.
    """
    measuring = Coverage.current()
    if measuring is not None:
        measuring.save()


@pytest.fixture(autouse=True)
def nothing_learned() -> None:
    """Forget what endpoints of earlier tests refused: ports are used again."""
    limits_file().unlink(missing_ok=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresForTests]:
    """One server for the whole run."""
    server = PostgresForTests()
    yield server
    server.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store of each kind."""
    if request.param == "memory":
        yield "memory:"
    else:
        yield from _durable(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store of each kind that outlives a process."""
    yield from _durable(request, tmp_path)


@pytest.fixture
async def store(any_url: str) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    async with open_store(any_url) as opened:
        yield opened


def _durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'remit.db'}"
        return
    server: PostgresForTests = request.getfixturevalue("postgres")
    with server.new_store() as url:
        yield url
