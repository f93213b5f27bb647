"""The queue's promises, kept by every store."""

import asyncio
import json
from datetime import datetime, timedelta

import pytest

from remit.domain.projection.follow_up_jobs import SIGNALS, Job
from remit.domain.projection.rows import Change
from remit.domain.records.serialize import instant
from remit.ports import (
    Append,
    Claim,
    ClaimedJob,
    Debit,
    Lease,
    LeaseLost,
    OverBudget,
    Stale,
    Store,
    Unit,
    WorkerRow,
)
from remit.store_queries.queue_queries import JOBS, QUEUED
from remit.store_queries.tree_queries import BUDGET
from tests.patience import patient
from tests.people import Desk

AGENT = "agent/general"


def row(worker: str = "w1", running: int = 0) -> WorkerRow:
    return WorkerRow(worker, "host", 1, "0", "general", 8, "2026-01-01T00:00:00.000000Z", running)


def claim(
    worker: str = "w1",
    *,
    room: int = 10,
    limit: int = 0,
    lease: float | None = None,
    fleet: int = 0,
    signals: int = 10,
) -> Claim:
    return Claim(
        worker,
        {AGENT: limit, "agent/plan": 0},
        room,
        signals,
        patient(60) if lease is None else lease,
        fleet,
    )


async def put(store: Store, *jobs: Job) -> None:
    await store.commit(Unit((), (), jobs=jobs))


def keys(taken: list[ClaimedJob]) -> list[str]:
    return [job.key for job in taken]


async def test_signals_come_first_and_runs_by_priority_and_age(store: Store) -> None:
    await put(
        store,
        Job("run/1", AGENT, 3),
        Job("run/2", AGENT, 1),
        Job("run/3", "agent/plan", 1),
        Job("tell/9"),
    )
    assert keys((await store.claim(claim(room=2))).jobs) == ["tell/9", "run/2", "run/3"]
    assert keys((await store.claim(claim())).jobs) == ["run/1"]
    assert (await store.claim(claim())).jobs == []


async def test_a_key_is_queued_once_with_its_latest_values(store: Store) -> None:
    await put(store, Job("run/1", AGENT, 3))
    await put(store, Job("run/1", AGENT, 0), Job("run/2", AGENT, 1))
    assert keys((await store.claim(claim())).jobs) == ["run/1", "run/2"]


@pytest.mark.parametrize("job", [Job("tell/1"), Job("run/1", AGENT)], ids=["signal", "run"])
async def test_a_claimed_job_may_have_a_successor_which_waits_until_it_is_done(
    store: Store, job: Job
) -> None:
    await put(store, job)
    (first,) = (await store.claim(claim())).jobs
    await put(store, job)
    jobs, waits = await store.claim(claim("w2"))
    assert jobs == []
    assert waits is not None
    assert waits > 1
    async with store.watch("jobs") as watch, asyncio.timeout(patient(10)):
        await store.commit(Unit((), (), lease=Lease(first.id, "w1"), ack=True))
        await watch.wait()
    (second,) = (await store.claim(claim("w2"))).jobs
    assert first.id != second.id


async def test_the_successor_of_a_job_that_the_dead_have_left_waits_too(store: Store) -> None:
    await put(store, Job("run/1", AGENT))
    (first,) = (await store.claim(claim())).jobs
    await put(store, Job("run/1", AGENT))
    (taken,) = (await store.claim(claim("w2", lease=0.0))).jobs
    assert taken.id == first.id
    assert (await store.claim(claim("w3"))).jobs == []


async def test_only_queues_that_are_asked_for_are_claimed(store: Store) -> None:
    await put(store, Job("run/1", "agent/build"))
    assert await store.claim(claim()) == ([], None)
    assert keys((await store.claim(Claim("w1", {"agent/build": 0}, 1, 0, patient(60)))).jobs) == [
        "run/1"
    ]


async def test_an_empty_claim_returns_when_to_try_again(
    store: Store,
) -> None:
    await put(store, Job("run/1", AGENT), Job("run/2", AGENT))
    (one,) = (await store.claim(claim(room=1))).jobs
    assert await store.claim(claim(room=0)) == ([], None)
    (two,) = (await store.claim(claim(room=2))).jobs
    jobs, later = await store.claim(claim(room=2, lease=3600.0))
    assert jobs == []
    assert later is not None
    assert 1800 < later <= 3600
    await put(store, Job("run/3", AGENT))
    assert await store.claim(claim(fleet=2)) == ([], 0.0)
    assert (one.key, two.key) == ("run/1", "run/2")


async def test_a_deferred_job_is_not_claimed_before_its_time(store: Store) -> None:
    await put(
        store,
        Job("run/1", AGENT, 2, "2999-01-01T00:00:00.000000Z"),
        Job("run/2", AGENT, 2, "2020-01-01T00:00:00.000000Z"),
    )
    (due,) = (await store.claim(claim())).jobs
    assert (due.key, due.at) == ("run/2", "2020-01-01T00:00:00.000000Z")
    await store.commit(Unit((), (), lease=Lease(due.id, "w1"), ack=True))
    _, waits = await store.claim(claim())
    assert waits is not None
    assert waits > 1_000_000
    await put(store, Job("run/1", AGENT))
    assert keys((await store.claim(claim())).jobs) == ["run/1"]


async def test_a_dropped_job_is_gone_but_a_claimed_one_stays(store: Store) -> None:
    await put(store, Job("run/1", AGENT), Job("run/2", AGENT))
    (one,) = (await store.claim(claim(room=1))).jobs
    await store.commit(Unit((), (), drops=("run/1", "run/2")))
    assert (await store.claim(claim())).jobs == []
    assert [
        (key, worker)
        for key, _, worker in await store.select(QUEUED, {"names": ["run/1", "run/2"]})
    ] == [(one.key, "w1")]


async def test_an_acknowledged_job_is_gone_and_only_its_worker_can_acknowledge_it(
    store: Store,
) -> None:
    await put(store, Job("run/1", AGENT))
    (job,) = (await store.claim(claim())).jobs
    with pytest.raises(LeaseLost):
        await store.commit(Unit((), (), lease=Lease(job.id, "w2"), ack=True))
    await store.commit(Unit((), (), lease=Lease(job.id, "w1"), ack=True))
    assert await store.select(JOBS, {"limit": 10}) == []
    with pytest.raises(LeaseLost):
        await store.commit(Unit((), (), jobs=(Job("run/2", AGENT),), lease=Lease(job.id, "w1")))
    assert await store.select(JOBS, {"limit": 10}) == []


async def test_a_silent_worker_loses_its_job_to_another(store: Store) -> None:
    await put(store, Job("run/1", AGENT))
    (job,) = (await store.claim(claim())).jobs
    assert (await store.claim(claim("w2"))).jobs == []
    (taken,) = (await store.claim(claim("w2", lease=0.0))).jobs
    assert (taken.id, taken.tries) == (job.id, 2)
    assert await store.beat(row("w1"), [job.id]) == {job.id}
    assert await store.beat(row("w2"), [job.id]) == set()


async def test_a_heartbeat_keeps_a_job_and_says_nothing_of_one_that_is_done(store: Store) -> None:
    await put(store, Job("run/1", AGENT), Job("run/2", AGENT))
    jobs = [job.id for job in (await store.claim(claim())).jobs]
    await store.commit(Unit((), (), lease=Lease(jobs[0], "w1"), ack=True))
    assert await store.beat(row("w1", running=1), jobs) == set()
    (seen,) = await store.workers()
    assert (seen.worker, seen.running, seen.age_seconds < 30) == ("w1", 1, True)
    await store.leave("w1")
    assert await store.workers() == []


async def test_jobs_of_a_removed_worker_can_be_claimed_at_once(
    store: Store,
) -> None:
    await put(store, Job("run/1", AGENT), Job("run/2", AGENT), Job("tell/1"))
    await store.claim(claim("w1", room=1))
    (other,) = (await store.claim(claim("w2"))).jobs
    assert (await store.claim(claim("w3"))).jobs == []
    await store.leave("w1")
    assert sorted(keys((await store.claim(claim("w3"))).jobs)) == ["run/1", "tell/1"]
    await store.commit(Unit((), (), lease=Lease(other.id, "w2"), ack=True))


async def test_a_job_that_is_given_back_can_be_claimed_again_once(store: Store) -> None:
    await put(store, Job("tell/1"))
    (job,) = (await store.claim(claim())).jobs
    await put(store, Job("tell/1"))
    await store.give_back(Lease(job.id, "w1"), 0.0)
    assert keys((await store.claim(claim("w2"))).jobs) == ["tell/1"]
    assert (await store.claim(claim("w2"))).jobs == []
    await store.give_back(Lease(job.id, "w1"), 0.0)
    assert (await store.claim(claim("w2"))).jobs == []


async def test_a_job_that_is_given_back_at_once_keeps_its_time(store: Store) -> None:
    await put(store, Job("tick", at="2020-01-01T00:00:00.000000Z"))
    (job,) = (await store.claim(claim())).jobs
    await store.give_back(Lease(job.id, "w1"), 0.0)
    (again,) = (await store.claim(claim("w2"))).jobs
    assert again.at == job.at == "2020-01-01T00:00:00.000000Z"


async def test_a_job_that_is_given_back_for_later_waits(store: Store) -> None:
    await put(store, Job("tell/1"))
    (job,) = (await store.claim(claim())).jobs
    await store.give_back(Lease(job.id, "w1"), 1000.0)
    jobs, waits = await store.claim(claim())
    assert jobs == []
    assert waits is not None
    assert 900 < waits <= 1000


async def test_the_limit_of_an_agent_holds_in_the_whole_fleet(store: Store) -> None:
    await put(store, *(Job(f"run/{n}", AGENT) for n in range(1, 6)), Job("run/9", "agent/plan"))
    assert keys((await store.claim(claim("w1", limit=2))).jobs) == ["run/1", "run/2", "run/9"]
    assert (await store.claim(claim("w2", limit=2))).jobs == []
    assert keys((await store.claim(claim("w2", limit=3))).jobs) == ["run/3"]


async def test_the_limit_of_the_fleet_holds_for_all_agents_together(store: Store) -> None:
    await put(
        store,
        *(Job(f"run/{n}", AGENT) for n in range(1, 6)),
        Job("run/9", "agent/plan"),
        Job("tell/1"),
    )
    assert keys((await store.claim(claim("w1", fleet=2))).jobs) == ["tell/1", "run/1", "run/2"]
    assert (await store.claim(claim("w2", fleet=2))).jobs == []
    assert keys((await store.claim(claim("w2", fleet=4))).jobs) == ["run/3", "run/4"]


async def test_concurrent_claims_never_exceed_a_limit_or_claim_a_job_twice(
    store: Store,
) -> None:
    await put(store, *(Job(f"run/{n}", AGENT) for n in range(60)))
    claimed = await asyncio.gather(
        *(store.claim(claim(f"w{n}", room=3, limit=7)) for n in range(20))
    )
    assert sum(len(jobs) for jobs, _ in claimed) == 7
    more = await asyncio.gather(*(store.claim(claim(f"v{n}", room=3)) for n in range(30)))
    every = [job.key for jobs, _ in [*claimed, *more] for job in jobs]
    assert sorted(every) == sorted(f"run/{n}" for n in range(60))


async def test_many_claims_at_once_never_pass_the_limit_of_the_fleet(store: Store) -> None:
    await put(
        store,
        *(Job(f"run/{n}", AGENT if n % 2 else "agent/plan") for n in range(40)),
        *(Job(f"tell/{n}") for n in range(5)),
    )
    claimed = await asyncio.gather(
        *(store.claim(claim(f"w{n}", room=3, limit=4, fleet=7)) for n in range(20))
    )
    queues = [job.queue for jobs, _ in claimed for job in jobs]
    assert (queues.count(SIGNALS), queues.count(AGENT) + queues.count("agent/plan")) == (
        5,
        7,
    ), "signals need no place"
    assert queues.count(AGENT) <= 4


async def test_a_unit_that_is_refused_puts_drops_and_acknowledges_nothing(store: Store) -> None:
    """Whatever the reason: its stream has moved on, its job is another's, or the budget has not
    got it.
    """
    await put(store, Job("run/1", AGENT), Job("run/9", AGENT, at="2999-01-01T00:00:00.000000Z"))
    (job,) = (await store.claim(claim())).jobs
    before = await store.select(JOBS, {"limit": 10})
    whole = Unit(
        (), (), jobs=(Job("run/2", AGENT),), drops=("run/9",), lease=Lease(job.id, "w1"), ack=True
    )
    for refusal, unit in (
        (Stale, whole._replace(appends=(Append("x/1", 7, ()),))),
        (LeaseLost, whole._replace(lease=Lease(job.id, "w2"))),
        (OverBudget, whole._replace(debit=Debit(7, 11, 0.0, 10))),
    ):
        with pytest.raises(refusal):
            await store.commit(unit)
        assert await store.select(JOBS, {"limit": 10}) == before
    await store.commit(whole)
    assert [row.key for row in await store.select(JOBS, {"limit": 10})] == ["run/2"]


async def test_a_job_for_dependents_is_created_only_if_there_are_any(store: Store) -> None:
    await put(store, Job("release/7", if_needed_by_others=7))
    assert (await store.claim(claim())).jobs == []


async def test_a_worker_that_waits_for_jobs_is_notified(store: Store) -> None:
    async with store.watch("jobs") as watch, asyncio.timeout(patient(10)):
        await put(store, Job("tell/1"))
        while not (await store.claim(claim())).jobs:
            await watch.wait()


async def test_a_budget_is_never_overdrawn_and_what_is_refused_writes_nothing(store: Store) -> None:
    async def take(
        tokens: int, cost: float = 0.0, *, most: int | None = 100, money: float | None = None
    ) -> bool:
        try:
            await store.commit(
                Unit(
                    (),
                    (),
                    jobs=(Job(f"run/{tokens}", AGENT),),
                    debit=Debit(7, tokens, cost, most, money),
                )
            )
        except OverBudget:
            return False
        return True

    assert [await take(60), await take(41), await take(40)] == [True, False, True]
    assert keys((await store.claim(claim())).jobs) == ["run/60", "run/40"]
    assert [await take(-30, most=None), await take(30)] == [True, True]
    assert [await take(0, 1.5, money=2.0), await take(0, 0.6, money=2.0)] == [True, False]
    assert await store.select(BUDGET, {"id": 7}) == [(100, 1.5)]
    many = await asyncio.gather(
        *(store.commit(Unit((), (), debit=Debit(8, 1, 0.0, 10))) for _ in range(30)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, OverBudget) for one in many) == 20


def answer(task_id: int, number: int, tokens: int) -> Change:
    """Return the row of a stored answer."""
    document = json.dumps(
        {"role": "assistant", "model": "m", "input": tokens, "output": 1, "cost": 0.5}
    )
    values = (task_id, number, "1-r000001", 1, "2026-01-01T00:00:00Z", document)
    return Change("message", values[:2], values)


async def test_a_ledger_is_opened_with_every_stored_answer_of_its_tree(store: Store) -> None:
    at = Desk(store)
    root = await at.create("Lead")
    part = (await at.do("CreateSubtask", task_id=root, title="Part", owner="general")).task_id
    await at.start(part)
    beside = Debit(int(root), 101, 0.5, opens=False)
    await store.commit(Unit((), (answer(int(part), 1, 100),), debit=beside))
    assert await store.select(BUDGET, {"id": int(root)}) == []
    await store.commit(Unit((), (), debit=Debit(int(root), 7, 0.25)))
    assert await store.select(BUDGET, {"id": int(root)}) == [(108, 0.75)]
    await store.commit(Unit((), (answer(int(part), 2, 100),), debit=beside))
    assert await store.select(BUDGET, {"id": int(root)}) == [(209, 1.25)]


async def test_answers_that_are_stored_while_a_ledger_is_opened_count_once(store: Store) -> None:
    at = Desk(store)
    root = await at.create("Lead")
    part = (await at.do("CreateSubtask", task_id=root, title="Part", owner="general")).task_id
    await at.start(part)
    beside = Debit(int(root), 101, 0.5, opens=False)
    units = [Unit((), (answer(int(part), number, 100),), debit=beside) for number in range(1, 61)]
    units[20:20] = units[40:40] = [Unit((), (), debit=Debit(int(root), 0, 0.0))]
    await asyncio.gather(*map(store.commit, units))
    assert await store.select(BUDGET, {"id": int(root)}) == [(60 * 101, 30.0)]


def of(
    *roots: int,
    room: int = 10,
    limit: int = 0,
    fleet: int = 0,
    lease: float = 60.0,
    worker: str = "w1",
) -> Claim:
    return claim(worker, room=room, limit=limit, fleet=fleet, lease=lease)._replace(roots=roots)


async def test_a_worker_for_some_trees_gets_their_jobs_alone(store: Store) -> None:
    jobs = [
        Job("tick"),
        Job("tell/1", root=1),
        Job("tell/7", root=7),
        Job("run/1", AGENT, 3, root=1),
        Job("run/2", AGENT, 1, root=1),
    ]
    await put(store, *jobs, Job("run/7", AGENT, 0, root=7), Job("run/9", AGENT, 2, root=9))
    assert keys((await store.claim(of(1, 9, room=2))).jobs) == ["tell/1", "run/2", "run/9"]
    assert keys((await store.claim(of(1, 9))).jobs) == ["run/1"]
    assert (await store.claim(of(2, worker="w2"))) == ([], None)
    assert sorted(keys((await store.claim(claim("w2"))).jobs)) == ["run/7", "tell/7", "tick"]


async def test_a_worker_for_some_trees_learns_when_to_come_back_for_them(store: Store) -> None:
    soon, late = (
        instant(store.now() + timedelta(seconds=30)),
        instant(store.now() + timedelta(seconds=300)),
    )
    await put(store, Job("run/1", AGENT, at=late, root=1), Job("run/2", AGENT, at=soon, root=2))
    jobs, waits = await store.claim(of(1))
    assert (jobs, waits is not None and 250 < waits <= 300) == ([], True)
    await put(store, Job("run/3", AGENT, root=3))
    assert (await store.claim(of(3, 1))).next_in is None
    jobs, waits = await store.claim(of(3, worker="w2"))
    assert (jobs, waits is not None and 30 < waits <= 60) == ([], True)


async def test_a_worker_for_some_trees_takes_over_only_what_the_dead_left_of_them(
    store: Store,
) -> None:
    await put(
        store, Job("run/1", AGENT, root=1), Job("run/2", AGENT, root=2), Job("tell/2", root=2)
    )
    assert len((await store.claim(claim("dead"))).jobs) == 3
    await store.leave("dead")
    assert keys((await store.claim(of(1))).jobs) == ["run/1"]
    assert sorted(keys((await store.claim(of(2))).jobs)) == ["run/2", "tell/2"]


async def test_limits_hold_for_a_worker_for_some_trees(store: Store) -> None:
    await put(
        store,
        *(Job(f"run/{number}", AGENT, root=1) for number in (1, 2, 3)),
        Job("run/4", "agent/plan", root=1),
    )
    assert keys((await store.claim(of(1, limit=2, room=3))).jobs) == ["run/1", "run/2", "run/4"]
    assert (await store.claim(of(1, limit=2, room=3))).jobs == []
    assert (await store.claim(of(1, fleet=3))).jobs == []
    assert keys((await store.claim(of(1, fleet=4))).jobs) == ["run/3"]


async def test_a_job_of_the_dead_says_when_its_worker_was_last_heard_of(store: Store) -> None:
    await put(store, Job("run/1", AGENT, root=1))
    (first,) = (await store.claim(claim("w1"))).jobs
    before = store.now()
    await store.beat(row("w1"), [first.id])
    after = store.now()
    await store.leave("w1")
    (taken,) = (await store.claim(claim("w2"))).jobs
    assert taken.seen is not None
    slack = timedelta(seconds=1)  # the clock of a server is known to within a round trip
    assert before - slack <= datetime.fromisoformat(taken.seen) <= after + slack
    await store.leave("w2")
    (again,) = (await store.claim(claim("w3"))).jobs
    assert again.seen == taken.seen, "a worker that was never heard of says nothing"
