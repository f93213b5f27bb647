"""A fan-out whose process is killed in the middle and started again: what is asked twice, what comes of it, and how long it takes."""

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
"""How many sub-agents have got their last answer when the process is killed."""
LATENCY = 0.2
STAGGER = 0.02
"""Seconds that a call takes, and how much more for each next job: so there is a middle."""
MOST_SECONDS = 2.0


class Killed(NamedTuple):
    """The record when the process was killed and when all was done, and seconds from its start anew to the result."""

    before: Record
    after: Record
    seconds: float


Stored = dict[int, int]
"""How many answers of the model are stored for each job, and for the lead."""


async def killed_lines(model: Service, folder: Path) -> list[Line]:
    """What was stored is looked up in a copy, made when the process was dead and before the next one was there."""
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
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-wake"))  # pipes of the dead
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
        time.sleep(0.005)  # between two looks at the record


async def _stored(folder: Path) -> Stored:
    stored: Stored = {}
    async with Remit.open(folder, worker=False) as remit:
        for page in (await remit.list_tasks(), await remit.list_history()):
            for task in page["tasks"]:
                told = JOB.search((await remit.get_task(task_id=task["id"]))["instructions"])
                stored[int(told[1]) if told else LEAD] = await _answers(remit, task["id"])
    assert len(stored) == JOBS + 1, "there is a task for each job, and the lead's"
    return stored


async def _answers(remit: Remit, task_id: str) -> int:
    return sum(message["role"] == "assistant" for message in (await remit.get_transcript(task_id=task_id))["messages"])


def _lines(found: Killed, stored: Stored) -> list[Line]:
    asked = [call.key for call in found.after.calls[len(found.before.calls) :]]
    known = [key for key in asked if key[1] < stored[key[0]]]
    flying = {call.key for call in found.before.calls if call.turn >= stored[call.job]}
    again = sum(key in flying for key in asked)
    late = found.seconds - _model_seconds(stored)
    what = f"fan-out to {JOBS}, kill -9 after {ENDED} ended, started again"
    repeats = len(known) + len(asked) - len(set(asked))
    return [
        Line(f"{what}: calls made twice though their answer was stored (the limit beside it)", str(repeats), "0", repeats, "0", repeats == 0),
        Line(
            f"{what}: calls made twice because their answer was not stored (all such calls beside it)",
            str(again),
            str(len(flying)),
            again / max(len(flying), 1),
            "",
            True,
        ),
        Line(
            f"{what}: results that the lead got (all beside it)",
            str(found.after.results),
            str(JOBS),
            found.after.results / JOBS,
            "1.00",
            found.after.results == JOBS,
        ),
        Line(
            f"{what}: s from the new process to the result, without those the model needs (the limit beside it)",
            f"{late:.2f}",
            f"{MOST_SECONDS:.2f}",
            late / MOST_SECONDS,
            "at most 1.00",
            late <= MOST_SECONDS,
        ),
    ]


def _model_seconds(stored: Stored) -> float:
    """What the model takes for the calls that are missing: the jobs side by side, then the lead's last."""
    jobs = ((LATENCY + STAGGER * job) * (NOTES + 1 - turns) for job, turns in stored.items() if job != LEAD)
    return max(jobs, default=0.0) + LATENCY
