"""A story that writes to every table, and a place to die at between any two steps of it."""

import asyncio
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from remit.adapters.stores.memory import MemoryEventStore
from remit.adapters.stores.sqlite.driver import connect
from remit.adapters.stores.sqlite.notifier import Notifier
from remit.adapters.stores.sqlite.writing import writer, writer_thread
from remit.bootstrap import open_store
from tests.crash.around import Witness
from tests.people import Desk


async def story(at: Desk) -> None:
    """Guides, keys, dependencies, labels, trees, runs, updates, questions, notices, a handoff, a
    result that answers again, and every way to end.
    """
    await at.do("CreateGuide", title="Disk is full", body="Delete the caches.")
    first = await at.create("First", owner="general", labels=["a", "b"], idempotency_key="k1")
    second = await at.create(
        "Second", owner="general", depends_on=[first], labels=["c"], tsgs=["disk-is-full"]
    )
    await at.do(
        "UpdateTask",
        task_id=second,
        depends_on=[],
        labels=["d"],
        instructions="Do it well.",
        acceptance=["It is short."],
    )
    await at.create(
        "Third",
        depends_on=[{"task_id": second, "on": "settled"}],
        parent_session="s1",
        schedule={"not_before": "2999-01-01T00:00:00Z"},
    )
    root = await at.create("Root", owner="build", steps=["Look", "Write"])
    child = (
        await at.do("CreateSubtask", task_id=root, title="Look", owner="explore", step_index=0)
    ).task_id
    await at.do("CreateSubtask", task_id=child, title="Below", owner="general")
    run = await at.start(child)
    await at.do("SendMessage", task_id=child, message="Hurry.")
    await at.do("DeliverUpdates", "agent:explore", run, task_id=child, turn=1)
    await at.do(
        "AskUser",
        "agent:explore",
        run,
        task_id=child,
        question="Which?",
        options=["x", "y"],
        call_id="c",
    )
    await at.do("NotifyUser", "agent:explore", run, task_id=child, message="Half way.")
    await at.do("YieldRun", "agent:explore", run, task_id=child)
    await at.do("Respond", interaction_id=f"{child}-q1", answer="x")
    await asyncio.gather(
        at.create("At once"),
        at.do("SendMessage", task_id=first, message="Now."),
        at.create("And this", labels=["e"]),
    )
    await at.start(child)
    await at.do("UpdateTask", task_id=child, owner="plan")
    known = (await at.do("CreateCached", title="Known", owner="explore", cache_key="k")).task_id
    run = await at.start(known)
    await at.do("VouchResult", "agent:explore", run, task_id=known)
    await at.do("FinishRun", "agent:explore", run, task_id=known, final_message="Here.")
    await at.do("CancelTask", task_id=root)
    await at.do("FailTask", task_id=second, message="No.")
    await at.do("RerunTask", task_id=second)
    await at.do("CompleteTask", task_id=first)


class Boundary:
    """Counts the places between two steps, and dies of `kill -9` at one of them."""

    def __init__(self, point: int) -> None:
        self._point, self._passed = point, itertools.count(1)

    def __call__(self) -> None:
        if next(self._passed) == self._point:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """A step with a place to die before it and one after it."""

        def between(*arguments: Any) -> Any:
            self()
            done = step(*arguments)
            self()
            return done

        return between


class Fragile:
    """A connection with places to die around each statement, and between the rows of one."""

    def __init__(self, connection: Any, boundary: Boundary) -> None:
        self._connection, self._boundary = connection, boundary
        self.execute = boundary.around(connection.execute)
        self.create_function = connection.create_function

    def executemany(self, statement: str, rows: Iterable[Any]) -> Any:
        """Run a statement for each row."""
        return self._boundary.around(self._connection.executemany)(statement, self._each(rows))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._connection.in_transaction)

    def close(self) -> None:
        """Close the file, or die before or after that."""
        self._boundary.around(self._connection.close)()

    def _each(self, rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            self._boundary()
            yield row


async def play(path: Path, point: int) -> None:
    """The whole story on a file, unless the point where it ends comes first."""
    boundary = Boundary(point)
    vars(writer).update(connect=lambda path, **options: Fragile(connect(path, **options), boundary))
    vars(writer_thread).update(_tell=boundary.around(writer_thread._tell))
    Notifier.notify = boundary.around(Notifier.notify)  # type: ignore[method-assign]
    said = os.open(f"{path}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with open_store(f"sqlite:///{path}") as store, store.watch():
        await story(Desk(Witness(store, lambda line: _write(said, line))))


def _write(said: int, line: dict[str, Any]) -> None:
    os.write(said, json.dumps(line).encode() + b"\n")


def main() -> None:
    """For each `[path, point]` on a line of the input: a fork that plays to that point, and how it
    ended on a line of the output.

    This process has imported everything, has told the story once, and has one thread only, so that
    a fork is cheap and safe.
    """
    asyncio.run(story(Desk(MemoryEventStore())))
    for line in sys.stdin:
        path, point = json.loads(line)
        if (child := os.fork()) == 0:
            code = 1
            try:
                asyncio.run(play(Path(path), point))
                code = 0
            except BaseException:  # noqa: BLE001 - a fork must not return into the loop of its parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
