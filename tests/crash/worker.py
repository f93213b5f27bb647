"""The processes of the crash suite: `python -m tests.crash.worker JOB ARGUMENTS`, with one line of
JSON for each action.
"""

import asyncio
import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Any

import asyncpg  # noqa: F401 - so that the first use of it is not what is timed

from remit import Remit
from remit.adapters.stores.postgres import watches as postgres
from remit.adapters.stores.sqlite import watches as sqlite
from remit.adapters.stores.sqlite.driver import newest
from remit.app.reading.follow import follow
from remit.bootstrap import open_store
from remit.ports import EventStore, Topic
from tests.crash.around import Witness
from tests.patience import patient
from tests.people import Desk


def say(line: dict[str, Any]) -> None:
    """One line, written at once and as a whole."""
    os.write(1, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def ready() -> None:
    """Wait until the parent says go."""
    say({"ready": os.getpid()})
    sys.stdin.readline()


async def create(url: str, lanes: int, each: int) -> None:
    """Tasks, one after the other in each of some lanes."""
    ready()
    async with open_store(url) as store:
        at = Desk(Witness(store, say))

        async def lane(number: int) -> None:
            for turn in range(each):
                say(
                    {
                        "created": [
                            number,
                            int(await at.create(f"Task {turn} of lane {number}", owner="general")),
                        ]
                    }
                )

        await asyncio.gather(*map(lane, range(lanes)))


async def work(url: str, lanes: int, seed: int) -> None:
    """Mixed work for ever: trees, messages, questions, cancellations."""
    ready()
    random = Random(seed)
    async with open_store(url) as store:
        at = Desk(Witness(store, say))
        await asyncio.gather(*(life(at, random) for _ in range(lanes)))


async def life(at: Desk, random: Random, tasks: int = 10**9) -> None:
    """One task after the other, from its creation to its end."""
    for _ in range(tasks):
        root = await at.create("Root", owner="build", labels=["a", "b"], steps=["Look", "Write"])
        child = (
            await at.do("CreateSubtask", task_id=root, title="Look", owner="explore", step_index=0)
        ).task_id
        for number in range(random.randrange(3)):
            await at.do(
                "SendMessage", task_id=random.choice([root, child]), message=f"Message {number}"
            )
        run = await at.start(child)
        await at.do("DeliverUpdates", "agent:explore", run, task_id=child, turn=1)
        await at.do("AskUser", "agent:explore", run, task_id=child, question="Go on?", call_id="c")
        await at.do("YieldRun", "agent:explore", run, task_id=child)
        await at.do("Respond", interaction_id=f"{child}-q1", answer="Yes.")
        ending = random.choice(["CompleteTask", "CancelTask"])
        await at.do(ending, task_id=child)
        await at.do("CancelTask", task_id=root)


async def message(url: str, task_id: str, lanes: int, each: int, author: str) -> None:
    """Messages to one task that all processes share."""
    ready()
    async with open_store(url) as store:
        at = Desk(Witness(store, say))

        async def lane(number: int) -> None:
            for turn in range(each):
                await at.do("SendMessage", task_id=task_id, message=f"{author}/{number}/{turn}")

        await asyncio.gather(*map(lane, range(lanes)))


async def same_keys(url: str, keys: int) -> None:
    """Tasks whose keys all processes share, one at a time so that the processes stay close
    together.
    """
    ready()
    async with open_store(url) as store:
        at = Desk(Witness(store, say))
        for key in range(keys):
            say(
                {
                    "keyed": [
                        key,
                        await at.create("Once", owner="general", idempotency_key=f"key-{key}"),
                    ]
                }
            )


async def open_each(urls: list[str]) -> None:
    """Open one store after the other, each among the first who do."""
    for url in urls:
        ready()
        async with open_store(url) as store:
            say({"opened": await store.new_ids(1)})


async def listen(url: str, after: str, safety_seconds: float) -> None:
    """Follow from a position and say each event; how often a watcher looks for itself is given."""
    sqlite.SAFETY_SECONDS = postgres.SAFETY_SECONDS = safety_seconds
    ready()
    async with open_store(url) as store:
        async for page in follow(_Announced(store), after):
            for recorded in page:
                say({"seen": [recorded.position, recorded.event.id]})


class _Announced(Witness):
    """Says when it waits with nothing left to read, so that a parent knows that only a ring can
    wake it.
    """

    def __init__(self, store: EventStore) -> None:
        super().__init__(store, say)

    async def feed(self, after: str, limit: int) -> Any:
        page = await self._store.feed(after, limit)
        if not page:
            say({"waiting": after})
        return page

    def watch(self, topic: Topic = "events") -> AbstractAsyncContextManager[Any]:
        return self._store.watch(topic)


async def hold_lock(path: str) -> None:
    """Hold the write lock of a file from one `go` to the next."""
    connection = newest().connect(path, isolation_level=None, timeout=patient(30))
    ready()
    connection.execute("BEGIN IMMEDIATE")
    say({"held": str(Path(path))})
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()


async def fail_beside_run(url: str, workspace: str) -> None:
    """Raise an error while a run in another task waits for its model.

    Asyncio.run then cancels all tasks.
    """
    is_asked = asyncio.Event()

    async def never_answer(*_: object) -> None:
        is_asked.set()
        await asyncio.Event().wait()

    async def hold() -> None:
        async with Remit.open(workspace, database_url=url, worker="all") as remit:
            await remit.create_task(title="Slow", owner="general")
            await asyncio.Event().wait()

    ready()
    model = await asyncio.start_server(never_answer, "127.0.0.1")
    address = f"http://127.0.0.1:{model.sockets[0].getsockname()[1]}/v1"
    os.environ |= {"LLM_MODEL_ID": "slow", "LLM_API_KEY": "none", "LLM_BASE_URL": address}
    holder = asyncio.create_task(hold())
    await is_asked.wait()
    say({"running": not holder.done()})
    raise SystemExit(0)


JOBS = {
    job.__name__: job
    for job in (create, work, message, same_keys, open_each, listen, hold_lock, fail_beside_run)
}

if __name__ == "__main__":
    asyncio.run(JOBS[sys.argv[1]](**json.loads(sys.argv[2])))
