"""`remit doctor`, `schedule` and `migrate` on real databases: each problem is named, and repaired
if that is safe.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from remit.adapters.tools.shell import supervisor
from remit.app.engine import worker
from remit.app.engine.recovery import Findings
from remit.app.writing.task_cache import LoadedTask
from remit.app.writing.unit_draft import seal_events
from remit.domain.decisions.context import Context
from remit.domain.task import events as ev
from remit.domain.task.task import State, Usage
from remit.ports import Claim, Debit, Lease, Unit, WorkerRow
from remit.store_queries.table_queries import TABLE_ROWS
from tests.contract.hands import Hand, PostgresHand, SqliteHand
from tests.crash.process import until
from tests.engine.fleet import ANN, Fleet
from tests.patience import patient
from tests.surfaces.place import Change, Place
from tests.torture.worker import NEVER


@pytest.fixture
def place(
    durable_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    # So that processes of other tests are none of our business.
    monkeypatch.setattr(supervisor, "_pid_namespace", lambda: f"of-{tmp_path.name}")
    made = Place(durable_url, tmp_path, capsys)
    assert made.remit("init").code == 0
    return made


async def forged(team: Fleet, task_id: str, *events: Any) -> None:
    """Store events that no command leads to, with the rows that follow and without the jobs."""
    store, clock = team.core.store, team.core.clock
    ((*_, head, _),) = await store.select(TABLE_ROWS["task"], {"ids": [int(task_id)]})
    context = Context(actor=ANN, now=clock.now())
    written = seal_events(
        task_id, events, LoadedTask(await team.task(task_id), head), context, clock
    )
    await store.commit(Unit((written.append,), tuple(written.changes)))


async def a_task_without_a_job(team: Fleet) -> None:
    task_id = await team.create(["finish", "found"])
    await team.core.store.commit(Unit((), (), drops=(f"run/{task_id}",)))


async def a_run_that_nobody_has(team: Fleet) -> None:
    task_id = await team.create(["finish", "found"])
    (job,) = (
        await team.core.store.claim(Claim("w1", {"agent/general": 0}, 1, 0, patient(60)))
    ).jobs
    await team.do("StartRun", "system:engine", task_id=task_id, worker="w1")
    await team.core.service.put(done=Lease(job.id, "w1"))


async def an_update_that_woke_nobody(team: Fleet) -> None:
    await waiting(team)
    await forged(team, "1", ev.MessageSent(update_id="1-u1", message="Go on"))


async def waiting(team: Fleet) -> None:
    """A task that waits for its schedule, and nobody who works."""
    task_id = await team.create(["wait"], ["finish", "found"], completion="explicit")
    worker = await team.hire(cron=NEVER)
    await team.until(task_id, lambda task: task.state is State.WAITING)
    worker.stop()
    await team.staff(0)


async def found(team: Fleet) -> None:
    """What a worker makes of the first task."""
    await team.hire(cron=NEVER)
    assert (await team.ended("1")).summary == "found"


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (a_task_without_a_job, "runnable_without_job", "#1 could run but are not in the queue"),
        (a_run_that_nobody_has, "stale_runs", "#1 have a run but no worker"),
        (
            an_update_that_woke_nobody,
            "undelivered_updates",
            "#1 wait although there is an update for them",
        ),
    ],
)
def test_leftovers_are_named_and_repaired(
    place: Place, wrong: Change, kind: str, words: str
) -> None:
    place.after(wrong)
    for _ in range(2):
        assert place.left() == (1, {kind: ["1"]}), "looking changes nothing"
    said = place.remit("doctor")
    assert (said.code, f"fault {words}" in said.out, "A worker repairs this" in said.err) == (
        1,
        True,
        True,
    )
    fixed = place.remit("doctor", "--fix")
    assert (fixed.code, f"fixed {words}" in fixed.out) == (0, True)
    assert place.left() == (0, {})
    assert place.remit("doctor", "--verify").code == 0
    place.after(found)


async def used(team: Fleet, tokens: int, cost: float) -> None:
    """A task that used 30 tokens and 0.3 dollars, and a ledger that says otherwise."""
    task_id = await team.create(limits={"max_tokens": 1000})
    run = (
        await team.task(await team.do("StartRun", "system:engine", task_id=task_id, worker="w1"))
    ).run
    assert run is not None
    usage = Usage(input_tokens=20, output_tokens=10, cost=0.3)
    await more(team, tokens, cost)  # a ledger that is opened later knows the usage
    await forged(team, task_id, ev.BudgetSettled(run_id=run.id, usage=usage))
    await team.do("CancelTask", task_id=task_id)


async def more(team: Fleet, tokens: int, cost: float) -> None:
    """Add to the ledger."""
    await team.core.store.commit(Unit((), (), debit=Debit(1, tokens, cost)))


@pytest.mark.parametrize(("tokens", "cost"), [(1, 0.0), (0, 0.1)], ids=["tokens", "cost"])
def test_a_ledger_that_says_less_than_was_used_is_named_and_not_called_fixed(
    place: Place, tokens: int, cost: float
) -> None:
    place.after(lambda team: used(team, 30 - tokens, 0.3 - cost))
    assert place.left() == (1, {"budgets_below_use": ["1"]})
    assert "A worker repairs this" not in place.remit("doctor").err
    tried = place.remit("doctor", "--fix", "--json").json
    assert (tried["fixed"], tried["beyond_repair"]) == (0, ["budgets_below_use"])
    said = place.remit("doctor", "--fix")
    assert (said.code, "fault #1 have used more than their tree's ledger shows" in said.out) == (
        1,
        True,
    )
    place.after(lambda team: more(team, tokens, cost))
    assert (place.left(), place.remit("doctor", "--json").json["beyond_repair"]) == ((0, {}), [])
    place.after(lambda team: more(team, 5, 1.0))
    assert place.left() == (0, {}), "what lost calls were given may be more"


@pytest.fixture
def orphan() -> "Iterator[subprocess.Popen[bytes]]":
    """A process with the mark of a worker that is gone."""
    mark = supervisor.cookie(os.getpid(), "n").replace(".", ".9", 1)
    process = subprocess.Popen(
        ["sleep", "600"], env={supervisor.COOKIE: mark, "PATH": os.environ["PATH"]}
    )
    yield process
    process.kill()
    process.wait()


def test_processes_that_a_dead_worker_left_are_named_and_ended(
    place: Place, orphan: "subprocess.Popen[bytes]"
) -> None:
    said = place.remit("doctor")
    assert (
        said.code,
        f"There are processes of commands whose worker is gone: {orphan.pid}" in said.out,
    ) == (1, True)
    assert orphan.poll() is None
    assert place.remit("doctor", "--json").json["orphans"] == [orphan.pid]
    said = place.remit("doctor", "--fix")
    assert (
        said.code,
        f"Ended processes of commands whose worker is gone: {orphan.pid}" in said.out,
    ) == (0, True)
    assert orphan.wait(patient(20)) == -signal.SIGKILL
    assert place.remit("doctor", "--json").json["orphans"] == []


@asynccontextmanager
async def hand(url: str) -> AsyncIterator[Hand]:
    """Somebody with the password of the database."""
    if url.startswith("sqlite"):
        somebody: Hand = SqliteHand(Path(url.removeprefix("sqlite:///")))
    else:
        somebody = PostgresHand(
            await asyncpg.connect(url, server_settings={"search_path": "remit"})
        )
    yield somebody
    await somebody.close()


async def tampered(url: str, statement: str) -> None:
    """Change a database behind everybody's back."""
    async with hand(url) as somebody:
        await somebody.unlock()
        await somebody.run(statement)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "UPDATE event SET actor = 'user:eve' WHERE stream = '1' AND version = 1",
            "was changed: its hash does not match",
        ),
        ("UPDATE task SET title = 'Another' WHERE id = 1", "differs from its events in title"),
    ],
    ids=["chain", "row"],
)
def test_a_store_that_does_not_hold_together_is_found_and_nothing_pretends_to_mend_it(
    place: Place, statement: str, problem: str
) -> None:
    place.after(lambda team: used(team, 30, 0.3))
    assert place.remit("doctor", "--verify").code == 0
    asyncio.run(tampered(place.url, statement))
    assert place.remit("doctor").code == 0, "only proof finds it"
    for more in ((), ("--fix",)):
        said = place.remit("doctor", "--verify", *more)
        assert (said.code, problem in said.out) == (1, True)


def test_the_schedule_leaves_out_tasks_that_only_write_of_a_calendar(place: Place) -> None:
    async def change(team: Fleet) -> None:
        await team.hire(cron=NEVER)
        script = [["ask", "Which?"]]
        started = await team.create(metadata={"cron": "0 0 1 1 *", "script": script})
        await team.until(started, lambda task: task.state is State.WAITING)

    place.after(change)
    shown = place.remit("schedule", "show", "--json").json
    assert (shown["waiting"], shown["active"]) == ([], [])


def test_the_schedule_is_shown_and_a_tick_is_given_at_once(place: Place) -> None:
    place.after(waiting)
    shown = place.remit("schedule", "show", "--json").json
    assert (shown["cron"], shown["workers"], len(shown["next"])) == ("0 6-21 * * *", 0, 5)
    assert shown["waiting"] == [{"id": "1", "title": "Work", "cron": None, "at": None}]
    assert shown["next"] == sorted(set(shown["next"]))
    assert "#1 Work waits for its schedule" in place.remit("schedule", "show").out
    assert place.remit("schedule", "tick", "--json").json == {"waiting": 1, "workers": 0}
    assert place.remit("schedule", "tick").out == "Requested a tick; 1 task is waiting for it.\n"

    async def carried_out(team: Fleet) -> list[str]:
        await found(team)
        await team.idle()
        return await team.events("1")

    assert place.after(carried_out).count("TaskWoken") == 1, "asked for twice, given once"
    assert place.remit("schedule", "show", "--json").json["waiting"] == []


async def two(team: Fleet) -> None:
    """Two tasks that can run."""
    for words in ("found", "another"):
        await team.create(["finish", words])


BROKEN = "UPDATE task SET doc = '{broken' WHERE id = 1"


@pytest.mark.parametrize(
    "statement", [BROKEN, "UPDATE task SET doc = '[]' WHERE id = 1"], ids=["no JSON", "no object"]
)
def test_a_row_that_cannot_be_read_is_named_left_alone_and_made_anew(
    place: Place, statement: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SPOILED_SECONDS", 0.1)
    place.after(two)
    asyncio.run(tampered(place.url, statement))
    assert place.left() == (1, {"unreadable_rows": ["1"]})
    said = place.remit("doctor")
    assert (
        said.code,
        "fault #1 have a row that cannot be read" in said.out,
        "A worker repairs this" in said.err,
    ) == (1, True, False)
    proof = place.remit("doctor", "--verify")
    assert (proof.code, "fault task 1 differs from its events in doc" in proof.out) == (1, True)
    refused = place.remit("task", "show", "1")
    assert (
        refused.code,
        "The row of task 1 cannot be read" in refused.err,
        "remit doctor --fix" in refused.err,
    ) == (1, True, True)

    async def others(team: Fleet) -> None:
        await team.hire(cron=NEVER)
        assert (await team.ended("2")).summary == "another"
        await until(lambda: "Skipped run/1: The row of task 1 cannot be read" in caplog.text)

    place.after(others)
    fixed = place.remit("doctor", "--fix", "--verify")
    assert (
        fixed.code,
        "fixed #1 have a row that cannot be read" in fixed.out,
        "Everything is consistent." in fixed.out,
    ) == (0, True, True)
    assert place.left() == (0, {})
    place.after(found)


def test_rows_are_not_rebuilt_from_changed_events(place: Place) -> None:
    place.after(two)
    for statement in (
        BROKEN,
        "UPDATE event SET actor = 'user:eve' WHERE stream = '1' AND version = 1",
    ):
        asyncio.run(tampered(place.url, statement))
    asyncio.run(tampered(place.url, "UPDATE task SET doc = '{broken' WHERE id = 2"))
    said = place.remit("doctor", "--fix", "--json")
    assert (
        said.code,
        said.json["fixed"],
        said.json["beyond_repair"],
        said.json["left_behind"]["unreadable_rows"],
    ) == (
        1,
        1,
        ["unreadable_rows"],
        ["1"],
    )
    assert place.left() == (1, {"unreadable_rows": ["1"]})
    assert "fault #1 have a row that cannot be read" in place.remit("doctor", "--fix").out


async def asleep(team: Fleet) -> None:
    """A task that waits for a time, one that waits for its schedule by a calendar of its own, and
    one that can run; and nobody who works.
    """
    sleeper = await team.create(["timer", 3600], ["finish", "late"])
    turning = await team.create(["wait"], completion="explicit", schedule={"cron": NEVER})
    await team.do("RunTask", task_id=turning)
    worker = await team.hire(cron=NEVER)
    for task_id in (sleeper, turning):
        await team.until(task_id, lambda task: task.state is State.WAITING)
    worker.stop()
    await team.staff(0)
    await team.create(["finish", "found"])


def test_imported_tasks_are_unchanged_and_run(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.after(asleep)
    first, again = tmp_path / "first.jsonl", tmp_path / "again.jsonl"
    other = Place(f"sqlite:///{tmp_path / 'other.db'}", tmp_path, capsys)
    assert (
        place.remit("export", "events", str(first)).code,
        other.remit("import", str(first)).code,
    ) == (0, 0)
    assert other.left("--verify") == (0, {})
    assert other.remit("export", "events", str(again)).code == 0
    assert again.read_text() == first.read_text()

    async def jobs(team: Fleet) -> list[str]:
        found = sorted(await team.jobs())
        await team.hire(cron=NEVER)
        assert (await team.ended("3")).summary == "found"
        return found

    assert other.after(jobs) == ["cron/2", "run/3", "timer/1-t1"]


def test_workers_are_shown_with_their_machine_and_agents_and_those_that_are_lost_do_not_count(
    place: Place,
) -> None:
    row = WorkerRow("far-1-abc", "far.example", 1, "0", "explore,plan", 8, "2026-01-01T06:00:00Z")
    place.after(lambda team: team.core.store.beat(row, []))
    said = place.remit("doctor")
    assert [word in said.out for word in ("far.example", "explore, plan")] == [True, True]
    assert "No worker is running" not in said.err
    place.configure("heartbeat_seconds = 0.2")
    while place.remit("doctor", "--json").json["workers"][0]["alive"]:
        pass
    said = place.remit("doctor")
    assert (
        "far-1-abc" in said.out,
        "ago: lost" in said.out,
        "No worker is running. Start one with" in said.err,
    ) == (True, True, True)


CRON_PROBLEM = "'99 * * * *' is not a cron expression: bad minute"
CRON = ("cron", "99 * * * *", CRON_PROBLEM, "five fields such as 0 6-21 * * *")
ZONE_PROBLEM = "unknown time zone 'Mars/Olympus'"
ZONE = ("timezone", "Mars/Olympus", ZONE_PROBLEM, "a name such as Europe/Berlin or UTC")
FOLDER_PROBLEM = "unknown time zone 'Europe'"
FOLDER = ("timezone", "Europe", FOLDER_PROBLEM, "a name such as Europe/Berlin or UTC")


@pytest.mark.parametrize(("name", "value", "problem", "right"), [CRON, ZONE, FOLDER])
def test_an_invalid_schedule_is_refused_by_its_users_and_named_by_the_doctor(
    place: Place, name: str, value: str, problem: str, right: str
) -> None:
    place.after(waiting)
    path = place.configure(f'[scheduler]\n{name} = "{value}"\n')
    for argv in (
        ("worker",),
        ("serve", "--port", "0"),
        ("serve", "--no-worker", "--port", "0"),
        ("schedule", "show"),
        ("schedule", "tick"),
        ("run", "x"),
    ):
        said = place.remit(*argv)
        assert (
            said.code,
            f"scheduler.{name} in {path}: {problem}; expected" in said.err,
            right in said.err,
        ) == (2, True, True), argv
    said = place.remit("doctor", "--json")
    (fault,) = said.json["faults"]
    assert (
        said.code,
        fault.startswith(f"scheduler.{name} in {path}: {problem}; expected"),
        said.json["store"]["tasks"]["waiting"],
    ) == (1, True, 1)
    assert (said.json["left_behind"].keys(), place.remit("doctor", "--fix").code) == (
        fields_of_findings(),
        2,
    ), "turns would be set by another calendar"
    shown = place.remit("doctor", "--verify")
    assert (
        shown.code,
        f"fault scheduler.{name} in {path}" in shown.out,
        "Everything is consistent." in shown.out,
    ) == (1, True, True)
    place.configure("")
    assert (place.remit("doctor").code, place.remit("doctor", "--json").json["faults"]) == (0, [])


def fields_of_findings() -> Any:
    """The kinds of findings that there are."""
    return dict.fromkeys(Findings._fields).keys()


def test_a_personal_setting_in_a_workspace_is_ignored_and_not_unknown(place: Place) -> None:
    place.configure("[sandbox]\nnetwork = true\n")
    said = place.remit("doctor")
    assert "ignored setting sandbox.network in " in said.out
    assert "unknown setting" not in said.out


def test_unconfirmed_edits_are_ignored_and_not_unknown(place: Place) -> None:
    place.configure("allow_edits = true\n")
    said = place.remit("doctor")
    told = "which was not confirmed on this machine; confirm it with: remit init --allow-edits"
    assert "ignored setting allow_edits in " in said.out
    assert told in " ".join(said.out.split())
    assert "unknown setting" not in said.out


def test_folders_that_a_run_refuses_are_a_fault(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_SANDBOX_READ_ONLY", "~/.ssh")
    (fault,) = place.remit("doctor", "--json").json["faults"]
    assert fault.startswith(
        "sandbox.read_only in REMIT_SANDBOX_READ_ONLY: '~/.ssh' is or contains secrets"
    )
    monkeypatch.setenv("REMIT_SANDBOX_READ_ONLY", "/opt")
    assert place.remit("doctor", "--json").json["faults"] == []


def test_a_table_for_an_agent_that_there_is_not_is_named(place: Place) -> None:
    place.configure("[agents.generel]\nconcurrency = 2\n[agents.plan]\nconcurrency = 1\n")
    (unknown,) = place.remit("doctor", "--json").json["unknown"]
    assert unknown.startswith(
        "agents.generel: unknown agent. Did you mean general? Available: build, explore, general,"
    )
    said = place.remit("doctor")
    assert (said.code, "unknown setting agents.generel: unknown agent" in said.out) == (
        0,
        True,
    )
    checked = place.remit("agents", "check")
    assert (
        checked.code,
        "[agents.generel] unknown agent" in checked.out,
        "[agents.plan] concurrency 1 runs" in checked.out,
    ) == (
        1,
        True,
        True,
    )


def test_a_store_is_brought_up_to_date(place: Place) -> None:
    kind, question = (
        ("sqlite", "PRAGMA user_version")
        if place.url.startswith("sqlite")
        else ("postgresql", "SELECT version FROM schema_version")
    )

    async def version() -> Any:
        async with hand(place.url) as somebody:
            return (await somebody.run(question))[0][0]

    first, again = (place.remit("migrate", "--json").json for _ in range(2))
    assert first == again == {"store": kind, "schema": asyncio.run(version())}
    assert place.remit("doctor", "--verify").code == 0
