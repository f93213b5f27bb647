"""`kill -9` in the middle of a fan-out: another worker goes on, everything ends once, and what was done is not done again."""

import asyncio
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remit import Remit
from remit.testing import Answer, Asked, scripted_model

CITIES = ["Berlin", "Lagos", "Lima", "Oslo", "Osaka", "Porto"]


class Model:
    """A boss who sends a scout to every city. Half of the scouts take their time until the worker was killed."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.all_out, self.killed = asyncio.Event(), asyncio.Event()

    async def __call__(self, asked: Asked) -> Answer:
        """What the boss or a scout says next."""
        self.asked[asked.objective] += 1
        if len(self.asked) == 1 + len(CITIES):
            self.all_out.set()
        if asked.objective == "See the world":
            scouts = [{"objective": city, "subagent_type": "explore"} for city in CITIES]
            return asked.results[-1] if asked.results else [("task_parallel", {"tasks": scouts})]
        if CITIES.index(asked.objective) % 2:
            await self.killed.wait()
        return f"{asked.objective} is nice."


@asynccontextmanager
async def worker(folder: str, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker in a process of its own; one that is silent for two seconds counts as dead."""
    command = (sys.executable, "-m", "remit", "worker", "--workspace", folder, "--database-url", url)
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | {"REMIT_HEARTBEAT_SECONDS": "2"}, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def count(remit: Remit, kind: str, enough: int) -> None:
    """Return once so many events of a kind have happened."""
    seen = 0
    async for event in remit.events(after="0"):
        seen += event["type"] == kind
        if seen == enough:
            return


async def main() -> None:
    """Hand out work, kill who does it, and let somebody else go on."""
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/remit.db"
        async with scripted_model(model), Remit.open(folder, url, worker=False) as remit:
            boss = (await remit.create_task(title="See the world", owner="build"))["task_id"]
            async with worker(folder, url) as first:
                print("A boss sends six sub-agents out. A worker in a process of its own does the work.", flush=True)
                await count(remit, "TaskCompleted", 3)
                await model.all_out.wait()
                print(f"All six are on their way, three are back. Now: kill -9 {first.pid}", flush=True)
                first.send_signal(signal.SIGKILL)
                before = dict(model.asked)
            model.killed.set()
            async with worker(folder, url) as second:
                print(f"Another worker, {second.pid}, goes on. What its boss heard in the end:", flush=True)
                found = await remit.task_output(task_id=boss, wait_seconds=60)
            print("  " + " ".join(line for line in found["data"]["result"].splitlines() if "nice" in line))
            events = {task_id: await kinds(remit, task_id) for task_id in map(str, range(1, len(CITIES) + 2))}
    for task_id, seen in events.items():
        lost = "lost with its worker, taken over, " if seen["RunLost"] else ""
        print(f"  task {task_id}: {lost}completed once")
        assert seen["TaskCompleted"] == 1, (task_id, seen)
    assert found["data"]["status"] == "completed", found
    assert all(f"{city} is nice." in found["data"]["result"] for city in CITIES), found
    assert all(model.asked[city] == before[city] for city in CITIES[::2]), "whoever was back was not sent again"
    assert all(model.asked[city] > before[city] for city in CITIES[1::2]), "whoever was lost was sent again"


async def kinds(remit: Remit, task_id: str) -> Counter[str]:
    """How many events of each kind a task has."""
    return Counter(event["type"] for event in (await remit.get_events(task_id=task_id))["events"])


if __name__ == "__main__":
    asyncio.run(main())
