"""A series with a slot every fifth of a second, two workers and kills: one task for each slot,
and one that is still to be done.
"""

import asyncio
import os
import time
from pathlib import Path
from random import Random, SystemRandom

from remit.app.maintenance.verify import verify
from remit.bootstrap.store_opening import open_service, open_store
from remit.domain.task import commands as cmd
from tests.patience import patient
from tests.torture import checker
from tests.torture.ordeal import Place, Worker
from tests.torture.places import two_workers

SLOT_MS = 200
TASKS = 8
KILLS = 4
ENDED = "SELECT COUNT(*) FROM task WHERE state = 'done'"
HOLDERS = "SELECT worker FROM job WHERE key LIKE 'run/%' AND worker IS NOT NULL"
CHAIN = "SELECT id, rerun_of, not_before, state FROM task ORDER BY id"


def test_a_series_makes_one_task_for_each_slot_although_workers_are_killed(
    place: Place, tmp_path: Path
) -> None:
    seed = int(os.environ.get("REMIT_TORTURE_SEED") or SystemRandom().randrange(10**6))
    asyncio.run(prepare(place.url))
    kills = torment(place, tmp_path, Random(seed))
    assert kills == KILLS, f"seed {seed}"
    rows = place.ask(CHAIN) or []
    assert [row[1] for row in rows] == [
        None,
        *[row[0] for row in rows[:-1]],
    ], f"seed {seed}: each has one successor"
    assert checker.ascending([slot for _, _, slot, _ in rows[1:]]), (
        f"seed {seed}: each has a slot of its own"
    )
    assert [state for *_, state in rows[:-1]] == ["done"] * (len(rows) - 1), f"seed {seed}"
    assert rows[-1][3] not in ("done", "failed", "canceled"), f"seed {seed}: the series continues"
    assert asyncio.run(faults(place.url)) == (), f"seed {seed}"


def torment(place: Place, folder: Path, random: Random) -> int:
    """Kill a worker that runs a task, now and then, until enough tasks of the series are done.

    How many kills there were.
    """
    kills, deadline, lease_seconds = 0, time.monotonic() + patient(120), patient(1)
    options = {"slot_ms": SLOT_MS, "concurrency": 2, "heartbeat_seconds": lease_seconds}
    when = sorted(random.sample(range(TASKS - 1), KILLS))
    with two_workers(place, folder, options) as workers:
        while time.monotonic() < deadline:
            time.sleep(0.005)
            done = (place.ask(ENDED) or [(0,)])[0][0]
            if done >= TASKS and kills == KILLS:
                break
            holders = {int(name.split("-")[-2]) for (name,) in place.ask(HOLDERS) or []}
            victim = next((worker for worker in workers if worker.process.pid in holders), None)
            if victim is None or kills == KILLS or done < when[kills]:
                continue
            kills += 1
            victim.end()
            workers.remove(victim)
            workers.append(Worker(place.url, folder, f"worker-{kills}", options))
    return kills


async def prepare(url: str) -> None:
    """The first task of the series, which starts at once."""
    fields = {
        "title": "Again",
        "owner": "general",
        "schedule": {"cron": "* * * * *"},
        "metadata": {"script": [["sleep", 0.05], ["finish", "ok"]]},
        "limits": {"max_attempts": 50},
    }
    async with open_service(url) as service:
        made = await service.do(cmd.CreateTask, fields, "user:ann")
        await service.do(cmd.RunTask, {"task_id": made.task_id}, "user:ann")


async def faults(url: str) -> tuple[object, ...]:
    async with open_store(url) as store:
        return (await verify(store)).faults
