"""The scripted model service in a process of its own, and what it recorded."""

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
    """A call of the model: for which job (or by the lead), on which turn, and when."""

    job: int
    turn: int
    asked_at: float
    answered_at: float | None

    @property
    def key(self) -> tuple[int, int]:
        return self.job, self.turn


class Record(NamedTuple):
    """Everything that was asked since the rules were set, and how many different results the lead was given."""

    results: int
    calls: list[Call]

    @property
    def repeated(self) -> int:
        """How many calls had been made before."""
        return len(self.calls) - len({call.key for call in self.calls})

    def ended(self, turns: int) -> int:
        """How many jobs were answered for the last time."""
        return len({call.job for call in self.calls if call.turn == turns and call.answered_at is not None and call.job != LEAD})

    def spawned(self) -> tuple[float, float]:
        """Seconds from the answer that handed out the jobs to the first call for the first and for the last of them."""
        handed_out = next(call.answered_at for call in self.calls if call.key == (LEAD, 0))
        assert handed_out is not None
        begun = [call.asked_at - handed_out for call in self.calls if call.job != LEAD and call.turn == 0]
        return min(begun), max(begun)


class Service:
    """A running service."""

    def __init__(self, base: str) -> None:
        self._base = base
        self.url = f"{base}/v1"

    def rules(self, **rules: Any) -> None:
        """Answer by these from now on, and begin a new record."""
        self._call("/rules", json.dumps(rules).encode())

    def record(self) -> Record:
        found = self._call("/record")
        return Record(found["results"], [Call(*call) for call in found["calls"]])

    def _call(self, path: str, body: bytes | None = None) -> Any:
        with urllib.request.urlopen(urllib.request.Request(self._base + path, data=body), timeout=30) as reply:
            return json.load(reply)


@contextmanager
def service() -> Iterator[Service]:
    with subprocess.Popen([sys.executable, str(SCRIPT)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Service(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()
