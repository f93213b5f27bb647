"""The cost of delegation: a lead delegates N jobs in one answer, each to a sub-agent that reads two
notes, and summarizes the results.

remit does this durably on SQLite. It is compared with plain aiohttp code that makes the same model
calls, and with other frameworks if they are installed; these store nothing. Each runs in a separate
process, in turns. CPU is that of the process.
"""

import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from bench.driven import Driven
from bench.killed import killed_lines
from bench.line import Line
from bench.service import Service, service

NOTES = 2
SIZES = {1: 10, 10: 5, 100: 6}
"""The number of jobs, and the repetitions in one process."""
OPEN = 1000
"""A larger number of jobs, all open at once, run once in a new process."""
JUDGED = 100
MOST_CPU = 6.0
MOST_SPAWN = 10.0
MOST_OPEN_KB = 60.0
ROUNDS = 3
OURS, FLOOR = "remit_driver", "floor"
PEERS = {
    "pydantic-ai": ("pydantic_ai_driver", ("pydantic_ai", "openai")),
    "agno": ("agno_driver", ("agno", "openai")),
}
"""Other frameworks: their drivers, and the packages that these need."""
PLAIN = "other: plain aiohttp"


class Trial(NamedTuple):
    """The cost of one job: CPU seconds and peak growth in KB per sub-agent, and seconds until the
    last of them started.
    """

    cpu: float
    memory_kb: float
    last: float


Trials = dict[tuple[str, int], list[Trial]]
"""Results by driver and number of jobs."""


async def fanout_lines(folder: Path, rounds: int) -> list[Line]:
    """Run the whole part."""
    peers = {
        name: driver
        for name, (driver, needed) in PEERS.items()
        if all(find_spec(package) for package in needed)
    }
    with service() as model:
        found, streamed = _measured(Bench(model, folder), list(peers.values()), min(rounds, ROUNDS))
        killed = await killed_lines(model, folder / "killed")
    lines = [line for n in (*SIZES, OPEN) for line in _cpu_lines(n, found, peers)]
    lines.append(
        _cpu_line(
            f"fan-out to {JUDGED:,}, streaming",
            PLAIN,
            streamed[OURS, JUDGED],
            streamed[FLOOR, JUDGED],
        )
    )
    return [
        *lines,
        _spawn_line(found[OURS, JUDGED], found[FLOOR, JUDGED]),
        *_memory_lines(found, peers),
        *killed,
    ]


def _measured(bench: "Bench", peers: list[str], rounds: int) -> tuple[Trials, Trials]:
    """Run all drivers in turns, with whole and with streamed answers.

    Other frameworks are slow with many open jobs, so they run once.
    """
    found, streamed = Trials(), Trials()
    for number in range(rounds):
        for driver in (FLOOR, OURS, *peers):
            _merge(found, bench.trials(driver, SIZES))
        for driver in (FLOOR, OURS, *(peers if number == 0 else ())):
            _merge(found, bench.trials(driver, {OPEN: 1}, barrier=OPEN))
        for driver in (FLOOR, OURS):
            _merge(streamed, bench.trials(driver, {JUDGED: SIZES[JUDGED]}, stream=True))
    return found, streamed


def _merge(into: Trials, more: Trials) -> None:
    for key, trials in more.items():
        into.setdefault(key, []).extend(trials)


class Bench:
    """Runs jobs with drivers, each in a new process and folder."""

    def __init__(self, model: Service, folder: Path) -> None:
        self._model, self._folder = model, folder
        self._opened = 0

    def trials(
        self, driver: str, sizes: dict[int, int], *, stream: bool = False, barrier: int = 0
    ) -> Trials:
        """Run jobs of these sizes, with repetitions.

        With a barrier, no sub-agent gets an answer before that many have sent a request.
        """
        self._opened += 1
        with Driven(
            driver, self._model, self._folder / f"fan-{self._opened}", max(sizes), stream=stream
        ) as driven:
            self._trial(driven, 1, 0)
            self._trial(driven, 10, 0)
            return {
                (driver, n): [self._trial(driven, n, barrier) for _ in range(times)]
                for n, times in sizes.items()
            }

    def _trial(self, driven: Driven, n: int, barrier: int) -> Trial:
        self._model.rules(delegate=driven.delegate, barrier=barrier)
        said, record = driven.do(n=n, k=NOTES), self._model.record()
        assert said["text"] == f"summary of {n} jobs", said
        assert (len(record.calls), record.repeated, record.results) == (
            n * (NOTES + 1) + 2,
            0,
            n,
        ), "the job was not done right"
        return Trial(said["cpu"] / n, said["memory_kb"] / n, record.spawned()[1])


# Output.


def _cpu_lines(n: int, found: Trials, peers: dict[str, str]) -> list[Line]:
    what = f"fan-out to {n:,}"
    return [
        _cpu_line(what, PLAIN, found[OURS, n], found[FLOOR, n], MOST_CPU if n == JUDGED else None),
        *(
            _cpu_line(what, f"other: {name}, without storage", found[OURS, n], found[driver, n])
            for name, driver in peers.items()
        ),
    ]


def _cpu_line(
    what: str,
    beside: str,
    ours: Sequence[Trial],
    others: Sequence[Trial],
    most: float | None = None,
) -> Line:
    mine, theirs = [trial.cpu for trial in ours], [trial.cpu for trial in others]
    ratio = min(mine) / min(theirs)
    shown = [
        f"{min(column) * 1000:.2f}, {statistics.median(column) * 1000:.2f}"
        for column in (mine, theirs)
    ]
    return _line(
        f"{what}: CPU ms per sub-agent, best and median ({beside})",
        shown,
        ratio,
        most,
    )


def _spawn_line(ours: Sequence[Trial], others: Sequence[Trial]) -> Line:
    mine, theirs = (min(trial.last for trial in trials) for trials in (ours, others))
    shown = [f"{seconds * 1000:.1f}" for seconds in (mine, theirs)]
    return _line(
        f"fan-out to {JUDGED:,}: until the last sub-agent calls its model, ms ({PLAIN})",
        shown,
        mine / theirs,
        MOST_SPAWN,
    )


def _memory_lines(found: Trials, peers: dict[str, str]) -> list[Line]:
    kb = {
        driver: max(trial.memory_kb for trial in found[driver, OPEN])
        for driver in (OURS, FLOOR, *peers.values())
    }
    what, mine = f"{OPEN:,} sub-agents open at once: KB for each", f"{kb[OURS]:.0f}"
    return [
        _line(
            f"{what} (other: the limit)",
            [mine, f"{MOST_OPEN_KB:.0f}"],
            kb[OURS] / MOST_OPEN_KB,
            1.0,
        ),
        *(
            _line(f"{what} (other: {name})", [mine, f"{kb[driver]:.0f}"], kb[OURS] / kb[driver])
            for name, driver in {"plain aiohttp": FLOOR, **peers}.items()
        ),
    ]


def _line(what: str, shown: Sequence[str], ratio: float, most: float | None = None) -> Line:
    ours, other = shown
    return Line(
        what,
        ours,
        other,
        ratio,
        "" if most is None else f"at most {most:.2f}",
        most is None or ratio <= most,
    )
