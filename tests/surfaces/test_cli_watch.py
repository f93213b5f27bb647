"""`remit task watch` is never silent for long, whatever it watches and wherever it reads."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit.bootstrap.store_opening import open_core
from remit.domain.task import commands as cmd
from tests.patience import patient
from tests.surfaces.shell import Shell, events_of, interruptible, served

REPEATS = 3
SCRIPT = """
import sys
import remit.surfaces.cli.output.live_progress as progress
progress.REPEAT_SECONDS = 0.2
sys.argv[1:] = {arguments}
from remit.__main__ import main
main()
"""


@pytest.fixture
def shell(tmp_path: Path, durable_url: str) -> Shell:
    made = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    assert made.remit("init").code == 0
    assert made.remit("task", "create", "Work", "--owner", "general").code == 0
    return made


@contextmanager
def watching(shell: Shell, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A process that watches and repeats itself quickly; stopped in the end."""
    command = [sys.executable, "-c", SCRIPT.format(arguments=["task", "watch", *arguments])]
    with interruptible():
        started = subprocess.Popen(
            command,
            cwd=shell.folder,
            env=shell.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    with started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGINT)
            started.wait(patient(30))


def _lines(started: "subprocess.Popen[str]", count: int) -> list[str]:
    assert started.stderr is not None
    return [started.stderr.readline().rstrip() for _ in range(count)]


@pytest.mark.parametrize("remote", [False, True], ids=["store", "server"])
def test_watching_a_task_repeats_what_it_waits_for(shell: Shell, remote: bool) -> None:
    if not remote:
        with watching(shell, "1") as started:
            said = "No worker is running for it. Run it here with: remit task run 1"
            # The first ones may come before it has looked.
            while said not in (line := _lines(started, 1)[0]):
                assert line.startswith("· #1 Work · general · pending"), line
        return
    with served(shell, "--no-worker") as server:
        shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
        with watching(shell, "1") as started:
            said = (
                "No worker is running for it. Start one on the server's machine with: remit worker"
            )
            before = ("· #1 Work · general · pending", f"Waiting for the server {server.url}")
            while said not in (line := _lines(started, 1)[0]):
                assert line.startswith(before), line


def test_watching_a_task_repeats_its_state_after_a_change(shell: Shell) -> None:
    with watching(shell, "1") as started:
        _lines(started, 1)
        assert shell.remit("task", "pause", "1").code == 0
        while "paused" not in (line := _lines(started, 1)[0]):
            pass
        assert "#1 Work · general · paused" in line
        while "remit task resume 1" not in _lines(started, 1)[0]:
            pass


def test_watching_everything_says_that_it_still_does(shell: Shell) -> None:
    with watching(shell) as started:
        assert all(
            line.startswith("Still watching all tasks · ") for line in _lines(started, REPEATS)
        )


@pytest.mark.parametrize("waited", [["TaskAwaited"], []], ids=["one", "all"])
def test_repeats_never_stand_among_the_events(shell: Shell, waited: list[str]) -> None:
    arguments = ("1", "--json") if waited else ("--after", "0", "--json")
    with watching(shell, *arguments) as started:
        _lines(started, REPEATS)
        assert shell.remit("task", "message", "1", "Hurry").code == 0
        _lines(started, REPEATS)
        assert shell.remit("task", "cancel", "1").code == 0
        assert started.stdout is not None
        events = [json.loads(started.stdout.readline()) for _ in range(3 + len(waited))]
    types = [event["type"] for event in events]
    assert types == ["TaskCreated", *waited, "MessageSent", "TaskCanceled"]


GONE = "The worker that ran it is gone. Start one on the server's machine with: remit worker"


async def _left_running(url: str) -> None:
    """Task 1 as a worker leaves it that was killed."""
    async with open_core(url) as core:
        await core.service.execute(cmd.StartRun(task_id="1", worker="gone"), "system:test")


def test_through_a_server_a_task_shows_that_its_worker_is_dead(
    shell: Shell, durable_url: str
) -> None:
    asyncio.run(_left_running(durable_url))
    with served(shell, "--no-worker") as server:
        where = ("--url", server.url)
        shell.env |= {"REMIT_TOKEN": server.token}
        shown = shell.remit("task", "show", "1", *where)
        assert (shown.code, GONE in shown.err) == (0, True), shown.err
        run = shell.remit("task", "run", "1", *where)
        assert (run.code, run.err) == (4, f"error: Task 1 is already running.\n{GONE}\n")
        result = shell.remit("task", "result", "1", *where)
        assert f"it is running, but no worker runs it. {GONE}" in result.err
        with watching(shell, "1", *where) as started:
            while GONE not in _lines(started, 1)[0]:
                pass


@pytest.mark.parametrize("after", ["junk", "1.x", "99999999999999999999"])
@pytest.mark.parametrize("task", [(), ("1",)], ids=["all", "one"])
def test_a_bad_position_is_refused(shell: Shell, task: tuple[str, ...], after: str) -> None:
    said = shell.remit("task", "watch", *task, "--after", after)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: --after: is '{after}'; expected the position of an event")
    assert events_of(shell, "1") == ["TaskCreated"], "a refused command does not wait"
