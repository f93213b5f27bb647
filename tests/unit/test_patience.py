"""Limits of tests grow with the slowdown of the machine."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import patience
from tests.patience import (
    FRESH_SECONDS,
    MOST_SLOWDOWN,
    REFERENCE_SECONDS,
    Patience,
    measure_slowdown,
    patient,
)


class Machine:
    """A machine whose slowdown and clock a test sets, and which counts its measurements."""

    def __init__(self, slowdown: float) -> None:
        self.slowdown, self.now, self.measured = slowdown, 0.0, 0

    def measure(self) -> float:
        self.measured += 1
        return self.slowdown


def test_a_limit_grows_with_the_slowdown_within_bounds() -> None:
    for slowdown, limit in ((0.2, 20.0), (1.0, 20.0), (4.5, 90.0), (1000.0, 20.0 * MOST_SLOWDOWN)):
        machine = Machine(slowdown)
        assert Patience(machine.measure, lambda: 0.0)(20) == limit


def test_the_machine_is_measured_again_only_when_the_measurement_is_old() -> None:
    machine = Machine(1.0)
    limit = Patience(machine.measure, lambda: machine.now)
    assert (machine.measured, limit(20), limit(20), machine.measured) == (0, 20.0, 20.0, 1)
    machine.slowdown, machine.now = 3.0, FRESH_SECONDS - 0.1
    assert (limit(20), machine.measured) == (20.0, 1)
    machine.now = FRESH_SECONDS
    assert (limit(20), machine.measured) == (60.0, 2)


def test_competing_processes_are_measured() -> None:
    """With three busy processes per core, a limit soon grows at least by two."""
    with busy(3 * patience._cores()):
        deadline = time.monotonic() + patient(60)
        while patience._processes_per_core() < 2:
            assert time.monotonic() < deadline, "the measurement does not see the busy processes"
            time.sleep(0.05)


def test_a_slow_core_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that takes ten times the reference makes every limit ten times as long."""
    monkeypatch.setattr(patience, "_work_seconds", lambda: 10 * REFERENCE_SECONDS)
    assert measure_slowdown() >= 10


@contextmanager
def busy(count: int) -> Iterator[None]:
    loops = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
