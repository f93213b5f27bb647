"""A scheduler with a slot every tenth of a second, two workers, kills and stops: every tick fires
once, in the order of the slots.

The databases themselves write down which ticks were acknowledged, and after which events: a trigger
of the test does.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import asyncpg

from remit.bootstrap.store_opening import open_service
from remit.domain.task import commands as cmd
from tests.patience import patient
from tests.torture import checker
from tests.torture.ordeal import LEFT_IN_ORDER, Place, Worker
from tests.torture.places import two_workers

SLOT_MS = 100
TASKS = 4
TURNS = 10
KILLS = 6
OPTIONS = {"slot_ms": SLOT_MS, "concurrency": 4, "cron": "* * * * *"}
DONE = (
    f"SELECT (SELECT COUNT(*) FROM task WHERE state = 'done') = {TASKS}, (SELECT COUNT(*) FROM"
    " fired)"
)
HOLDERS = "SELECT worker FROM job WHERE key = 'tick' AND worker IS NOT NULL"

ON_SQLITE = (
    "CREATE TABLE fired (number INTEGER PRIMARY KEY AUTOINCREMENT, slot TEXT, after INTEGER)",
    """CREATE TRIGGER tick_is_over AFTER DELETE ON job WHEN OLD.key = 'tick'
       BEGIN INSERT INTO fired (slot, after) VALUES (OLD.at, (SELECT MAX(pos) FROM event)); END""",
)
ON_POSTGRES = (
    (
        "CREATE TABLE fired (number bigint GENERATED ALWAYS AS IDENTITY, slot text, after xid8"
        " DEFAULT pg_current_xact_id())"
    ),
    """CREATE FUNCTION tick_is_over() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN INSERT INTO fired (slot) VALUES (OLD.at); RETURN NULL; END $$""",
    (
        "CREATE TRIGGER tick_is_over AFTER DELETE ON job FOR EACH ROW WHEN (OLD.key = 'tick')"
        " EXECUTE FUNCTION tick_is_over()"
    ),
)
TURNS_ON_SQLITE = """SELECT stream, (SELECT MIN(number) FROM fired WHERE after >= pos) FROM event
    WHERE type = 'TaskWoken' AND data LIKE '%"tick"%' AND actor = 'system:scheduler'
    ORDER BY pos"""
TURNS_ON_POSTGRES = """SELECT stream, (SELECT MIN(number) FROM fired WHERE after > tx) FROM event
    WHERE type = 'TaskWoken' AND data LIKE '%"tick"%' AND actor = 'system:scheduler'
    ORDER BY tx, pos"""


def test_every_tick_fires_once_and_in_order_while_workers_are_killed(
    place: Place, tmp_path: Path
) -> None:
    seed = int(os.environ.get("REMIT_TORTURE_SEED") or SystemRandom().randrange(10**6))
    print(f"seed {seed}")
    asyncio.run(prepare(place.url))
    kills = torment(place, tmp_path, Random(seed))
    assert kills == KILLS, f"seed {seed}"
    slots = [slot for (slot,) in place.ask("SELECT slot FROM fired ORDER BY number") or []]
    assert len(slots) >= TURNS, f"seed {seed}: {slots}"
    assert None not in slots, f"seed {seed}: {slots}"
    assert checker.ascending(slots), (
        f"seed {seed}: {[pair for pair in pairwise(slots) if pair[0] >= pair[1]]}"
    )
    assert all(slot.endswith("00000Z") for slot in slots), "each is a slot"
    turns = Counter(place.ask(TURNS_ON_POSTGRES if place.server else TURNS_ON_SQLITE) or [])
    assert [turn for turn, count in turns.items() if count > 1] == [], (
        f"seed {seed}: one turn for each task in each slot"
    )
    assert Counter(stream for stream, _ in turns) == {
        str(number): TURNS for number in range(1, TASKS + 1)
    }, f"seed {seed}"


def torment(place: Place, folder: Path, random: Random) -> int:
    """Kill or stop the worker with the tick from time to time, until every task has had its turns.

    How many kills there were.
    """
    kills, deadline, lease_seconds = 0, time.monotonic() + patient(120), patient(1)
    options = {**OPTIONS, "heartbeat_seconds": lease_seconds}
    when = sorted(random.sample(range(1, TURNS - 1), KILLS))
    with two_workers(place, folder, options) as workers:
        while time.monotonic() < deadline:
            time.sleep(0.01)
            over, fired = (place.ask(DONE) or [(False, 0)])[0]
            if over and kills == KILLS:
                break
            holders = {int(name.split("-")[-2]) for (name,) in place.ask(HOLDERS) or []}
            victim = next((worker for worker in workers if worker.process.pid in holders), None)
            if victim is None or kills == KILLS or fired < when[kills]:
                continue
            kills += 1
            if random.random() < 0.3:
                victim.process.send_signal(signal.SIGSTOP)
                time.sleep(lease_seconds * 1.5)
                victim.process.send_signal(signal.SIGCONT)
            else:
                victim.end()
                workers.remove(victim)
                workers.append(Worker(place.url, folder, f"worker-{kills}", options))
        for worker in workers:
            assert worker.end(signal.SIGTERM) in LEFT_IN_ORDER, worker.errors.read_text()
    return kills


async def prepare(url: str) -> None:
    """Tasks that wait for many ticks, and a trigger that writes down each tick that is over."""
    async with open_service(url) as service:
        await watch_ticks(url)
        script: list[list[Any]] = [
            [word, "Here"] if word == "say" else [word]
            for _ in range(TURNS)
            for word in ("say", "wait")
        ]
        for number in range(TASKS):
            fields = {
                "title": f"Task {number}",
                "owner": "general",
                "completion": "explicit",
                "metadata": {"script": script},
                "limits": {"max_attempts": 50},
            }
            await service.do(cmd.CreateTask, fields, "user:ann")


async def watch_ticks(url: str) -> None:
    if url.startswith("sqlite"):
        connection = checker.sqlite(url.removeprefix("sqlite:///"), "rwc")
        for statement in ON_SQLITE:
            connection.execute(statement)
        connection.close()
    else:
        server = await asyncpg.connect(url, server_settings={"search_path": "remit"})
        for statement in ON_POSTGRES:
            await server.execute(statement)
        await server.close()
