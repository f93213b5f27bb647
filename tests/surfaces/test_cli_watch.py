"""`remit task watch` is never silent for long, whatever it watches and wherever it reads."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import patient
from tests.surfaces.test_command import Shell, interruptible, served

REPEATS = 3
SCRIPT = """
import sys
import remit.surfaces.cli.progress as progress
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
        started = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
            said = "No worker is running for it. Run it here with: remit task run 1."
            while said not in (line := _lines(started, 1)[0]):  # the first ones may come before it has looked
                assert line.startswith("· #1 Work · general · pending"), line
        return
    with served(shell, "--no-worker") as server:
        shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
        with watching(shell, "1") as started:
            lines = _lines(started, REPEATS)
    assert lines[-1].startswith("· #1 Work · general · pending"), lines


def test_watching_a_task_repeats_how_it_stands_after_a_change(shell: Shell) -> None:
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
        assert all(line.startswith("Still watching all tasks · ") for line in _lines(started, REPEATS))


@pytest.mark.parametrize("arguments", [("1", "--json"), ("--after", "0", "--json")], ids=" ".join)
def test_repeats_never_stand_among_the_events(shell: Shell, arguments: tuple[str, ...]) -> None:
    with watching(shell, *arguments) as started:
        _lines(started, REPEATS)
        assert shell.remit("task", "message", "1", "Hurry").code == 0
        _lines(started, REPEATS)
        assert shell.remit("task", "cancel", "1").code == 0
        assert started.stdout is not None
        events = [json.loads(started.stdout.readline()) for _ in range(3)]
    assert [event["type"] for event in events] == ["TaskCreated", "MessageSent", "TaskCanceled"]
