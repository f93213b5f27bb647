"""`kill -9` between any two steps of a commit to a SQLite file: nothing acknowledged is lost,
nothing is half written.

`make test` takes every tenth step of a story, beginning at a random one; `make test-long` takes
every step, in four tests that run side by side.
"""

import asyncio
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from remit.app.maintenance.verify import verify
from tests.crash.history import (
    Log,
    log_of,
    must_be_one_history,
    must_keep_promises,
    read,
    read_sqlite,
)
from tests.crash.process import ROOT, children, environment
from tests.people import desk

KILLED, RAN_THROUGH = -9, 0
ENOUGH_POINTS = 600
SHARES = 4
CHOICES = {"some points": (SystemRandom().randint(1, 10), 10)} | {
    f"all points, share {share}": (share, SHARES) for share in range(1, SHARES + 1)
}
"""The first point of each test, and the distance to its next one."""


class Launcher:
    """A process that forks one player after the other."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.scenario"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def play(self, path: Path, point: int) -> int:
        """How a player ended that dies at a point."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), point]).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Its input ends, and so does it."""
        self._process.communicate()


def said(path: Path) -> Log:
    """The answers to the callers of a player before it died."""
    file = Path(f"{path}.said")
    whole = file.read_bytes().rpartition(b"\n")[0] if file.exists() else b""
    return log_of(json.loads(line) for line in whole.splitlines())


async def must_have_survived(path: Path) -> None:
    """Everything acknowledged is there, nothing is torn, and work goes on with new numbers."""
    log = said(path)
    raw = read_sqlite(path)
    must_be_one_history(raw)
    must_keep_promises(raw, log)
    async with desk(f"sqlite:///{path}") as at:
        report = await verify(at.store)
        assert report.faults == ()
        assert report.events == len(raw.events)
        task = int(await at.create("After the crash", owner="general", labels=["new"]))
        assert task > max([0, *log.given, *raw.tasks]), "a number was used again"
        await at.must_hold_together()


async def kill_at_each(points: Iterator[int], folder: Path, killed: dict[int, int]) -> int:
    """Take one point after the other and look at what the kill there left.

    The first point that a story never came to.
    """
    launcher = Launcher()
    try:
        for point in points:
            place = folder / str(point)
            place.mkdir()
            path = place / "remit.db"
            ended = await asyncio.to_thread(launcher.play, path, point)
            if ended == RAN_THROUGH:
                return point
            assert ended == KILLED
            try:
                await must_have_survived(path)
            except BaseException as error:
                error.add_note(f"killed at point {point}")
                raise
            killed[point] = len(said(path).acked)
            shutil.rmtree(place)
    finally:
        launcher.close()
    raise AssertionError("the points never end")


@pytest.mark.parametrize("chosen", CHOICES)
async def test_a_kill_at_any_step_of_a_story_loses_nothing_acknowledged_and_leaves_nothing_torn(
    chosen: str, tmp_path: Path
) -> None:
    killed: dict[int, int] = {}
    first, every = CHOICES[chosen]
    points = itertools.count(first, every)
    async with asyncio.TaskGroup() as group:
        lanes = [group.create_task(kill_at_each(points, tmp_path, killed)) for _ in range(2)]
    beyond = min(lane.result() for lane in lanes)
    assert set(range(first, beyond, every)) <= killed.keys(), "no point was left out"
    assert len(killed) >= ENOUGH_POINTS // every
    assert len(set(killed.values())) > 20, "the kills came at every stage of the story"


async def test_processes_that_are_killed_among_others_take_nothing_with_them(
    tmp_path: Path,
) -> None:
    seed = 20_260_131
    random = Random(seed)
    url = f"sqlite:///{tmp_path / 'remit.db'}"
    lines: list[dict[str, Any]] = []
    with children(
        tmp_path, "work", [{"url": url, "lanes": 4, "seed": seed + n} for n in range(4)]
    ) as working:
        for child in working:
            child.go()
        for child in working:
            child.wait_until_said("acked", child.count("acked") + random.randrange(30, 90))
            child.kill()
            lines += child.lines()
    log = log_of(lines)
    raw = await read(url)
    must_be_one_history(raw)
    must_keep_promises(raw, log)
    assert len(log.acked) >= 4 * 30, f"seed {seed}"
    async with desk(url) as at:
        assert int(await at.create()) > max(log.given)
        await at.must_hold_together()
