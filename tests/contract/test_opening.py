"""Opening a store while other processes make, upgrade or lock it."""

import asyncio
import itertools
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import pytest

from remit.adapters.stores import opening
from remit.adapters.stores.postgres.schema import MIGRATION_LOCK
from remit.adapters.stores.sqlite import driver
from remit.adapters.stores.sqlite.database_file import DatabaseFile, log_identity
from remit.adapters.stores.sqlite.rollback_check import foreign_log, marks_of
from remit.app.maintenance.verify import verify
from remit.bootstrap import open_store
from remit.errors import Busy, Unavailable
from tests.crash.process import children
from tests.patience import patient
from tests.people import desk
from tests.postgres import PostgresForTests
from tests.surfaces.shell import Shell, until

ROUNDS, PROCESSES, BUSY_LOOPS = 3, 16, 4
HELD_SECONDS = 3


@pytest.fixture(params=["sqlite", "postgres"])
def new_urls(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "sqlite":
        return [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(ROUNDS)]
    server: PostgresForTests = request.getfixturevalue("postgres")
    return [server.new_database() for _ in range(ROUNDS)]


@pytest.fixture
def new_url(new_urls: list[str]) -> str:
    """The URL of one database that does not exist yet, or is empty."""
    return new_urls[0]


@contextmanager
def busy_machine() -> Iterator[None]:
    """Loops that take all the time of the processors."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@asynccontextmanager
async def locked(url: str, folder: Path) -> AsyncIterator[None]:
    """Another process is about to make the schema of a new store."""
    if url.startswith("sqlite"):
        with children(folder, "hold_lock", [{"path": url.removeprefix("sqlite:///")}]) as (holder,):
            holder.go()
            await asyncio.to_thread(holder.wait_until_said, "held", 1)
            yield
            holder.go()
            await asyncio.to_thread(holder.finish)
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        yield
    finally:
        await connection.close()


async def opened(url: str) -> list[int]:
    async with open_store(url) as store:
        return await store.new_ids(1)


async def test_sixteen_processes_open_a_new_store_at_once_on_a_busy_machine(
    new_urls: list[str], tmp_path: Path
) -> None:
    with (
        busy_machine(),
        children(tmp_path, "open_each", [{"urls": new_urls}] * PROCESSES) as openers,
    ):
        for turn in range(1, ROUNDS + 1):
            for opener in openers:
                opener.go()
            for opener in openers:
                opener.wait_until_said("opened", turn)
        said = [
            [line["opened"] for line in opener.finish() if "opened" in line] for opener in openers
        ]
    for turn, url in enumerate(new_urls):
        assert sorted(lines[turn][0] for lines in said) == list(range(1, PROCESSES + 1))
        async with desk(url) as at:
            await at.create()
            assert (await verify(at.store)).faults == ()


async def test_opening_waits_longer_than_a_commit_and_says_what_for(
    new_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "BUSY_SECONDS", 0.2)
    async with asyncio.timeout(patient(40)):
        async with locked(new_url, tmp_path):
            opening_tasks = [asyncio.create_task(opened(new_url)) for _ in range(3)]
            await asyncio.sleep(HELD_SECONDS)
            assert not any(task.done() for task in opening_tasks)
        numbers = [number for task in opening_tasks for number in await task]
    assert sorted(numbers) == [1, 2, 3]
    said = [
        record.getMessage()
        for record in caplog.records
        if record.name == "remit.store" and record.levelno == logging.WARNING
    ]
    assert len(said) == 3, "each opening says it once"
    assert all(text.startswith("Waiting for the store ") for text in said)
    assert all(text.endswith(waiting_for(new_url)) for text in said)
    assert all(name_of(new_url) in text for text in said)


def waiting_for(url: str) -> str:
    """The cause that a waiting opening reports; only PostgreSQL has a server."""
    server = "" if url.startswith("sqlite") else ", or its server starts"
    return f": another process has locked it or is upgrading it{server}."


async def test_a_server_that_is_silent_after_a_lock_is_not_called_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "OPEN_SECONDS", 0.4)
    monkeypatch.setattr(opening, "SILENT_SECONDS", 0.1)
    wait = opening.OpeningWait("of a test")
    wait.again()
    with pytest.raises(TimeoutError):
        await wait.answer(asyncio.Event().wait())
    with pytest.raises(Unavailable, match="did not answer for"):
        wait.must_go_on()


def name_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


async def test_opening_gives_up_with_the_name_of_the_store(
    new_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opening.OPEN_SECONDS == 30
    async with locked(new_url, tmp_path):
        with monkeypatch.context() as shortened:
            shortened.setattr(opening, "OPEN_SECONDS", 0.3)
            with pytest.raises(Busy, match="was locked by another process for") as refused:
                await opened(new_url)
    assert name_of(new_url) in str(refused.value)
    assert (refused.value.code, refused.value.exit_code) == ("UNAVAILABLE", 7)
    assert await opened(new_url) == [1]


async def test_an_opening_that_waits_can_be_canceled(new_url: str, tmp_path: Path) -> None:
    lock: AbstractAsyncContextManager[None] = locked(new_url, tmp_path)
    async with lock:
        waiting = asyncio.create_task(opened(new_url))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_command_says_that_it_waits_and_then_does_its_work(
    new_url: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=new_url)
    shell.remit("init")
    async with locked(new_url, tmp_path):
        command = shell.started("task", "create", "Work")
        assert command.stderr is not None
        said = await asyncio.to_thread(command.stderr.readline)
        assert said.startswith("Waiting for the store ")
        assert said.endswith(f"{waiting_for(new_url)}\n")
    await asyncio.to_thread(command.communicate, timeout=patient(60))
    assert command.returncode == 0
    assert shell.remit("task", "list", "--json").json["tasks"][0]["title"] == "Work"


IMPATIENT = """
import sys
import remit.adapters.stores.wait_notice as wait_notice
wait_notice.REPEAT_SECONDS = 1.5
sys.argv[1:] = {arguments}
from remit.__main__ import main
main()
"""


def _first_lines(shell: Shell, arguments: list[str], count: int) -> list[str]:
    """Start a command; return its first lines on standard error about a wait."""
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT.format(arguments=arguments)],
        cwd=shell.folder,
        env=shell.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr is not None
            lines = (line for line in process.stderr if "Waiting for the store " in line)
            return list(itertools.islice(lines, count))
        finally:
            process.kill()


@pytest.mark.parametrize("is_new", [True, False], ids=["opening", "writing"])
async def test_a_command_repeats_that_it_waits(is_new: bool, new_url: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=new_url)
    shell.remit("init")
    if not is_new:
        assert (await asyncio.to_thread(shell.remit, "task", "create", "First")).code == 0
    held = locked(new_url, tmp_path) if is_new else unwritable(new_url, tmp_path, "task")
    async with held, asyncio.timeout(patient(30)):
        lines = await asyncio.to_thread(_first_lines, shell, ["task", "create", "Work"], 3)
    assert len(lines) == 3
    assert all("seconds so far)." in line for line in lines[1:]), lines


@pytest.mark.parametrize("table", ["store", "event", "task"])
async def test_a_command_says_that_it_waits_for_a_table_that_is_locked(
    table: str, postgres: PostgresForTests, tmp_path: Path
) -> None:
    url = postgres.new_database()
    shell = Shell(tmp_path, REMIT_DATABASE_URL=url)
    assert (await asyncio.to_thread(shell.remit, "task", "create", "First")).code == 0
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE remit.{table} IN ACCESS EXCLUSIVE MODE")
            command = shell.started("task", "create", "Waited for")
            assert command.stderr is not None
            async with asyncio.timeout(patient(30)):
                said = await asyncio.to_thread(command.stderr.readline)
            assert said.startswith("Waiting for "), said
    finally:
        await connection.close()
    await asyncio.to_thread(command.communicate, timeout=patient(60))
    assert command.returncode == 0


async def test_processes_that_work_wait_once_for_a_store_they_may_not_write(
    durable_url: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    assert (await asyncio.to_thread(shell.remit, "task", "create", "First")).code == 0
    await asyncio.to_thread(_leave_dead_worker, shell)
    async with unwritable(durable_url, tmp_path):
        began = time.monotonic()
        processes = [
            shell.started(*words)
            for words in (["run", "Look"], ["worker"], ["serve", "--port", "0"], ["mcp"])
        ]
        texts = await asyncio.gather(
            *(asyncio.to_thread(_read_to_the_end, process) for process in processes)
        )
        seconds = time.monotonic() - began
    given_up = "was locked by another process for 30 seconds while it was being opened."
    for process, err in zip(processes, texts, strict=True):
        assert process.returncode == 7, err
        assert "Waiting for the store " in err
        assert f"{name_of(durable_url)} {given_up}" in err
    after_announcement = texts[0].partition("Waiting for the store ")[2]
    assert "· waiting for the store · " in after_announcement
    assert "· starting · " not in after_announcement
    assert opening.OPEN_SECONDS - 1 < seconds < opening.OPEN_SECONDS + patient(10)


def _leave_dead_worker(shell: Shell) -> None:
    """Every further process wants to remove it from the list of workers, which is a write."""
    worker = shell.started("worker")
    assert worker.stderr is not None
    assert "Worker started" in worker.stderr.readline()
    until(lambda: bool(shell.remit("doctor", "--json").json["workers"]))
    worker.kill()
    worker.communicate()


def _read_to_the_end(process: "subprocess.Popen[str]") -> str:
    """Read standard error until the process ends.

    Its standard input stays open, as a client of MCP keeps it.
    """
    assert process.stderr is not None
    try:
        err = process.stderr.read()
        process.wait(patient(20))
    finally:
        process.kill()
        process.communicate()
    return err


@asynccontextmanager
async def unwritable(url: str, folder: Path, table: str = "worker") -> AsyncIterator[None]:
    """Another process keeps an existing store from being written; on PostgreSQL, one table."""
    if url.startswith("sqlite"):
        async with locked(url, folder):
            yield
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE remit.{table} IN SHARE MODE")
            yield
    finally:
        await connection.close()


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A server that accepts connections and never says a word, like a stopped PostgreSQL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql://postgres@127.0.0.1:{server.getsockname()[1]}/silent"


@pytest.mark.parametrize("seconds", [0.5, 1.5])
async def test_opening_waits_for_a_silent_server_in_all_as_long_as_it_may(
    seconds: float,
    silent_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "OPEN_SECONDS", seconds)
    monkeypatch.setattr(opening, "ANSWER_SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"did not answer for .* seconds while it was being opened"
    ) as refused:
        await opened(silent_url)
    assert seconds <= time.monotonic() - began < patient(seconds + 2)
    assert (refused.value.exit_code, "/silent" in str(refused.value)) == (7, True)


async def test_processes_say_that_a_server_is_silent_and_wait_once(
    silent_url: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=silent_url)
    commands = (["task", "list"], ["worker"], ["serve", "--port", "0"])
    began = time.monotonic()
    processes = [shell.started(*words) for words in commands]
    texts = await asyncio.gather(
        *(asyncio.to_thread(_read_to_the_end, process) for process in processes)
    )
    seconds = time.monotonic() - began
    for process, err in zip(processes, texts, strict=True):
        assert process.returncode == 7, err
        assert "Waiting for the store " in err.splitlines()[0]
        assert err.splitlines()[0].endswith("/silent: its server does not answer.")
        assert "did not answer for 30 seconds while it was being opened." in err
    assert opening.OPEN_SECONDS - 1 < seconds < opening.OPEN_SECONDS + patient(10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("words", [["task", "list"], ["worker"], ["run", "Look"]], ids=" ".join)
async def test_a_process_that_waits_for_a_silent_server_can_be_ended(
    words: list[str],
    number: signal.Signals,
    silent_url: str,
    tmp_path: Path,
) -> None:
    process = Shell(tmp_path, REMIT_DATABASE_URL=silent_url).started(*words)
    assert process.stderr is not None
    while "Waiting for the store " not in (
        line := await asyncio.to_thread(process.stderr.readline)
    ):
        assert line.startswith("·"), line
    began = time.monotonic()
    process.send_signal(number)
    await asyncio.to_thread(_read_to_the_end, process)
    assert time.monotonic() - began < patient(4)


async def test_a_log_of_a_store_created_during_the_opening_belongs_to_it(tmp_path: Path) -> None:
    path = tmp_path / "remit.db"
    path.touch()
    file = DatabaseFile(path)
    try:
        async with open_store(f"sqlite:///{path}") as other:
            await other.new_ids(1)
            assert log_identity(path), "the other process has a log"
            assert foreign_log(path, file, marks_of(path)) is None
    finally:
        file.close()
