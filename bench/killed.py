"""A fan-out whose process is killed and restarted: repeated calls, the result and the time."""

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from bench.driven import PATIENCE_SECONDS, Driven
from bench.line import Line
from bench.peers.model_server import JOB, LEAD
from bench.service import Record, Service
from remit import Remit

JOBS = 20
NOTES = 2
ENDED = 12
"""The number of sub-agents that have their last answer when the process is killed."""
LATENCY = 0.2
STAGGER = 0.02
"""Seconds per call, and the increase per job, so that jobs end at different times."""
MOST_SECONDS = 2.0


class Killed(NamedTuple):
    """The record at the kill and at the end, and the seconds from the restart to the result."""

    before: Record
    after: Record
    seconds: float


Stored = dict[int, int]
"""The number of stored model answers per job, and for the lead."""


async def killed_lines(model: Service, folder: Path) -> list[Line]:
    """Count stored answers in a copy of the database, made between the kill and the restart."""
    copy = folder.with_name(f"{folder.name}-copy")
    found = _killed(model, folder, copy)
    return _lines(found, await _stored(copy))


def _killed(model: Service, folder: Path, copy: Path) -> Killed:
    with Driven("remit_driver", model, folder, JOBS) as first:
        model.rules(delegate=first.delegate, latency=LATENCY, stagger=STAGGER)
        first.begin(n=JOBS, k=NOTES)
        _until_ended(model, ENDED)
        first.kill()
    before = model.record()
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-wake"))  # skip the pipes
    began = time.monotonic()
    with Driven("remit_driver", model, folder, JOBS) as second:
        said = second.do(resume=True)
        seconds = time.monotonic() - began
    assert said["text"] == f"summary of {JOBS} jobs", said
    return Killed(before, model.record(), seconds)


def _until_ended(model: Service, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while model.record().ended(NOTES) < count:
        assert time.monotonic() < deadline, f"not even {count} jobs ended"
        time.sleep(0.005)  # polling interval


async def _stored(folder: Path) -> Stored:
    stored: Stored = {}
    async with Remit.open(folder, worker=False) as remit:
        for page in (await remit.list_tasks(), await remit.list_history()):
            for task in page.tasks:
                told = JOB.search((await remit.get_task(task_id=task.id)).instructions)
                stored[int(told[1]) if told else LEAD] = await _answers(remit, task.id)
    assert len(stored) == JOBS + 1, "there is a task for each job, and the lead's"
    return stored


async def _answers(remit: Remit, task_id: str) -> int:
    return sum(
        message.role == "assistant"
        for message in (await remit.get_transcript(task_id=task_id)).messages
    )


def _lines(found: Killed, stored: Stored) -> list[Line]:
    asked = [call.key for call in found.after.calls[len(found.before.calls) :]]
    known = [key for key in asked if key[1] < stored[key[0]]]
    flying = {call.key for call in found.before.calls if call.turn >= stored[call.job]}
    again = sum(key in flying for key in asked)
    late = found.seconds - _model_seconds(stored)
    what = f"fan-out to {JOBS}, kill -9 after {ENDED} ended, started again"
    repeats = len(known) + len(asked) - len(set(asked))
    return [
        Line(
            f"{what}: calls repeated although their answer was stored (other: the limit)",
            str(repeats),
            "0",
            repeats,
            "0",
            repeats == 0,
        ),
        Line(
            f"{what}: calls repeated because their answer was not stored (other: all such calls)",
            str(again),
            str(len(flying)),
            again / max(len(flying), 1),
            "",
            True,
        ),
        Line(
            f"{what}: results that the lead got (other: all)",
            str(found.after.results),
            str(JOBS),
            found.after.results / JOBS,
            "1.00",
            found.after.results == JOBS,
        ),
        Line(
            f"{what}: s from the new process to the result, without the model's time (other:"
            " the limit)",
            f"{late:.2f}",
            f"{MOST_SECONDS:.2f}",
            late / MOST_SECONDS,
            "at most 1.00",
            late <= MOST_SECONDS,
        ),
    ]


def _model_seconds(stored: Stored) -> float:
    """The model's time for the remaining calls: the jobs in parallel, then the lead's last call."""
    jobs = (
        (LATENCY + STAGGER * job) * (NOTES + 1 - turns)
        for job, turns in stored.items()
        if job != LEAD
    )
    return max(jobs, default=0.0) + LATENCY
