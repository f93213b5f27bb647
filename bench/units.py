"""The work that all stores are measured with: units of events and rows, created in advance."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from uuid_utils import uuid7

from remit.codec import GENESIS, encode_event
from remit.domain.decisions.evolve import evolve
from remit.domain.projection.rows import Rows
from remit.domain.task import events as ev
from remit.domain.task.stored_event import Stored
from remit.domain.task.task import Step, Task
from remit.ports import Append, Unit

START = datetime(2026, 1, 1, tzinfo=UTC)
OWNERS = ("general", "explore", "plan", "summary", "build")


def unit(number: int, *, ended: bool = False) -> Unit:
    """A new task with some text and a plan. An ended task has three events."""
    made = ev.TaskCreated(
        id=str(number),
        uid=str(uuid7()),
        thread_id=str(uuid7()),
        title=f"Task {number}",
        description="Why this is done, in a line or two. " * 3,
        instructions="What is to be done, step by step, so that nobody has to ask. " * 5,
        owner=OWNERS[number % len(OWNERS)],
        steps=tuple(Step(title=f"Step {step}") for step in range(4)),
        root_id=str(number),
    )
    events: list[ev.Event] = (
        [made, ev.CompletionClaimed(summary="Done."), ev.TaskCompleted(verification="none")]
        if ended
        else [made]
    )
    return _unit(str(number), events, START + timedelta(seconds=number))


def units(first: int, count: int) -> list[Unit]:
    """This many new tasks."""
    return [unit(number) for number in range(first, first + count)]


def history(count: int) -> Iterator[Unit]:
    """A used workspace: nine of ten tasks have ended."""
    return (unit(number, ended=number % 10 != 0) for number in range(1, count + 1))


def _unit(stream: str, events: list[ev.Event], at: datetime) -> Unit:
    task: Task | None = None
    head = GENESIS
    sealed: list[Stored] = []
    rows = Rows(None)
    for version, event in enumerate(events, 1):
        entry = ev.Entry(
            id=str(uuid7()), stream=stream, version=version, at=at, actor="user:bench", event=event
        )
        sealed.append(encode_event(entry, head))
        head = sealed[-1].hash
        task = evolve(task, entry)
        rows.add(entry, task)
    return Unit((Append(stream, 0, tuple(sealed)),), tuple(rows.changes(head)))
