"""One SIGTERM ends a process within ten seconds, whatever does not answer."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from tests.crash.process import children, environment
from tests.engine.slow_model import slow_model
from tests.patience import patient
from tests.postgres import PostgresForTests
from tests.surfaces.shell import Shell, events_of, interruptible, served, until
from tests.wire import wire

LIMIT_SECONDS = 10.0
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
LATE_SECONDS = 3.0
"""What a busy machine adds to start and end a process."""


@pytest.fixture
def own_server() -> Iterator[PostgresForTests]:
    """A server that a test may stop."""
    server = PostgresForTests()
    yield server
    server.close()


def shell_for(folder: Path, url: str) -> Shell:
    runner = {
        "REMIT_RUNNER": "tests.surfaces.stubborn:Stubborn",
        "PYTHONPATH": environment()["PYTHONPATH"],
    }
    shell = Shell(folder, REMIT_DATABASE_URL=url, **runner)
    assert shell.remit("init").code == 0
    return shell


def ended(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> tuple[int, str]:
    """Send one signal: the exit code and the last line; it must not take too long."""
    began = time.monotonic()
    process.send_signal(number)
    code = process.wait(patient(60))
    assert time.monotonic() - began < LIMIT_SECONDS + patient(LATE_SECONDS)
    assert process.stderr is not None
    return code, process.stderr.read().splitlines()[-1]


@contextmanager
def started(
    shell: Shell, command: str, *options: str, said: str = ""
) -> Iterator["subprocess.Popen[str]"]:
    """A server or a worker that has a run under way, and what it said at its start."""
    process = shell.started(command, *(["--port", "0"] if command == "serve" else []), *options)
    assert process.stderr is not None
    first = process.stderr.readline()
    try:
        assert said in first
        busy(shell)
        yield process
    finally:
        process.kill()
        process.communicate()


def busy(shell: Shell) -> None:
    shell.remit("task", "create", "Gentle", "--owner", "general")
    deadline = time.monotonic() + patient(30)
    while shell.remit("task", "show", "1", "--json").json["state"] != "running":
        assert time.monotonic() < deadline


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_process_stops_in_time_when_the_server_is_gone(
    command: str, own_server: PostgresForTests, tmp_path: Path
) -> None:
    with started(shell_for(tmp_path, own_server.new_database()), command) as process:
        own_server.crash()
        try:
            code, last = ended(process)
        finally:
            own_server.start()
    assert code == 7
    assert last.startswith(
        "Stopped after 7.5 seconds, before everything was finished. 1 run was live."
    )


def test_mcp_on_standard_streams_stops_in_time_when_the_server_is_gone(
    own_server: PostgresForTests, tmp_path: Path
) -> None:
    shell = shell_for(tmp_path, own_server.new_database())
    process = shell.started("mcp")
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        assert "serverInfo" in process.stdout.readline()
        own_server.crash()
        code, last = ended(process)
    finally:
        process.kill()
        process.communicate()
        own_server.start()
    assert code == 7
    assert last == (
        "Stopped after 7.5 seconds, before everything was finished. No run was left to hand over."
    )


@pytest.mark.parametrize("command", ["worker", "serve"])
async def test_a_process_stops_in_time_when_the_connection_is_silent(
    command: str, postgres: PostgresForTests, tmp_path: Path
) -> None:
    async with wire(postgres.new_database()) as line:
        shell = shell_for(tmp_path, line.url)

        def play(cut: Callable[[], object]) -> tuple[int, str]:
            with started(shell, command) as process:
                cut()
                return ended(process)

        loop = asyncio.get_running_loop()
        code, last = await asyncio.to_thread(play, lambda: loop.call_soon_threadsafe(line.cut))
    assert code == 7
    assert last.startswith("Stopped after 7.5 seconds")


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_process_stops_in_time_when_the_file_is_locked(command: str, tmp_path: Path) -> None:
    path = tmp_path / ".remit" / "remit.db"
    shell, lock = shell_for(tmp_path, f"sqlite:///{path}"), [{"path": str(path)}]
    with (
        started(shell, command, "--log-format", "json") as process,
        children(tmp_path, "hold_lock", lock) as (holder,),
    ):
        holder.go()
        holder.wait_until_said("held", 1)
        code, last = ended(process)
    assert code == 7
    assert json.loads(last)["message"].startswith("Stopped after 7.5 seconds")


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_at_the_second_signal_it_says_what_happens_to_the_run(command: str, tmp_path: Path) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    shell.remit("task", "create", "Stubborn", "--owner", "general")
    process = shell.started(command, *(["--port", "0"] if command == "serve" else []))
    try:
        until((tmp_path / "begun").exists)
        process.send_signal(signal.SIGTERM)
        until((tmp_path / "deaf").exists)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=patient(20))
    finally:
        process.kill()
    assert err.splitlines()[-1] == (
        "Stopped. 1 run was not handed over. The next worker continues it when its lease expires."
        " If none is running, start one with: remit worker"
    )


def test_a_run_that_ignores_the_stop_does_not_block_the_worker(
    tmp_path: Path, durable_url: str
) -> None:
    shell = shell_for(tmp_path, durable_url)
    shell.remit("task", "create", "Stubborn", "--owner", "general")
    with served(shell) as server:
        deadline = time.monotonic() + patient(30)
        while shell.remit("task", "show", "1", "--json").json["state"] != "running":
            assert time.monotonic() < deadline
        request = urllib.request.Request(
            f"{server.url}/api/events", headers={"Authorization": f"Bearer {server.token}"}
        )
        with urllib.request.urlopen(request, timeout=patient(20)):
            code, last = ended(server.process)
    assert code == 7
    assert "1 run was live" in last


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_run_whose_model_does_not_answer_is_released(
    command: str, tmp_path: Path, durable_url: str
) -> None:
    with slow_model(tmp_path, seconds=600) as model:
        shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url, **model)
        assert shell.remit("init").code == 0
        with started(shell, command) as process:
            code, _ = ended(process)
        events = events_of(shell, "1")
    assert (code, events[-1]) == (0, "RunReleased")


def test_a_program_that_fails_beside_a_live_run_ends(tmp_path: Path, durable_url: str) -> None:
    with children(
        tmp_path, "fail_beside_run", [{"url": durable_url, "workspace": str(tmp_path)}]
    ) as (program,):
        program.go()
        program.wait_until_said("running", 1)
        assert program.process.wait(LIMIT_SECONDS + patient(LATE_SECONDS)) == 0
        assert program.lines()[-1] == {"running": True}


WITH_ASYNC = """
import asyncio
from remit import Remit

async def main():
    async with Remit.open() as remit:
        await remit.task(objective="Gentle")

asyncio.run(main())
"""
BLOCKING = """
from remit import Remit

with Remit.open_sync() as remit:
    remit.task(objective="Gentle")
"""


@contextmanager
def program(shell: Shell, text: str) -> Iterator["subprocess.Popen[str]"]:
    """A program that waits for a task of its own, which is running."""
    with interruptible():
        process = subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=shell.folder,
            env=shell.env,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        until(lambda: shell.remit("task", "list", "--json").json["tasks"] != [])
        until(lambda: shell.remit("task", "show", "1", "--json").json["state"] == "running")
        yield process
    finally:
        process.kill()
        process.communicate()


def told_to_end(process: "subprocess.Popen[str]") -> str:
    """Send Ctrl-C to a program: it must end in time; return what it has written."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=patient(60))
    assert time.monotonic() - began < LIMIT_SECONDS + patient(LATE_SECONDS)
    assert process.returncode == -signal.SIGINT
    return said


LATE_CLOSE = (
    "Closed before the store answered. When their leases expire, other workers take over the runs"
    " that were not handed over."
)


@pytest.mark.parametrize("text", [WITH_ASYNC, BLOCKING], ids=["async", "blocking"])
def test_a_program_ends_in_time_when_the_server_is_gone(
    text: str, own_server: PostgresForTests, tmp_path: Path
) -> None:
    with program(shell_for(tmp_path, own_server.new_database()), text) as process:
        own_server.crash()
        try:
            said = told_to_end(process)
        finally:
            own_server.start()
    assert LATE_CLOSE in said


@pytest.mark.parametrize("text", [WITH_ASYNC, BLOCKING], ids=["async", "blocking"])
def test_a_program_ends_in_time_when_the_server_does_not_answer(
    text: str, own_server: PostgresForTests, tmp_path: Path
) -> None:
    shell = shell_for(tmp_path, own_server.new_database())
    with program(shell, text) as process, held(own_server):
        said = told_to_end(process)
    assert LATE_CLOSE in said


@pytest.mark.parametrize("text", [WITH_ASYNC, BLOCKING], ids=["async", "blocking"])
def test_a_program_ends_in_time_when_the_file_is_locked(text: str, tmp_path: Path) -> None:
    path = tmp_path / ".remit" / "remit.db"
    shell, lock = shell_for(tmp_path, f"sqlite:///{path}"), [{"path": str(path)}]
    with program(shell, text) as process, children(tmp_path, "hold_lock", lock) as (holder,):
        holder.go()
        holder.wait_until_said("held", 1)
        said = told_to_end(process)
    assert LATE_CLOSE in said


def test_a_program_that_waits_for_a_locked_file_to_open_ends_in_time(tmp_path: Path) -> None:
    path = tmp_path / ".remit" / "remit.db"
    shell, lock = shell_for(tmp_path, f"sqlite:///{path}"), [{"path": str(path)}]
    with children(tmp_path, "hold_lock", lock) as (holder,):
        holder.go()
        holder.wait_until_said("held", 1)
        with interruptible():
            process = subprocess.Popen(
                [sys.executable, "-c", BLOCKING],
                cwd=shell.folder,
                env=shell.env,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert process.stderr is not None
        try:
            assert "Waiting for the store" in process.stderr.readline()
            told_to_end(process)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words", [["run", "Gentle"], ["task", "run", "1"]], ids=["run", "task run"]
)
def test_one_signal_ends_a_command_that_waits_although_the_file_is_locked(
    words: list[str], number: int, tmp_path: Path
) -> None:
    path = tmp_path / ".remit" / "remit.db"
    shell, lock = shell_for(tmp_path, f"sqlite:///{path}"), [{"path": str(path)}]
    shell.remit("task", "create", "Gentle", "--owner", "general")
    with interruptible():
        process = shell.started(*words)
    assert process.stderr is not None
    try:
        while "· running" not in (line := process.stderr.readline()):
            assert line, "the command ended"
        with children(tmp_path, "hold_lock", lock) as (holder,):
            holder.go()
            holder.wait_until_said("held", 1)
            code, last = ended(process, number)
    finally:
        process.kill()
        process.communicate()
    assert code == 128 + number
    assert last.startswith("Quit after 7.5 seconds: the store or the server did not answer. See #")


def test_one_ctrl_c_ends_a_command_whose_server_does_not_answer(tmp_path: Path) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    with served(shell) as server:
        shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
        with interruptible():
            process = shell.started("run", "Gentle")
        assert process.stderr is not None
        try:
            while "· running" not in (line := process.stderr.readline()):
                assert line, "the command ended"
            server.process.send_signal(signal.SIGSTOP)
            code, last = ended(process, signal.SIGINT)
        finally:
            server.process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()
    assert code == 130
    assert last.startswith("Stopped waiting. See the state of #1 with: remit task show 1")


@contextmanager
def held(server: PostgresForTests) -> Iterator[None]:
    """A PostgreSQL server that answers nothing."""
    first = int((server.folder / "postmaster.pid").read_text().splitlines()[0])
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=False
    )
    processes = [first, *map(int, listed.stdout.split())]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@contextmanager
def watched_store(
    remote: bool, folder: Path, server: PostgresForTests
) -> Iterator[tuple[Shell, Callable[[], AbstractContextManager[None]]]]:
    """A shell with one task, and what makes its store or its server silent."""
    shell = shell_for(folder, server.new_database())
    shell.remit("task", "create", "Work", "--owner", "general")
    if not remote:
        yield shell, lambda: held(server)
        return
    with served(shell, "--no-worker") as front:
        shell.env |= {"REMIT_URL": front.url, "REMIT_TOKEN": front.token}

        @contextmanager
        def silent() -> Iterator[None]:
            front.process.send_signal(signal.SIGSTOP)
            try:
                yield
            finally:
                front.process.send_signal(signal.SIGCONT)

        yield shell, silent


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("remote", [False, True], ids=["store", "server"])
def test_ctrl_c_ends_a_watch_whose_store_does_not_answer(
    remote: bool, signals: int, tmp_path: Path, own_server: PostgresForTests
) -> None:
    with watched_store(remote, tmp_path, own_server) as (shell, silence):
        with interruptible():
            process = shell.started("task", "watch", "1")
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert "TaskCreated" in process.stdout.readline()
            assert "no news for" in process.stderr.readline()
            with silence():
                process.send_signal(signal.SIGINT)
                began = time.monotonic()
                lines = iter(process.stderr.readline, "")
                assert "Stopping… Ctrl-C or SIGTERM again to quit now.\n" in lines
                assert time.monotonic() - began < patient(1)
                if signals == 2:
                    process.send_signal(signal.SIGINT)
                    assert process.stderr.read() == "Stopped watching.\n"
                    assert time.monotonic() - began < patient(3)
                else:
                    later = "See the state of #1 with" if remote else "did not answer. See #1 later"
                    assert later in process.stderr.read()
                    assert time.monotonic() - began < LIMIT_SECONDS + patient(LATE_SECONDS)
                assert process.wait(patient(10)) == 130
        finally:
            process.kill()
            process.communicate()


@contextmanager
def ignoring_ctrl_c() -> Iterator[None]:
    """Processes that are started in the block ignore SIGINT, as in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_process_that_was_started_to_ignore_ctrl_c_keeps_ignoring_it(
    command: str, tmp_path: Path
) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    with (
        ignoring_ctrl_c(),
        started(
            shell, command, said="SIGTERM to stop and hand over running tasks, twice"
        ) as process,
    ):
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        shell.remit("task", "create", "Gentle", "--owner", "general")
        until(lambda: shell.remit("task", "show", "2", "--json").json["state"] == "running")
        code, last = ended(process)
    assert code == 0
    assert last.endswith(
        " Stopped. 2 tasks were handed over. No other worker is running for them."
        " Continue them with: remit worker"
    )


def test_mcp_on_standard_streams_that_ignores_ctrl_c_continues(tmp_path: Path) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    with ignoring_ctrl_c():
        process = shell.started("mcp")
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, method in enumerate(("initialize", "ping"), 1):
            request = {
                "jsonrpc": "2.0",
                "id": number,
                "method": method,
                "params": HELLO if method == "initialize" else {},
            }
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
            process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(patient(LIMIT_SECONDS)) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_ctrl_c_says_at_once_what_happens(command: str, tmp_path: Path) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    with interruptible(), started(shell, command) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = next(line for line in process.stderr if "Stopping" in line)
        assert said.endswith("Stopping: handing over 1 run. Ctrl-C or SIGTERM again to quit now.\n")
        last = process.stderr.read().splitlines()[-1]
        assert last.endswith(
            " INFO Stopped. 1 task was handed over. No other worker is running for it."
            " Continue it with: remit worker"
        )
        assert process.wait(patient(LIMIT_SECONDS)) == 130


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_the_last_line_says_that_another_worker_continues(
    command: str, tmp_path: Path, durable_url: str
) -> None:
    shell = shell_for(tmp_path, durable_url)
    with started(shell, command) as process:
        other = shell.started("worker")
        try:
            while len(shell.remit("doctor", "--json").json["workers"]) < 2:
                assert other.poll() is None
            code, last = ended(process)
        finally:
            other.kill()
            other.communicate()
    assert code == 0
    assert last.endswith(" Stopped. 1 task was handed over. Another worker continues it.")


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_an_idle_process_says_that_it_has_stopped(command: str, tmp_path: Path) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    with interruptible():
        process = shell.started(command, *(["--port", "0"] if command == "serve" else []))
    assert process.stderr is not None
    try:
        assert "started" in process.stderr.readline()
        code, last = ended(process, signal.SIGINT)
    finally:
        process.kill()
        process.communicate()
    assert code == 130
    assert last.endswith(" INFO Stopped.")


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_worker_that_has_failed_ends_in_time_although_a_run_does_not_listen(
    command: str, tmp_path: Path
) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    shell.remit("task", "create", "Stubborn", "--owner", "general")
    process = shell.started(command, *(["--port", "0"] if command == "serve" else []))
    assert process.stderr is not None
    try:
        until((tmp_path / "begun").exists)
        shell.remit("task", "create", "Saboteur", "--owner", "general")
        lines = iter(process.stderr.readline, "")
        assert any("The worker failed" in line for line in lines)
        assert process.wait(patient(LIMIT_SECONDS)) == 7
        assert "Stopped after 7.5 seconds" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


class Unread:
    """A pipe for standard error whose reader has stopped."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)

    def fill(self) -> None:
        """Leave no room; what was written before is read first."""
        os.set_blocking(self._reader, False)
        with suppress(BlockingIOError):
            os.read(self._reader, 1 << 20)
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"x")
        os.set_blocking(self.writer, True)

    def read_to_the_end(self) -> str:
        """Read again, until every writer is gone."""
        os.close(self.writer)
        os.set_blocking(self._reader, True)
        with os.fdopen(self._reader) as reader:
            return reader.read()


@contextmanager
def unread(shell: Shell, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Unread]]:
    """A command whose standard error is such a pipe."""
    pipe, devnull = Unread(), subprocess.DEVNULL
    command = [sys.executable, "-m", "remit", *arguments]
    with interruptible():
        process = subprocess.Popen(
            command,
            cwd=shell.folder,
            env=shell.env,
            stdin=devnull,
            stdout=devnull,
            stderr=pipe.writer,
        )
    try:
        yield process, pipe
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("command", "limit"),
    [("worker", LIMIT_SECONDS), ("serve --port 0", LIMIT_SECONDS), ("run Gentle", 4.0)],
)
def test_a_process_stops_in_time_when_its_log_is_not_read(
    command: str, limit: float, tmp_path: Path
) -> None:
    shell = shell_for(tmp_path, f"sqlite:///{tmp_path / '.remit' / 'remit.db'}")
    with unread(shell, *command.split()) as (process, pipe):
        if not command.startswith("run"):
            shell.remit("task", "create", "Gentle", "--owner", "general")
        until(lambda: shell.remit("task", "show", "1", "--json").code == 0)
        until(lambda: bool(shell.remit("task", "show", "1", "--json").json["state"] == "running"))
        pipe.fill()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(patient(60))
        assert time.monotonic() - began < limit + patient(LATE_SECONDS)


@pytest.mark.parametrize("command", ["worker", "serve --port 0"])
def test_a_worker_whose_log_is_not_read_continues(
    command: str, tmp_path: Path, durable_url: str
) -> None:
    shell = shell_for(tmp_path, durable_url)
    shell.env["REMIT_RUNNER"] = "remit.testing:Scripted"
    with unread(shell, *command.split()) as (process, pipe):
        until(lambda: bool(shell.remit("doctor", "--json").json["workers"]))
        pipe.fill()
        for _ in range(2):
            shell.remit("task", "create", "x" * 250, "--owner", "general")
        until(lambda: shell.remit("task", "show", "2", "--json").json["state"] == "done")
        process.send_signal(signal.SIGTERM)
        rest = pipe.read_to_the_end()
        assert process.wait(patient(20)) == 0
    assert rest.count("Task done") == 2, rest
