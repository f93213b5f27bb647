"""The measuring side of a driver process (`bench/drive.py`)."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.service import Service
from bench.surfaces import ENVIRONMENT

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 180.0
"""The time limit of one job."""


class Driven:
    """Start a driver that waits for jobs. It is killed if a job takes too long."""

    def __init__(
        self, name: str, service: Service, folder: Path, max_n: int, *, stream: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        cfg = {
            "base_url": service.url,
            "model": "bench",
            "api_key": "bench",
            "stream": stream,
            "data_dir": str(folder),
            "max_n": max_n,
        }
        self._name, self._errors = name, folder.with_suffix(".errors")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.drive", name, json.dumps(cfg)],
                cwd=ROOT,
                env=ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.delegate: str = self.said()["delegate"]

    def __enter__(self) -> "Driven":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        elif self._process.poll() is None:
            # A closed input makes the driver tear down and exit.
            self._process.communicate(timeout=PATIENCE_SECONDS)

    def do(self, **order: Any) -> dict[str, Any]:
        """Run a job; return its cost."""
        self.begin(**order)
        return self.said()

    def begin(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def said(self) -> dict[str, Any]:
        """The next JSON line of the driver; lines that libraries print are skipped."""
        limit = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        limit.start()
        try:
            assert self._process.stdout is not None
            line = next((line for line in self._process.stdout if line.startswith("{")), None)
        finally:
            limit.cancel()
        assert line is not None, f"{self._name} ended: {self._errors.read_text()[-2000:]}"
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        """Kill the driver."""
        self._process.kill()
        self._process.communicate()
