"""What tests of agents share. The store in memory is held to its promises by tests/contract and tests/engine."""

from pathlib import Path

import pytest

from remit.domain import due
from tests.patience import patient


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a file, beside whatever else a test writes."""
    made = tmp_path / "ws"
    (made / ".remit").mkdir(parents=True)
    (made / "main.py").write_text("def main(): ...\n")
    return made


@pytest.fixture
def any_url(durable_url: str) -> str:
    """The URL of an empty store of each kind that agents work on."""
    return durable_url


@pytest.fixture
def time_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the last report as much time as this machine needs."""
    monkeypatch.setattr(due, "REPORT_LEAST_SECONDS", patient(25))
