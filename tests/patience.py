"""Time limits of tests, scaled by how slow the machine is at the moment.

A limit is only an upper bound: it never makes a passing test slower. Leases and task limits that a
test expects to hold are limits too. Every process that imports this module measures the machine for
itself.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

REFERENCE_SECONDS = 0.0006
"""CPU time of the measured work on the machine for which the limits in the tests were chosen."""
FRESH_SECONDS = 5.0
"""How long a measurement is used before the machine is measured again."""
MOST_SLOWDOWN = 10.0
"""A limit grows no further, so that a test that hangs ends, and that short limits stay below
long ones of remit.
"""
LOAD = Path("/proc/loadavg")


class Patience:
    """Scale limits by the slowdown of the machine, and measure it again when the last
    measurement is old.
    """

    def __init__(self, measure: Callable[[], float], now: Callable[[], float]) -> None:
        self._measure, self._now = measure, now
        self._slowdown, self._fresh_until = 1.0, float("-inf")

    def __call__(self, seconds: float) -> float:
        """Return a limit for this machine, given the limit for an idle reference machine."""
        if self._now() >= self._fresh_until:
            self._slowdown = min(max(1.0, self._measure()), MOST_SLOWDOWN)
            self._fresh_until = self._now() + FRESH_SECONDS
        return seconds * self._slowdown


def measure_slowdown() -> float:
    """Return how many times slower than an idle reference machine a process runs here now."""
    return _slowness_of_core() * _processes_per_core()


def _slowness_of_core() -> float:
    """Compare the CPU time of a fixed piece of work with the reference.

    The best of three ignores interruptions.
    """
    return min(_work_seconds() for _ in range(3)) / REFERENCE_SECONDS


def _work_seconds() -> float:
    began, total = time.thread_time(), 0
    for number in range(20_000):
        total += number
    return time.thread_time() - began


def _processes_per_core() -> float:
    """Return how many processes want each core: on average over the last minute or at this
    moment, at least 1.
    """
    wanting = os.getloadavg()[0]
    if LOAD.exists():
        running_now = LOAD.read_text().split()[3].partition("/")[0]
        wanting = max(wanting, float(running_now))
    return max(1.0, wanting / _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


patient = Patience(measure_slowdown, time.monotonic)
"""Scale a limit: `asyncio.timeout(patient(20))`."""
