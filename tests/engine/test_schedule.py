"""Ticks, calendars and wakes."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from remit import config
from remit.adapters.clock import SystemClock
from remit.app.engine.scheduler import LOOK_SECONDS, SYSTEM, Scheduler
from remit.app.runs.run_handle import RunHandle
from remit.app.service import HeldJob, Service
from remit.bootstrap.embedded_worker import options_of
from remit.domain.projection.follow_up_jobs import TICK, Job
from remit.domain.records.serialize import instant
from remit.domain.task import commands as cmd
from remit.domain.task.task import State
from remit.errors import Conflict, InvalidParam
from remit.ports import Claim, Lease
from remit.store_queries.queue_queries import QUEUED
from remit.testing import Scripted
from tests.engine.fast_clock import WAITING, fast
from tests.engine.fleet import Fleet, fleet
from tests.patience import patient
from tests.torture.worker import NEVER


async def test_a_run_that_ends_without_completing_waits_for_the_tick(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        task_id = await team.create(**WAITING)
        first = await team.hire(cron="0 0 1 1 *")
        waiting = await team.until(task_id, lambda task: task.state is State.WAITING)
        assert [item.kind for item in waiting.wait.on if waiting.wait] == ["tick"]  # type: ignore[union-attr]
        assert await team.jobs() == []
        first.stop()
        await team.hire(cron="* * * * *")
        assert (await team.ended(task_id)).summary == "second turn"


class Crowd(Scripted):
    """Knows how many runs there were at once, at most.

    A task that is called "Long" works until it is let go.
    """

    long = "Long"

    def __init__(self) -> None:
        self.now = self.most = 0
        self.let_go = asyncio.Event()

    async def run(self, handle: RunHandle) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        if handle.task.title == self.long:
            # So that a test that fails comes to its end.
            await asyncio.wait_for(self.let_go.wait(), patient(20))
        await super().run(handle)
        self.now -= 1


async def test_a_tick_gives_turns_one_after_the_other(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        script = [["wait"], ["sleep", 0.05], ["finish", "done"]]
        tasks = [
            await team.create(completion="explicit", metadata={"script": script}) for _ in range(4)
        ]
        first = await team.hire(cron="0 0 1 1 *")
        for task_id in tasks:
            await team.until(task_id, lambda task: task.state is State.WAITING)
        first.stop()
        crowd = Crowd()
        await team.hire(crowd, cron="* * * * *")
        assert [(await team.ended(task_id)).summary for task_id in tasks] == ["done"] * 4
        assert crowd.most == 1, "though there was room for eight"


async def test_a_tick_leaves_alone_what_is_in_flight(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team, crowd = fast(quiet), Crowd()
        long = await team.create(["finish", "at last"], title="Long")
        turns = await team.create(*[["say", "Here"], ["wait"]] * 9, completion="explicit")
        await team.hire(crowd, cron="* * * * *")
        await team.until(turns, lambda task: task.counts.runs >= 4)
        assert (await team.events(long)) == ["TaskCreated", "TaskStarted", "RunStarted"]
        crowd.let_go.set()
        assert ((await team.ended(long)).counts.runs, crowd.most) == (1, 2)


def turns(rows: list[tuple[str, str]], *tasks: str) -> list[tuple[str, str]]:
    """The wakes and ends of some tasks, in order."""
    return [
        row
        for row in rows
        if row[0] in tasks and row[1] in ("TaskWoken", "RunYielded", "TaskCompleted")
    ]


async def waiting_for_a_tick(team: Fleet, *owners: str, **more: Any) -> list[str]:
    """Tasks that wait for the next tick, and no worker."""
    tasks = [await team.create(**WAITING, title="Turn", owner=owner, **more) for owner in owners]
    first = await team.hire(cron=NEVER)
    for task_id in tasks:
        await team.until(task_id, lambda task: task.state is State.WAITING)
    first.stop()
    await team.staff(0)
    return tasks


async def looked(team: Fleet, task_id: str, times: int = 5) -> None:
    """Change the store often enough that every waiter has looked at it."""
    for _ in range(times):
        await team.do("SendMessage", task_id=task_id, message="Nothing of yours.")
        await asyncio.sleep(LOOK_SECONDS)


async def test_a_tick_continues_only_after_the_current_run_however_long_it_queues(
    any_url: str,
) -> None:
    async with fleet(any_url) as team:
        tasks = await waiting_for_a_tick(team, "general", "general")
        long = [await team.create(["finish", "at last"], title="Long") for _ in range(2)]
        draft = await team.create(status="draft")
        crowd = Crowd()
        await team.hire(crowd, cron=NEVER, concurrency=2)
        for task_id in long:
            await team.until(task_id, lambda task: task.run is not None)
        await team.core.service.put(Job(key=TICK))
        await team.until(tasks[0], lambda task: task.state is State.PENDING)
        await looked(team, draft)
        assert [(await team.task(task_id)).state for task_id in tasks] == [
            State.PENDING,
            State.WAITING,
        ]
        crowd.let_go.set()
        assert [(await team.ended(task_id)).summary for task_id in tasks] == ["second turn"] * 2
        first, second = tasks
        assert turns(await team.history(), *tasks)[2:] == [
            (first, "TaskWoken"),
            (first, "TaskCompleted"),
            (second, "TaskWoken"),
            (second, "TaskCompleted"),
        ]


async def test_a_task_without_a_worker_does_not_block_a_tick(any_url: str) -> None:
    async with fleet(any_url) as team:
        nobodys, last = await waiting_for_a_tick(team, "plan", "general")
        await team.hire(agents=("general",), cron=NEVER)
        await team.core.service.put(Job(key=TICK))
        assert (await team.ended(last)).summary == "second turn"
        assert (await team.task(nobodys)).state is State.PENDING
        await team.hire(agents=("plan",), cron=NEVER)
        assert (await team.ended(nobodys)).summary == "second turn"


@pytest.mark.parametrize("command", ["PauseTask", "CancelTask"])
async def test_a_task_that_is_taken_out_of_the_line_holds_up_no_tick(
    any_url: str, command: str
) -> None:
    async with fleet(any_url) as team:
        held, last = await waiting_for_a_tick(team, "general", "general")
        long = await team.create(["finish", "at last"], title="Long")
        crowd = Crowd()
        await team.hire(crowd, cron=NEVER, concurrency=1)
        await team.until(long, lambda task: task.run is not None)
        await team.core.service.put(Job(key=TICK))
        await team.until(held, lambda task: task.state is State.PENDING)
        await team.do(command, task_id=held)
        await team.until(last, lambda task: task.state is State.PENDING)
        crowd.let_go.set()
        assert (await team.ended(last)).summary == "second turn"
        assert (await team.task(held)).counts.runs == 1


async def test_the_worker_that_takes_over_a_tick_waits_for_the_current_run(any_url: str) -> None:
    async with fleet(any_url) as team:
        tasks = await waiting_for_a_tick(team, "general", "general")
        draft = await team.create(status="draft")
        crowd = Crowd()
        crowd.long = "Turn"
        await team.core.service.put(Job(key=TICK))
        ((tick, *_),) = (await team.core.store.claim(Claim("doomed", {}, 0, 1, patient(60)))).jobs
        await team.core.service.execute(
            cmd.Tick(task_id=tasks[0]), SYSTEM, held=HeldJob(Lease(tick, "doomed"))
        )
        await team.hire(crowd, cron=NEVER)
        await team.until(tasks[0], lambda task: task.run is not None)
        await team.core.store.leave("doomed")
        async with asyncio.timeout(patient(20)):
            holder: str | None = "doomed"
            while holder == "doomed":
                await asyncio.sleep(0.01)  # a claim rings no bell
                (job,) = await team.core.store.select(QUEUED, {"names": [TICK]})
                holder = job.worker
        await looked(team, draft)
        assert (await team.task(tasks[1])).state is State.WAITING
        crowd.let_go.set()
        assert [(await team.ended(task_id)).summary for task_id in tasks] == ["second turn"] * 2
        assert crowd.most == 1


class Waits(Scripted):
    """Works until it is told to stop."""

    async def run(self, handle: RunHandle) -> None:
        await handle.stopping.wait()
        await handle.release()


async def test_a_worker_that_is_stopped_in_the_middle_of_a_tick_leaves_the_rest_of_it_to_others(
    any_url: str,
) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        first = await team.hire(cron="0 0 1 1 *")
        tasks = [await team.create(**WAITING) for _ in range(2)]
        for task_id in tasks:
            await team.until(task_id, lambda task: task.state is State.WAITING)
        first.stop()
        second = await team.hire(Waits(), cron="* * * * *")
        await team.until(tasks[0], lambda task: task.counts.runs == 2 and task.run is not None)
        second.stop()
        await team.staff(0)
        assert [(await team.task(task_id)).state for task_id in tasks] == [
            State.PENDING,
            State.WAITING,
        ]
        await team.hire(cron="0 0 1 1 *")
        assert [(await team.ended(task_id)).summary for task_id in tasks] == ["second turn"] * 2


async def test_one_tick_replaces_the_slots_of_a_downtime(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[str | None] = []
    tick = Scheduler.tick

    async def seen(
        self: Scheduler, lease: Lease, slot: str | None, stopping: asyncio.Event
    ) -> None:
        fired.append(slot)
        await tick(self, lease, slot, stopping)

    monkeypatch.setattr(Scheduler, "tick", seen)
    async with fleet(any_url) as team:
        now = team.core.clock.now()
        # Two of the calendar's slots have passed since then.
        missed = instant(now - timedelta(days=800))
        await team.core.service.put(Job(key=TICK, at=missed))
        await team.hire(cron="0 0 1 1 *")
        async with asyncio.timeout(patient(20)), team.core.store.watch("jobs") as bell:
            while not [
                tick
                for tick in await team.core.store.select(QUEUED, {"names": [TICK]})
                if tick.worker is None and tick.at is not None and tick.at > instant(now)
            ]:
                await bell.wait()
    assert fired == [missed]


async def test_a_worker_that_saw_no_tick_does_not_plan_a_slot_that_has_fired(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, may_write = asyncio.Event(), asyncio.Event()
    fired: list[str | None] = []
    tick = Scheduler.tick

    async def record(
        self: Scheduler, lease: Lease, slot: str | None, stopping: asyncio.Event
    ) -> None:
        fired.append(slot)
        await tick(self, lease, slot, stopping)

    monkeypatch.setattr(Scheduler, "tick", record)
    async with fleet(any_url) as team:
        late: Any = SlowWriter(team.core.service, looked, may_write)
        slow = Scheduler(team.core.store, late, fast(team).core.clock, "* * * * *", 1.0)
        writing = asyncio.create_task(slow.ensure())
        async with asyncio.timeout(patient(20)), team.core.store.watch("jobs") as bell:
            await looked.wait()
            await team.hire(cron="* * * * *")
            while len(fired) < 2:
                await bell.wait()
            may_write.set()
            await writing
            seen = len(fired)
            while len(fired) < seen + 2:
                await bell.wait()
    assert fired == sorted(set(fired), key=str)


class SlowWriter:
    """A service whose writes wait: its caller decides by what it saw long before."""

    def __init__(self, service: Service, looked: asyncio.Event, may_write: asyncio.Event) -> None:
        self._service, self._looked, self._may_write = service, looked, may_write

    async def put(self, *jobs: Job) -> None:
        self._looked.set()
        await self._may_write.wait()
        await self._service.put(*jobs)


async def test_an_update_wakes_a_task_that_waits_for_its_turn(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire(cron="0 0 1 1 *")
        task_id = await team.create(**WAITING)
        await team.until(task_id, lambda task: task.state is State.WAITING)
        await team.do("SendMessage", task_id=task_id, message="Go on.")
        task = await team.ended(task_id)
        assert task.summary == "second turn"
        assert (await team.events(task_id)).count("UpdateDelivered") == 1


async def test_run_task_runs_now_and_refuses_what_cannot(any_url: str) -> None:
    async with fleet(any_url) as team:
        later = await team.create(
            ["finish", "now"], schedule={"not_before": "2999-01-01T00:00:00Z"}
        )
        await team.hire(cron="0 0 1 1 *")
        assert (await team.task(later)).state is State.PENDING
        await team.do("RunTask", task_id=later)
        assert (await team.ended(later)).summary == "now"
        with pytest.raises(Conflict, match="ended"):
            await team.do("RunTask", task_id=later)
        busy = await team.create(["sleep", 5])
        await team.until(busy, lambda task: task.run is not None)
        with pytest.raises(Conflict, match="is already running"):
            await team.do("RunTask", task_id=busy)
        await team.do("CancelTask", task_id=busy)


async def test_run_task_says_why_it_refuses_and_changes_nothing(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire(cron="0 0 1 1 *")
        draft = await team.create(status="draft")
        asking = await team.create(["ask", "Which?"])
        ended = await team.create(["finish", "done"])
        busy = await team.create(["sleep", 600])
        blocked = await team.create(depends_on=[busy])
        nobodys = await team.create(owner=None)
        held = await team.create(depends_on=[busy])
        await team.do("PauseTask", task_id=held)
        await team.until(asking, lambda task: task.state is State.WAITING)
        await team.ended(ended)
        await team.until(busy, lambda task: task.run is not None)
        for task_id, words in (
            (draft, f"Task {draft} cannot run now: it is a draft."),
            (held, f"Task {held} cannot run now: it is paused."),
            (asking, f"Task {asking} cannot run now: it is waiting for user {asking}-q1."),
            (ended, f"Task {ended} is done; an ended task cannot change"),
            (busy, f"Task {busy} is already running"),
            (blocked, f"Task {blocked} .*{busy}"),
            (nobodys, f"Task {nobodys} .*owner"),
        ):
            before = await team.events(task_id)
            with pytest.raises(Conflict, match=words):
                await team.do("RunTask", task_id=task_id)
            assert await team.events(task_id) == before
        await team.do("CancelTask", task_id=busy)


async def test_not_before_is_respected(any_url: str) -> None:
    async with fleet(any_url) as team:
        await team.hire()
        due = datetime.now(UTC) + timedelta(seconds=0.4)
        task = await team.ended(
            await team.create(["finish", "ok"], schedule={"not_before": due.isoformat()})
        )
        assert task.started_at is not None
        assert task.started_at >= due


async def test_a_task_with_its_own_schedule_starts_and_continues_by_it(any_url: str) -> None:
    async with fleet(any_url) as quiet:
        team = fast(quiet)
        await team.hire(cron="0 0 1 1 *")
        own = await team.create(**WAITING, schedule={"cron": "* * * * *"})
        yearly = await team.create(["finish", "no"], schedule={"cron": "0 0 1 1 *"})
        assert (await team.ended(own)).summary == "second turn"
        await team.do("CancelTask", task_id=own)  # it would recur
        assert ((await team.task(yearly)).state, await team.jobs()) == (
            State.PENDING,
            [f"run/{yearly}"],
        )


async def test_a_calendar_that_never_comes_is_refused(any_url: str) -> None:
    async with fleet(any_url) as team:
        with pytest.raises(InvalidParam, match=r"schedule\.cron"):
            await team.create(schedule={"cron": "99 * * * *"})


SET_FORWARD, SET_BACK, ORDINARY = "2026-03-29", "2026-10-25", "2026-06-15"
BERLIN = ZoneInfo("Europe/Berlin")


def slots_on(clock: SystemClock, cron: str, day: str) -> list[datetime]:
    """Every slot of a day in Berlin, in the time of that place; there are not more than so many."""
    begin = datetime.fromisoformat(day).replace(tzinfo=BERLIN)
    found, when = list[datetime](), begin.astimezone(UTC) - timedelta(microseconds=1)
    for _ in range(30):
        when = clock.next_slot(cron, when)
        found.append(when.astimezone(BERLIN))
    return [slot for slot in found if slot.date() == begin.date()]


@pytest.mark.parametrize(("day", "hours"), [(ORDINARY, 24), (SET_FORWARD, 23), (SET_BACK, 25)])
def test_days_on_which_clocks_are_set_neither_lose_nor_double_a_slot(day: str, hours: int) -> None:
    clock = SystemClock("Europe/Berlin")
    hourly = [slot.astimezone(UTC) for slot in slots_on(clock, "0 * * * *", day)]
    assert len(hourly) == hours
    assert {later - earlier for earlier, later in pairwise(hourly)} == {timedelta(hours=1)}
    assert len(slots_on(clock, "30 2 * * *", day)) == 1, (
        "at a time that there is not, once, or twice"
    )


CRONS = ["30 2 * * *", "0,30 2 * * *", "0 * * * *", "*/20 1-3 * * *", "15 */2 * * *", "5 2,3 * * *"]


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize("day", [ORDINARY, SET_FORWARD, SET_BACK])
def test_the_next_slot_is_the_same_from_every_moment_before_it(day: str, cron: str) -> None:
    """In the hour that a clock shows twice, a slot before the moment would run at once, again
    and again.
    """
    clock = SystemClock("Europe/Berlin")
    begin = datetime.fromisoformat(day).replace(tzinfo=BERLIN).astimezone(UTC)
    slots = [clock.next_slot(cron, begin)]
    while slots[-1] < begin + timedelta(hours=30):
        slots.append(clock.next_slot(cron, slots[-1]))
    for minutes in range(0, 28 * 60, 5):
        when = begin + timedelta(minutes=minutes, seconds=1)
        expected = next(slot for slot in slots if slot > when)
        assert clock.next_slot(cron, when) == expected, when


@pytest.mark.parametrize("day", [ORDINARY, SET_FORWARD, SET_BACK])
def test_by_default_there_is_a_slot_every_hour_from_six_to_twenty_one_in_local_time(
    day: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    settings = config.load(None, env={"HOME": "/nowhere"})
    cron, clock = options_of(settings).cron, SystemClock(settings.get("scheduler.timezone"))
    assert [(slot.hour, slot.minute) for slot in slots_on(clock, cron, day)] == [
        (hour, 0) for hour in range(6, 22)
    ]


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(InvalidParam, match="time zone"):
        SystemClock("Nowhere/Land").next_slot("0 6 * * *", datetime.now(UTC))
