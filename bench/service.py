"""The scripted model service in a separate process, and its record."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers.model_server import LEAD

SCRIPT = Path(__file__).parent / "peers" / "model_server.py"


class Call(NamedTuple):
    """A model call: its job (or the lead), turn and time."""

    job: int
    turn: int
    asked_at: float
    answered_at: float | None

    @property
    def key(self) -> tuple[int, int]:
        return self.job, self.turn


class Record(NamedTuple):
    """All calls since the rules were set, and the number of different results that the lead
    received.
    """

    results: int
    calls: list[Call]

    @property
    def repeated(self) -> int:
        """The number of calls before a time."""
        return len(self.calls) - len({call.key for call in self.calls})

    def ended(self, turns: int) -> int:
        """The number of jobs that have their last answer."""
        return len(
            {
                call.job
                for call in self.calls
                if call.turn == turns and call.answered_at is not None and call.job != LEAD
            }
        )

    def spawned(self) -> tuple[float, float]:
        """Seconds from the delegating answer to the first call of the first and of the last job."""
        handed_out = next(call.answered_at for call in self.calls if call.key == (LEAD, 0))
        assert handed_out is not None
        begun = [
            call.asked_at - handed_out for call in self.calls if call.job != LEAD and call.turn == 0
        ]
        return min(begun), max(begun)


class Service:
    """A running service."""

    def __init__(self, base: str) -> None:
        self._base = base
        self.url = f"{base}/v1"

    def rules(self, **rules: Any) -> None:
        """Set the rules and start a new record."""
        self._call("/rules", json.dumps(rules).encode())

    def record(self) -> Record:
        found = self._call("/record")
        return Record(found["results"], [Call(*call) for call in found["calls"]])

    def _call(self, path: str, body: bytes | None = None) -> Any:
        with urllib.request.urlopen(
            urllib.request.Request(self._base + path, data=body), timeout=30
        ) as reply:
            return json.load(reply)


@contextmanager
def service() -> Iterator[Service]:
    with subprocess.Popen(
        [sys.executable, str(SCRIPT)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Service(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()
