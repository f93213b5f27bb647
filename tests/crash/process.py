"""Real processes that do a job of `tests/crash/worker.py` and say line by line how far they got."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import remit
from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """The environment in which a child finds remit and the tests.

    What is killed cannot be measured, so it does not try.
    """
    source = Path(remit.__file__).parents[1]
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")
    }
    return inherited | {
        "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]),
        "PYTHONWARNINGS": "default",
    }


class Child:
    """One process; its lines go to a file, so that they outlive it."""

    def __init__(self, folder: Path, name: str, job: str, **arguments: Any) -> None:
        self._said, self._errors = folder / f"{name}.said", folder / f"{name}.errors"
        command = [sys.executable, "-m", "tests.crash.worker", job, json.dumps(arguments)]
        with self._said.open("wb") as said, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=errors,
            )

    def lines(self) -> list[dict[str, Any]]:
        """Every line it has said so far; a last one that a kill cut short does not count."""
        whole = self._said.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def count(self, word: str) -> int:
        """How many of its lines are about a word."""
        return self._said.read_bytes().count(f'{{"{word}":'.encode())

    def wait_until_said(self, word: str, count: int) -> None:
        """Return once so many of its lines are about a word; it must live until then."""
        deadline = time.monotonic() + patient(60)
        while self.count(word) < count:
            assert time.monotonic() < deadline, (
                f"said {word!r} {self.count(word)} times, not {count}"
            )
            assert self.process.poll() is None or self.count(word) >= count, (
                f"ended: {self._errors.read_text()[-4000:]}"
            )
            time.sleep(0.002)

    def go(self) -> None:
        """Let it begin."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """`kill -9`."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def finish(self) -> list[dict[str, Any]]:
        """Wait for its end, which must be a good one; all it said."""
        code = self.process.wait(patient(60))
        assert code == 0, f"ended with {code}: {self._errors.read_text()[-4000:]}"
        return self.lines()

    def close(self) -> None:
        """End it if it is still there."""
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def children(folder: Path, job: str, arguments: Sequence[dict[str, Any]]) -> Iterator[list[Child]]:
    """Several processes that have imported everything and wait for `go`."""
    started: list[Child] = []
    try:
        for number, each in enumerate(arguments):
            started.append(Child(folder, f"{job}-{number}-{time.monotonic_ns()}", job, **each))
        for child in started:
            child.wait_until_said("ready", 1)
        yield started
    finally:
        for child in started:
            child.close()


async def until(condition: Callable[[], bool]) -> None:
    """Return once the event loop of the test has made something true.

    It must happen before the deadline.
    """
    async with asyncio.timeout(patient(60)):
        # The awaited condition is a count, a file or a row, not an event.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
