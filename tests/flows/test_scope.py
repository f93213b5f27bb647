"""Which tasks the worker inside a program works on: those that the program created or waits for."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Progress, Remit, StreamIdle
from remit.adapters.clock import SystemClock
from remit.app.agents.registry import AgentRegistry
from remit.app.runs.live_workers import HEARTBEAT_DELAY, left_alone
from remit.bootstrap import open_store
from remit.bootstrap.embedded_worker import RunningWorker, WorkerOptions
from remit.bootstrap.local_host import WorkspaceHost
from remit.catalog import AppContext, Caller
from remit.domain.task import commands as cmd
from remit.domain.task.task import State
from remit.errors import InvalidParam, Unavailable
from remit.ports import WorkerRow
from remit.store_queries.event_queries import EVENTS
from remit.store_queries.queue_queries import JOBS
from remit.testing import Scripted
from tests.crash.process import environment
from tests.engine.fleet import fleet
from tests.patience import patient
from tests.people import ANN
from tests.surfaces.shell import Shell, until

DONE, LEFT = "done", "pending"
SCRIPTED = "remit.testing:Scripted"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLM_MODEL_ID", "LIGHT_LLM_MODEL_ID", "REMIT_URL", "REMIT_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def program(url: str, folder: Path, **options: object) -> AsyncIterator[Remit]:
    """A program with remit in it."""
    (folder / ".remit").mkdir(exist_ok=True)
    async with asyncio.timeout(patient(60)), Remit.open(folder, url, **options) as remit:  # type: ignore[arg-type]
        yield remit


async def leave(url: str, folder: Path, count: int = 1, **fields: Any) -> list[str]:
    """Create tasks without a worker, as an earlier program would leave them."""
    async with program(url, folder, worker=False) as remit:
        made = [
            await remit.create_task(title=f"Left {n}", owner="explore", **fields)
            for n in range(count)
        ]
        return [item.task_id for item in made]


async def state(remit: Remit, task_id: str) -> str:
    return str((await remit.get_task(task_id)).state)


async def test_a_program_leaves_tasks_of_others_alone(durable_url: str, tmp_path: Path) -> None:
    left = await leave(durable_url, tmp_path, 2)
    async with program(durable_url, tmp_path) as remit:
        assert (await remit.task("Look around", subagent_type="explore")).status == "completed"
        assert [await state(remit, task_id) for task_id in left] == [LEFT, LEFT]


async def test_a_program_with_worker_all_works_on_everything(
    durable_url: str, tmp_path: Path
) -> None:
    (left,) = await leave(durable_url, tmp_path)
    async with program(durable_url, tmp_path, worker="all") as remit:
        await until_done(remit, left)


async def test_a_worker_is_one_of_three_things(tmp_path: Path) -> None:
    with pytest.raises(InvalidParam, match="worker: is 'some'; expected True, False or 'all'"):
        async with program("memory:", tmp_path, worker="some"):
            raise AssertionError


async def until_done(remit: Remit, task_id: str) -> None:
    """Follow a task by its events, which is not waiting for it, until it is done."""
    async for event in remit.events(after="0", task_id=task_id):
        if event.type == "TaskCompleted":
            return


async def test_tasks_that_a_program_creates_run_without_a_wait(
    durable_url: str, tmp_path: Path
) -> None:
    async with program(durable_url, tmp_path) as remit:
        made = await remit.create_task(title="Look around", owner="explore")
        await until_done(remit, made.task_id)


async def test_a_restarted_program_continues_its_task_by_its_key(
    durable_url: str, tmp_path: Path
) -> None:
    async with program(durable_url, tmp_path, worker=False) as remit:
        before = await remit.create_task(title="Mine", owner="explore", idempotency_key="mine")
    (left,) = await leave(durable_url, tmp_path)
    async with program(durable_url, tmp_path) as remit:
        again = await remit.create_task(title="Mine", owner="explore", idempotency_key="mine")
        assert again.task_id == before.task_id
        await until_done(remit, again.task_id)
        assert await state(remit, left) == LEFT


@pytest.mark.parametrize("wait_seconds", [0.0, 30.0], ids=["look", "wait"])
async def test_asking_for_the_output_of_a_task_continues_it(
    durable_url: str, tmp_path: Path, wait_seconds: float
) -> None:
    mine, left = await leave(durable_url, tmp_path, 2)
    async with program(durable_url, tmp_path) as remit:
        await remit.task_output(mine, wait_seconds=wait_seconds)
        await until_done(remit, mine)
        assert await state(remit, left) == LEFT


async def test_run_task_continues_a_task(durable_url: str, tmp_path: Path) -> None:
    mine, left = await leave(durable_url, tmp_path, 2)
    async with program(durable_url, tmp_path) as remit:
        await remit.run_task(mine)
        await until_done(remit, mine)
        assert await state(remit, left) == LEFT


async def test_rerun_task_works_on_the_successor(durable_url: str, tmp_path: Path) -> None:
    mine, left = await leave(durable_url, tmp_path, 2)
    async with program(durable_url, tmp_path, worker=False) as remit:
        await remit.cancel_task(mine)
    async with program(durable_url, tmp_path) as remit:
        again = await remit.rerun_task(mine)
        await until_done(remit, again.task_id)
        assert await state(remit, left) == LEFT


async def test_looking_at_a_task_does_not_continue_it(durable_url: str, tmp_path: Path) -> None:
    (left,) = await leave(durable_url, tmp_path)
    async with program(durable_url, tmp_path) as remit:
        await remit.list_tasks()
        await remit.get_events(left)
        assert (await remit.task("Look around", subagent_type="explore")).status == "completed"
        assert await state(remit, left) == LEFT


async def test_dependencies_of_a_task_run_too(durable_url: str, tmp_path: Path) -> None:
    far, left = await leave(durable_url, tmp_path, 2)
    (near,) = await leave(durable_url, tmp_path, depends_on=[far])
    async with program(durable_url, tmp_path) as remit:
        made = await remit.create_task(title="Mine", owner="explore", depends_on=[near])
        await until_done(remit, made.task_id)
        assert [await state(remit, task_id) for task_id in (far, near, left)] == [DONE, DONE, LEFT]


async def test_a_dependency_that_comes_later_is_worked_on_too(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_HEARTBEAT_SECONDS", "2")
    (other,) = await leave(durable_url, tmp_path)
    async with program(durable_url, tmp_path) as remit:
        made = await remit.create_task(title="Mine", status="draft", owner="explore")
        await remit.update_task(made.task_id, depends_on=[other])
        await remit.update_task(made.task_id, status="active")
        await until_done(remit, made.task_id)
        assert await state(remit, other) == DONE


async def test_a_worker_for_other_agents_does_not_replace_the_worker_of_a_program(
    durable_url: str, tmp_path: Path
) -> None:
    async with fleet(durable_url) as team:
        await team.hire(agents=("plan",))
        async with program(durable_url, tmp_path) as remit:
            assert (await remit.task("Look around", subagent_type="explore")).status == "completed"


async def test_each_program_works_on_its_own_while_both_are_open(
    durable_url: str, tmp_path: Path
) -> None:
    async with program(durable_url, tmp_path) as first, program(durable_url, tmp_path) as second:
        one = await first.create_task(
            title="One", owner="explore", schedule={"not_before": "2099-01-01T00:00:00Z"}
        )
        assert (await second.task("Look around", subagent_type="explore")).status == "completed"
        shown = await workers(durable_url)
        assert len(shown) == 2
        assert [1] in shown, (
            "and not the tree of the other program, which may have left the other list by now"
        )
        assert one.task_id == "1"


async def workers(url: str) -> list[list[int] | None]:
    """The roots that each live worker serves, once every worker has said so with a heartbeat."""
    async with open_store(url) as store:
        # A heartbeat rings no bell.
        while not any(row.roots for row in await store.workers()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return [None if row.roots is None else list(row.roots) for row in await store.workers()]


async def test_no_worker_for_other_trees_is_taken_for_ours(
    durable_url: str, tmp_path: Path
) -> None:
    async with (
        program(durable_url, tmp_path) as other,
        program(durable_url, tmp_path, worker=False) as remit,
    ):
        await other.task("Look around", subagent_type="explore")
        with pytest.raises(Unavailable, match="No running worker works on task 2"):
            await remit.task("Look around", subagent_type="explore")


async def test_others_see_at_once_what_a_worker_works_on(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_HEARTBEAT_SECONDS", "3600")
    (left,) = await leave(durable_url, tmp_path)
    host = WorkspaceHost({"workspace": str(tmp_path), "database_url": durable_url})
    async with program(durable_url, tmp_path) as remit:
        made = await remit.create_task(
            title="One", owner="explore", schedule={"not_before": "2099-01-01T00:00:00Z"}
        )
        # A heartbeat rings no bell.
        while await asyncio.to_thread(host.unattended, made.task_id):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert await asyncio.to_thread(host.unattended, left)


async def test_a_tick_is_left_to_workers_for_everything(durable_url: str, tmp_path: Path) -> None:
    async with program(durable_url, tmp_path) as remit:
        await remit.task("Look around", subagent_type="explore")
    async with open_store(durable_url) as store:
        assert [row.key for row in await store.select(JOBS, {"limit": 10})] == []


def remit(folder: Path, url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder."""
    clean = {
        name: value
        for name, value in environment().items()
        if not name.startswith(("REMIT_", "LLM_", "LIGHT_"))
    }
    env = clean | {"HOME": str(folder), "NO_COLOR": "1", "REMIT_DATABASE_URL": url}
    command = [sys.executable, "-m", "remit", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )


LINE = "2 other unfinished tasks were not run: #1, #2. Run them with: remit worker\n"


@pytest.mark.parametrize(
    "command",
    [["run", "Look around", "--agent", "explore"], ["parallel", "work.txt"]],
    ids=["run", "parallel"],
)
async def test_a_command_says_what_it_leaves_alone(
    durable_url: str, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "work.txt").write_text(
        json.dumps({"objective": "Look around", "subagent_type": "explore"})
    )
    await leave(durable_url, tmp_path, 2)
    said = await asyncio.to_thread(remit, tmp_path, durable_url, *command)
    assert (said.returncode, said.stderr.count(LINE)) == (0, 1), said.stderr
    assert await states(durable_url, tmp_path) == {"1": LEFT, "2": LEFT, "3": DONE}


async def states(url: str, folder: Path) -> dict[str, str]:
    async with program(url, folder, worker=False) as opened:
        return {task_id: await state(opened, task_id) for task_id in ("1", "2", "3")}


async def test_a_task_whose_process_has_just_created_it_is_not_called_left_alone(
    durable_url: str,
) -> None:
    """The next heartbeat of that process says that it serves the task."""
    async with open_store(durable_url) as store:
        core = AppContext(store, SystemClock(), AgentRegistry())
        core.lease_seconds = patient(60)
        old = await core.do(cmd.CreateTask(title="Old", owner="explore"), Caller(actor=ANN))
        assert await left_alone(core) == [old.task_id]
        await asyncio.sleep(HEARTBEAT_DELAY + 0.2)  # what is tested is a time
        sibling = WorkerRow(
            "other", "host", 1, "1", "explore", 1, "2026-01-01T00:00:00.000000Z", scope="[]"
        )
        await store.beat(sibling, [])
        new = await core.do(cmd.CreateTask(title="New", owner="explore"), Caller(actor=ANN))
        assert await left_alone(core) == [old.task_id]
        await store.beat(sibling._replace(scope=f"[{new.task_id}]"), [])
        assert await left_alone(core) == [old.task_id]
        await asyncio.sleep(HEARTBEAT_DELAY + 0.2)
        await store.beat(sibling, [])
        assert await left_alone(core) == [old.task_id, new.task_id]


@pytest.mark.parametrize(("agents", "expected"), [("general", ["1"]), ("general,explore", [])])
async def test_a_worker_for_other_agents_leaves_a_task_alone(
    durable_url: str, agents: str, expected: list[str]
) -> None:
    async with open_store(durable_url) as store:
        core = AppContext(store, SystemClock(), AgentRegistry())
        core.lease_seconds = patient(60)
        await core.do(cmd.CreateTask(title="Old", owner="explore"), Caller(actor=ANN))
        row = WorkerRow("other", "host", 1, "1", agents, 1, "2026-01-01T00:00:00.000000Z")
        await store.beat(row, [])
        assert await left_alone(core) == expected


async def test_a_command_beside_a_worker_for_other_agents_says_what_it_leaves_alone(
    durable_url: str, tmp_path: Path
) -> None:
    await leave(durable_url, tmp_path, 2)
    async with open_store(durable_url) as store:
        row = WorkerRow("other", "host", 1, "1", "general", 1, "2026-01-01T00:00:00.000000Z")
        await store.beat(row, [])
    said = await asyncio.to_thread(
        remit, tmp_path, durable_url, "run", "Look around", "--agent", "explore"
    )
    assert (said.returncode, said.stderr.count(LINE)) == (0, 1), said.stderr


async def test_a_task_that_a_starting_worker_is_about_to_serve_is_not_called_left_alone(
    durable_url: str,
) -> None:
    """A worker that stood by knows its scope before it has adopted the task that this process
    waits for.
    """
    async with open_store(durable_url) as store:
        core = AppContext(store, SystemClock(), AgentRegistry())
        awaited = await core.do(cmd.CreateTask(title="Awaited", owner="explore"), Caller(actor=ANN))
        other = await core.do(cmd.CreateTask(title="Other", owner="explore"), Caller(actor=ANN))
        core.start_worker = _start_nothing
        await core.adopt([awaited.task_id])
        worker = RunningWorker(core, Scripted(), WorkerOptions(scoped=True))
        with worker.serving():
            assert await left_alone(core) == [other.task_id]


async def _start_nothing() -> None:
    """Stand by."""


async def test_a_command_with_all_works_on_everything(durable_url: str, tmp_path: Path) -> None:
    await leave(durable_url, tmp_path, 2)
    said = await asyncio.to_thread(
        remit, tmp_path, durable_url, "run", "Look around", "--agent", "explore", "--all"
    )
    assert (said.returncode, "were not run" in said.stderr) == (0, False)
    async with open_store(durable_url) as store:
        rows = await store.select(EVENTS, {"stream": "1", "after": 0, "limit": 10})
    assert "RunStarted" in [row.type for row in rows], (
        "it is handed over if it has not ended with the command"
    )


async def test_running_a_task_by_hand_leaves_the_others_alone(
    durable_url: str, tmp_path: Path
) -> None:
    await leave(durable_url, tmp_path, 3)
    said = await asyncio.to_thread(remit, tmp_path, durable_url, "task", "run", "3")
    assert said.stderr.count(LINE) == 1, said.stderr
    assert await states(durable_url, tmp_path) == {"1": LEFT, "2": LEFT, "3": DONE}


async def test_a_repeated_command_continues_its_own_task_and_does_not_name_it(
    durable_url: str, tmp_path: Path
) -> None:
    await leave(durable_url, tmp_path, 1)
    async with program(durable_url, tmp_path, worker=False) as opened:
        await opened.create_task(title="Waits for a person", status="draft", owner="explore")
    said = await asyncio.to_thread(
        remit, tmp_path, durable_url, "run", "Look around", "--agent", "explore"
    )
    assert "1 other unfinished task was not run: #1. Run it with: remit worker\n" in said.stderr


async def test_doctor_shows_what_a_worker_works_on(durable_url: str, tmp_path: Path) -> None:
    async with program(durable_url, tmp_path) as opened:
        made = await opened.create_task(
            title="One", owner="explore", schedule={"not_before": "2099-01-01T00:00:00Z"}
        )
        await workers(durable_url)
        said = await asyncio.to_thread(remit, tmp_path, durable_url, "doctor")
        assert "WORKS ON" in said.stdout, said.stdout + said.stderr
        assert f"#{made.task_id}" in said.stdout
        assert "No worker for all tasks is running." in said.stdout + said.stderr
        data = json.loads(
            (await asyncio.to_thread(remit, tmp_path, durable_url, "doctor", "--json")).stdout
        )
        assert [row["scope"] for row in data["workers"]] == [[made.task_id]]


# A worker elsewhere that dies.


@contextmanager
def worker_elsewhere(folder: Path, url: str) -> "Iterator[subprocess.Popen[str]]":
    """A `remit worker` that follows scripts, once it is heard of."""
    shell = Shell(
        folder,
        REMIT_DATABASE_URL=url,
        REMIT_HEARTBEAT_SECONDS=str(patient(2)),
        REMIT_RUNNER=SCRIPTED,
    )
    worker = shell.started("worker")
    try:
        until(lambda: bool(shell.remit("doctor", "--json").json["workers"]))
        yield worker
    finally:
        worker.kill()
        worker.communicate()


SLEEPS: dict[str, Any] = {"metadata": {"script": [["sleep", 3600]]}}


async def test_a_program_takes_over_when_the_worker_elsewhere_dies(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_RUNNER", SCRIPTED)
    monkeypatch.setenv("REMIT_HEARTBEAT_SECONDS", str(patient(2)))
    (tmp_path / ".remit").mkdir()
    with worker_elsewhere(tmp_path, durable_url) as worker:
        async with program(durable_url, tmp_path) as opened:
            made = await opened.create_task(
                title="Long", owner="general", metadata={"script": [["ask", "Go on?"]]}
            )
            # The worker is another process.
            while not (asked := (await opened.list_interactions()).interactions):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            worker.kill()
            worker.wait()
            await opened.respond(asked[0].id, "Yes")
            assert (
                await opened.task_output(made.task_id, wait_seconds=patient(30))
            ).status == "completed"
            assert (await opened.task("Another", subagent_type="general")).status == "completed"


async def test_a_call_reports_that_the_worker_of_its_task_is_dead(
    durable_url: str, tmp_path: Path
) -> None:
    (tmp_path / ".remit").mkdir()
    with worker_elsewhere(tmp_path, durable_url) as worker:
        async with program(durable_url, tmp_path, worker=False) as opened:
            made = await opened.create_task(title="Long", owner="general", **SLEEPS)
            async with aclosing(
                opened.stream("task_output", task_id=made.task_id, wait_seconds=600)
            ) as items:
                async for item in items:
                    assert isinstance(item, Progress | StreamIdle)
                    if isinstance(item, StreamIdle):
                        continue
                    if item.state == "running":
                        worker.kill()
                    if item.waits_for:
                        assert (item.state, item.waits_for) in (
                            ("pending", "a free worker"),
                            ("running", "a worker: the one that ran it is gone"),
                        )
                        if item.state == "running":
                            break


# `remit task run`.


async def test_running_a_task_that_waits_for_a_subtask_continues_its_tree(
    durable_url: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url, REMIT_RUNNER=SCRIPTED)
    async with fleet(durable_url) as team:
        await team.hire()
        child = {"title": "Child", "owner": "general", "metadata": {"script": [["sleep", 3600]]}}
        parent = await team.create(["block", child], ["finish", "Both are done."])
        await team.until(parent, lambda task: task.state is State.WAITING)
    async with program(durable_url, tmp_path, worker=False) as opened:
        (child_id,) = (await opened.get_task(parent)).child_ids
        await opened.complete_task(child_id)
    said = await asyncio.to_thread(shell.remit, "task", "run", parent)
    assert (said.code, shell.remit("task", "show", parent, "--json").json["summary"]) == (
        0,
        "Both are done.",
    ), said.err


async def test_a_wait_is_recorded_before_the_task_runs(durable_url: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url, REMIT_RUNNER=SCRIPTED)
    async with fleet(durable_url) as team:
        await team.hire()
        parked = await team.create(["wait"], ["finish", "Done."], completion="explicit")
        await team.until(parked, lambda task: task.waits_for_tick)
        said = await asyncio.to_thread(shell.remit, "task", "run", parked)
        assert said.code == 0, said.err
        events = await team.events(parked)
        assert events.index("TaskAwaited") < len(events) - 1 - events[::-1].index("RunStarted")


async def test_waiting_for_a_result_says_how_things_stand_and_works_on_the_task(
    durable_url: str, tmp_path: Path
) -> None:
    (left,) = await leave(durable_url, tmp_path)
    said = await asyncio.to_thread(
        remit, tmp_path, durable_url, "task", "result", left, "--wait", "60"
    )
    assert (said.returncode, "· running" in said.stderr) == (0, True), said.stderr


async def test_a_run_that_is_refused_changes_nothing(durable_url: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url, REMIT_RUNNER=SCRIPTED)
    async with program(durable_url, tmp_path, worker=False) as opened:
        first = (await opened.create_task(title="First", owner="general", status="draft")).task_id
        held = (await opened.create_task(title="Held", owner="general", depends_on=[first])).task_id
        said = await asyncio.to_thread(shell.remit, "task", "run", held)
        assert said.code == 4, said
        assert (await opened.get_task(held)).version == 1
