"""Wall clocks that jump by hours under real worker processes: leases, takeovers and whatever lasts
a while do not notice.

The jump is made by libfaketime, which is loaded into the worker before anything else and answers
every question for the time of day, from Python or below it, with the offset that a file names at
that moment. What the kernel counts since it was started (the monotonic clock) it leaves alone, as
setting a clock does.
"""

import asyncio
import platform
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from remit.domain.task.task import State, Task
from tests.crash.process import until
from tests.engine.fleet import Fleet, fleet
from tests.patience import patient
from tests.torture.ordeal import LEFT_IN_ORDER, Worker

FAR_SECONDS = 3 * 3600
"""A jump that no lease, timer or patience could mistake for time that passed."""

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="there is a libfaketime for this system alone",
)


def faketime() -> Path:
    """The library; nothing of the package around it is wanted."""
    found = find_spec("libfaketime")
    assert found is not None, "libfaketime belongs to what `make test` installs"
    assert found.origin is not None
    return Path(found.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"


class Machine:
    """A worker process with a wall clock of its own, which can be set while it runs."""

    def __init__(self, url: str, folder: Path, name: str, **options: Any) -> None:
        self._offset = folder / f"{name}.offset"
        self.set(0)
        faked = {
            "LD_PRELOAD": str(faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            # Looked at once a second; at every call it would make a worker several times as slow.
            "FAKETIME_CACHE_DURATION": "0",
            "DONT_FAKE_MONOTONIC": "1",
        }
        self.worker = Worker(
            url,
            folder,
            name,
            {"heartbeat_seconds": patient(2.5), "concurrency": 4, **options},
            faked,
        )

    def set(self, seconds: int) -> None:
        """Set the clock so far off the real time; the process sees it within a second."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._offset)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self.worker.process.pid

    @property
    def said(self) -> str:
        """Its error output."""
        return self.worker.errors.read_text()

    def close(self) -> None:
        """End it in order, and remove what a killed libfaketime leaves behind."""
        if self.worker.alive:
            code = self.worker.end(signal.SIGTERM)
            assert code in LEFT_IN_ORDER, self.said
        for left in (f"faketime_shm_{self.pid}", f"sem.faketime_sem_{self.pid}"):
            (Path("/dev/shm") / left).unlink(missing_ok=True)


@contextmanager
def machines(url: str, folder: Path, count: int, **options: Any) -> Iterator[list[Machine]]:
    """So many workers, each with a clock of its own."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(Machine(url, folder, f"machine-{number}", **options)))
            for number in range(count)
        ]


class Day:
    """The notes of tasks while clocks jump, and the gate that they wait at."""

    def __init__(self, folder: Path) -> None:
        self.times, self.gate, self.effects = folder / "times", folder / "gate", folder / "effects"

    def script(self, name: str, *more: list[Any]) -> list[list[Any]]:
        """Tell the time, wait for the gate, do more, tell the time again, and leave an effect."""
        told = ["time", str(self.times)]
        return [
            told,
            ["gate", str(self.gate)],
            *more,
            told,
            ["write", str(self.effects), name],
            ["finish", "done"],
        ]

    async def begun(self, count: int) -> None:
        """Wait until so many tasks stand at the gate."""
        await until(lambda: len(self.told()) >= count)

    def told(self) -> list[tuple[str, float]]:
        """The time that each process reported."""
        lines = self.times.read_text().splitlines() if self.times.exists() else []
        return [(run, float(at)) for run, at in map(str.split, lines)]

    def leaps(self) -> list[float]:
        """How far the clock moved between the two times that each run told."""
        both: dict[str, list[float]] = {}
        for run, at in self.told():
            both.setdefault(run, []).append(at)
        return [times[1] - times[0] for times in both.values() if len(times) == 2]

    def done(self) -> Counter[str]:
        """How often each effect was made."""
        return Counter(line.split()[0] for line in self.effects.read_text().splitlines())


async def ran_once(team: Fleet, task_id: str) -> Task:
    """A task that has ended well in the one run that it was given."""
    task = await team.ended(task_id)
    events = await team.events(task_id)
    assert (task.state, task.counts.runs, events.count("RunLost")) == (State.DONE, 1, 0), events
    return task


async def test_no_run_is_lost_or_taken_over_when_clocks_jump(
    durable_url: str, tmp_path: Path
) -> None:
    """One worker's clock goes hours ahead, the other's hours back, while each has all its hands
    full; later it is the other way round.
    """
    day, lease_seconds = Day(tmp_path), patient(2.5)
    async with fleet(durable_url) as team:
        with machines(durable_url, tmp_path, 2, heartbeat_seconds=lease_seconds) as (ahead, behind):
            await team.staff(2)
            tasks = [
                await team.create(*day.script(str(number), ["sleep", 1.2 * lease_seconds]))
                for number in range(8)
            ]
            await day.begun(8)
            ahead.set(FAR_SECONDS)
            behind.set(-FAR_SECONDS)
            day.gate.touch()
            for task_id in tasks:
                await ran_once(team, task_id)
            leaps = day.leaps()
            assert [abs(leap) > FAR_SECONDS / 2 for leap in leaps] == [True] * 8, (
                "each run saw the jump"
            )
            assert {leap > 0 for leap in leaps} == {True, False}, "both workers had some"
            assert day.done() == {str(number): 1 for number in range(8)}

            ahead.set(-FAR_SECONDS)
            behind.set(FAR_SECONDS)
            late = [await team.create(*day.script(f"late-{number}")) for number in range(8)]
            for task_id in late:
                await ran_once(team, task_id)
            await team.idle()
            assert sum(day.done().values()) == 16
            assert [worker.worker.alive for worker in (ahead, behind)] == [True, True]
            assert "another worker" not in ahead.said + behind.said


async def test_the_dead_are_taken_over_within_seconds_whatever_the_clocks_say(
    durable_url: str, tmp_path: Path
) -> None:
    """A worker hours ahead is killed while it runs a task.

    The clock of the only other one is set back at that moment.
    """
    day, heirs = Day(tmp_path), tmp_path / "heirs"
    heirs.mkdir()
    async with fleet(durable_url) as team:
        with machines(durable_url, tmp_path, 1) as (dead,):
            dead.set(FAR_SECONDS)
            await team.staff(1)
            task_id = await team.create(*day.script("kept"))
            await day.begun(1)
            with machines(durable_url, heirs, 1) as (heir,):
                await team.staff(2)
                dead.worker.end()
                heir.set(-FAR_SECONDS)
                async with asyncio.timeout(patient(20)):
                    await team.until(task_id, lambda task: task.counts.runs == 2)
                day.gate.touch()
                task = await team.ended(task_id)
                assert (task.state, (await team.events(task_id)).count("RunLost"), day.done()) == (
                    State.DONE,
                    1,
                    {"kept": 1},
                )
                await team.idle()


async def test_schedules_follow_the_clock_of_the_machine(
    tmp_path: Path,
) -> None:
    """On PostgreSQL it follows the server's.

    On SQLite there is no other, and nothing under way here that a jump could harm.
    """
    url = f"sqlite:///{tmp_path / 'remit.db'}"
    async with fleet(url) as team:
        with machines(url, tmp_path, 1) as (machine,):
            await team.staff(1)
            soon = team.core.clock.now() + timedelta(seconds=FAR_SECONDS / 2)
            task_id = await team.create(
                ["finish", "at last"], schedule={"not_before": soon.isoformat()}
            )
            await ran_once(team, await team.create(["finish", "at once"]))
            assert (await team.task(task_id)).state is State.PENDING
            machine.set(FAR_SECONDS)
            assert (await ran_once(team, task_id)).summary == "at last"


@pytest.mark.parametrize("jump", [FAR_SECONDS, -FAR_SECONDS], ids=["ahead", "back"])
async def test_durations_are_unaffected_by_clock_jumps(
    durable_url: str, tmp_path: Path, jump: int
) -> None:
    """Limits of time, pauses before another try and timers are durations, whatever time of day
    it is.
    """
    day = Day(tmp_path)
    child = {"title": "Child", "owner": "general", "metadata": {"script": day.script("child")}}
    async with fleet(durable_url) as team:
        with machines(durable_url, tmp_path, 1, concurrency=8) as (machine,):
            await team.staff(1)
            long = await team.create(
                ["block", child], ["finish", "in time"], limits={"timeout_seconds": patient(600)}
            )
            short = await team.create(["block", child], limits={"timeout_seconds": patient(4)})
            for task_id in (long, short):
                await team.until(
                    task_id, lambda task: task.state is State.WAITING and task.counts.runs == 1
                )
            failing = await team.create(["raise", "as ever"], limits={"max_attempts": 3})
            waiting = await team.create(["timer", 2], ["finish", "on time"])
            await team.until(failing, lambda task: task.attempts == 1)
            await team.until(waiting, lambda task: task.state is State.WAITING)
            await day.begun(2)
            machine.set(jump)
            again = await team.create(["raise", "as ever"], limits={"max_attempts": 2})
            for task_id in (failing, again):
                assert (await team.ended(task_id)).reason == "error"
            assert (await team.ended(waiting)).summary == "on time"
            assert (await team.ended(short)).reason == "timeout"
            day.gate.touch()
            task = await team.ended(long)
            assert (task.state, task.summary) == (State.DONE, "in time")
            assert task.duration < FAR_SECONDS / 2
            await team.idle()
            assert [abs(leap - jump) < FAR_SECONDS / 2 for leap in day.leaps()] == [True] * 2, (
                "there was a jump"
            )
