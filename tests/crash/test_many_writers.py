"""Many processes write to one database at once.

And one that is busy, or full, says so and loses nothing.
"""

import asyncio
import threading
import time
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from remit.adapters.stores.sqlite import driver
from remit.bootstrap import open_store
from remit.errors import Busy, Unavailable
from remit.ports import Claim, Store
from remit.store_queries.record_queries import UPDATES
from tests.contract.units import unit
from tests.crash.around import Witness
from tests.crash.history import (
    Log,
    ascending,
    log_of,
    must_be_one_history,
    must_keep_promises,
    read,
)
from tests.crash.process import children
from tests.patience import patient
from tests.people import Desk, desk

PROCESSES, LANES, EACH = 8, 10, 50


async def must_have_kept(url: str, lines: list[dict[str, Any]]) -> Log:
    """The database holds together and has all that the processes were told."""
    log, raw = log_of(lines), await read(url)
    must_be_one_history(raw)
    must_keep_promises(raw, log)
    async with desk(url) as at:
        await at.must_hold_together()
    return log


def run_all(folder: Path, job: str, arguments: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Run a job in several processes at the same time; return the output of each."""
    with children(folder, job, arguments) as started:
        for child in started:
            child.go()
        return [child.finish() for child in started]


async def test_eight_processes_create_four_thousand_tasks(durable_url: str, tmp_path: Path) -> None:
    said = run_all(
        tmp_path, "create", [{"url": durable_url, "lanes": LANES, "each": EACH}] * PROCESSES
    )
    log = await must_have_kept(durable_url, [line for lines in said for line in lines])
    assert len(log.created) == PROCESSES * LANES * EACH == 4000
    assert len(set(log.created)) == 4000
    assert len(log.acked) == len(log.sent), "creations never race"
    for lines in said:
        by_lane: dict[int, list[int]] = defaultdict(list)
        for lane, task in (line["created"] for line in lines if "created" in line):
            by_lane[lane].append(task)
        assert [len(tasks) for tasks in by_lane.values()] == [EACH] * LANES
        assert all(ascending(tasks) for tasks in by_lane.values())


async def test_four_processes_that_all_write_to_one_task_lose_no_message(
    durable_url: str, tmp_path: Path
) -> None:
    async with desk(durable_url) as at:
        task = await at.create(owner="general")
    jobs = [
        {"url": durable_url, "task_id": task, "lanes": 2, "each": 12, "author": f"p{number}"}
        for number in range(4)
    ]
    said = run_all(tmp_path, "message", jobs)
    log = await must_have_kept(durable_url, [line for lines in said for line in lines])
    assert len(log.acked) == 4 * 2 * 12
    async with desk(durable_url) as at:
        told = [
            row.content
            for row in await at.store.select(UPDATES, {"id": int(task), "after": 0, "limit": 1000})
        ]
        assert sorted(told) == sorted(
            f"p{number}/{lane}/{turn}"
            for number in range(4)
            for lane in range(2)
            for turn in range(12)
        )
        assert (await at.get(task))["version"] == 1 + len(told)


async def test_processes_that_use_the_same_keys_at_once_get_the_same_tasks_and_no_error(
    durable_url: str, tmp_path: Path
) -> None:
    said = run_all(tmp_path, "same_keys", [{"url": durable_url, "keys": 60}] * 4)
    await must_have_kept(durable_url, [line for lines in said for line in lines])
    answers = [[line["keyed"] for line in lines if "keyed" in line] for lines in said]
    assert all(each == answers[0] for each in answers)
    assert len(answers[0]) == 60


async def test_callers_wait_while_another_process_holds_a_sqlite_file_for_two_seconds(
    tmp_path: Path,
) -> None:
    path = tmp_path / "remit.db"
    async with desk(f"sqlite:///{path}") as at:
        task = await at.create(owner="general")
        with children(tmp_path, "hold_lock", [{"path": str(path)}]) as (holder,):
            holder.go()
            holder.wait_until_said("held", 1)
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                made = [group.create_task(at.create(f"Task {number}")) for number in range(5)]
                group.create_task(at.do("SendMessage", task_id=task, message="Hello."))
                assert (await at.get(task))["state"] == "pending", "reading goes on"
                await asyncio.sleep(2)
                assert not any(each.done() for each in made)
                holder.go()
            assert time.monotonic() - began >= 2
            holder.finish()
        assert len({each.result() for each in made}) == 5
        await at.must_hold_together()


async def test_a_sqlite_file_held_for_too_long_is_busy_and_works_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "BUSY_SECONDS", 0.2)
    path = tmp_path / "remit.db"
    url = f"sqlite:///{path}"
    lines: list[dict[str, Any]] = []
    async with open_store(url) as store:
        at = Desk(Witness(store, lines.append))
        task = await at.create(owner="general")
        with children(tmp_path, "hold_lock", [{"path": str(path)}]) as (holder,):
            holder.go()
            holder.wait_until_said("held", 1)
            tries = (
                at.do("SendMessage", task_id=task, message="Hello."),
                at.create("New"),
                at.create("Another"),
            )
            results = await asyncio.gather(*tries, return_exceptions=True)
            assert [type(result) for result in results] == [Busy, Busy, Busy]
            assert isinstance(results[0], Busy)
            assert (results[0].code, results[0].status) == ("UNAVAILABLE", 503)
            assert "locked by another process" in str(results[0])
            holder.go()
            holder.finish()
        assert await at.events(task) == ["TaskCreated"], "what was refused did not happen"
        await at.do("SendMessage", task_id=task, message="Hello again.")
        assert int(await at.create("New")) > int(task)
    await must_have_kept(url, lines)


async def test_all_that_wait_for_a_held_sqlite_file_are_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = patient(2)
    monkeypatch.setattr(driver, "BUSY_SECONDS", limit)
    path = tmp_path / "remit.db"
    async with desk(f"sqlite:///{path}") as at:
        task = await at.create(owner="general")
        with children(tmp_path, "hold_lock", [{"path": str(path)}]) as (holder,):
            holder.go()
            holder.wait_until_said("held", 1)
            began = time.monotonic()
            first = asyncio.create_task(at.do("SendMessage", task_id=task, message="Hello."))
            await asyncio.sleep(limit / 10)  # the others wait behind it
            others = (
                at.create("New"),
                at.do("SendMessage", task_id=task, message="Again."),
                cast("Store", at.store).claim(Claim("w", {"agent/general": 0}, 1, 1, 60.0)),
            )
            results = await asyncio.gather(first, *others, return_exceptions=True)
            waited = time.monotonic() - began
            holder.go()
            holder.finish()
    assert [type(result) for result in results] == [Busy] * 4
    assert waited < 1.7 * limit


async def test_a_process_gets_its_turn_among_others_that_write_all_the_time(tmp_path: Path) -> None:
    path, turns, over = tmp_path / "remit.db", count(), threading.Event()
    waited: list[int] = []

    def rival() -> None:
        connection = driver.connect(path)
        while not over.wait(0.0005):
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(0.005)
            connection.execute("COMMIT")
            next(turns)
        connection.close()

    async with desk(f"sqlite:///{path}") as at:
        thread = threading.Thread(target=rival)
        thread.start()
        try:
            for number in range(30):
                before = next(turns)
                await at.create(f"Task {number}")
                waited.append(next(turns) - before)
        finally:
            over.set()
            thread.join()
    assert max(waited) < 60, "two transactions each, for the number and for the task"


async def test_a_full_disk_leaves_nothing_half_written_and_work_continues_when_there_is_room(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'remit.db'}"
    lines: list[dict[str, Any]] = []
    async with open_store(url) as store:
        at = Desk(Witness(store, lines.append))
        root = await at.create("Root", owner="build")
        writer: Any = vars(store)["_opened"].writer._connection
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count={pages + 20}")
        refused = await fill(at, root)
        assert refused.code == "UNAVAILABLE"
        assert "full" in str(refused)
        assert (await at.get(root))["title"] == "Root", "reading goes on"
        writer.execute("PRAGMA max_page_count=1000000")
        child = (
            await at.do(
                "CreateSubtask",
                task_id=root,
                title="After",
                owner="general",
                description="x" * 50_000,
            )
        ).task_id
        assert (await at.get(root))["child_ids"][-1] == child
    await must_have_kept(url, lines)


async def fill(at: Desk, root: str) -> Unavailable:
    """Create large subtasks, several at once, until one does not fit."""
    for _ in range(50):
        making = (
            at.do(
                "CreateSubtask",
                task_id=root,
                title="Large",
                owner="general",
                description="x" * 20_000,
            )
            for _ in range(3)
        )
        results = await asyncio.gather(*making, return_exceptions=True)
        for result in results:
            if isinstance(result, Unavailable):
                return result
            assert not isinstance(result, BaseException), result
    raise AssertionError("there was always room")


async def test_a_store_that_closes_finishes_everything_it_had_accepted(durable_url: str) -> None:
    units = [unit(f"x/{number}") for number in range(700)]
    async with (
        open_store(durable_url) as store,
        asyncio.timeout(patient(30)),
        asyncio.TaskGroup() as group,
    ):
        for each in units:
            group.create_task(store.commit(each))
        await asyncio.sleep(0)
        await store.close()
    assert sorted(event.id for event in (await read(durable_url)).events) == sorted(
        each.first.id for each in units if each.first
    )
