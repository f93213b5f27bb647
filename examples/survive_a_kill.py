"""Kill a worker with `kill -9` in the middle of a fan-out.

Another worker continues. Every task completes once, and completed work is not repeated.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remit import Answer, Asked, Remit, scripted_model

CITIES = ["Berlin", "Lagos", "Lima", "Oslo", "Osaka", "Porto"]


class Model:
    """The model of a lead agent that delegates one task per city, and of its sub-agents.

    Half of the sub-agents answer only after the worker was killed.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.all_out, self.killed = asyncio.Event(), asyncio.Event()

    async def __call__(self, asked: Asked) -> Answer:
        """The next answer of the lead or of a sub-agent."""
        self.asked[asked.objective] += 1
        if len(self.asked) == 1 + len(CITIES):
            self.all_out.set()
        if asked.objective == "See the world":
            tasks = [{"objective": city, "subagent_type": "explore"} for city in CITIES]
            return asked.results[-1] if asked.results else [("task_parallel", {"tasks": tasks})]
        if CITIES.index(asked.objective) % 2:
            await self.killed.wait()
        return f"{asked.objective} is nice."


@asynccontextmanager
async def worker(folder: str, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a worker in a separate process. Its leases expire after two seconds."""
    command = (
        sys.executable,
        "-m",
        "remit",
        "worker",
        "--workspace",
        folder,
        "--database-url",
        url,
    )
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {"REMIT_HEARTBEAT_SECONDS": "2"},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def count(remit: Remit, kind: str, enough: int) -> None:
    """Return once the store has this many events of a kind."""
    seen = 0
    async for event in remit.events(after="0"):
        seen += event.type == kind
        if seen == enough:
            return


async def main() -> None:
    """Delegate the tasks, kill the worker, and let another worker continue."""
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/remit.db"
        async with scripted_model(model), Remit.open(folder, url, worker=False) as remit:
            lead = (await remit.create_task(title="See the world", owner="build")).task_id
            async with worker(folder, url) as first:
                print(
                    "A lead agent delegates to six sub-agents. A worker in a separate process runs"
                    " them.",
                    flush=True,
                )
                await count(remit, "TaskCompleted", 3)
                await model.all_out.wait()
                print(
                    f"All six have started, three are done. Now: kill -9 {first.pid}",
                    flush=True,
                )
                first.send_signal(signal.SIGKILL)
                before = dict(model.asked)
            model.killed.set()
            async with worker(folder, url) as second:
                print(
                    f"Another worker, {second.pid}, continues. The results that the lead read:",
                    flush=True,
                )
                found = await remit.task_output(task_id=lead, wait_seconds=60)
            results = json.loads(found.text)["results"]
            print("  " + " ".join(item["result"] for item in results))
            events = {
                task_id: await kinds(remit, task_id)
                for task_id in map(str, range(1, len(CITIES) + 2))
            }
    for task_id, seen in events.items():
        lost = "run lost and taken over, " if seen["RunLost"] else ""
        print(f"  task {task_id}: {lost}completed once")
        assert seen["TaskCompleted"] == 1, (task_id, seen)
    assert found.status == "completed", found
    assert all(f"{city} is nice." in found.text for city in CITIES), found
    assert all(model.asked[city] == before[city] for city in CITIES[::2]), (
        "a completed sub-agent ran again"
    )
    assert all(model.asked[city] > before[city] for city in CITIES[1::2]), (
        "a lost sub-agent did not run again"
    )


async def kinds(remit: Remit, task_id: str) -> Counter[str]:
    """The number of events of each kind of a task."""
    return Counter(event.type for event in (await remit.get_events(task_id=task_id)).events)


if __name__ == "__main__":
    asyncio.run(main())
