"""Fixtures of the agent tests.

tests/contract and tests/engine also test the memory store.
"""

from pathlib import Path

import pytest

from remit.domain.projection import follow_up_jobs
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
    monkeypatch.setattr(follow_up_jobs, "REPORT_LEAST_SECONDS", patient(25))
