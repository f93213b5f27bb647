"""Ctrl-C in commands that wait: they say at once what happens, then what is true of the task,
and exit with 130.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.bootstrap.sync_delegation import Ending, _Interrupt
from tests.crash.process import environment
from tests.patience import patient
from tests.surfaces.shell import Shell, events_of, interruptible, served, until

STOPPING = "Stopping… Ctrl-C or SIGTERM again to quit now."


@pytest.fixture
def shell(tmp_path: Path, durable_url: str) -> Shell:
    made = Shell(
        tmp_path,
        REMIT_RUNNER="tests.surfaces.stubborn:Stubborn",
        PYTHONPATH=environment()["PYTHONPATH"],
        REMIT_DATABASE_URL=durable_url,
    )
    assert made.remit("init").code == 0
    return made


def running(shell: Shell, *arguments: str, tasks: int = 1) -> "subprocess.Popen[str]":
    """A command that waits for so many tasks which are running."""
    with interruptible():
        started = shell.started(*arguments)
    assert started.stderr is not None
    seen = 0
    while seen < tasks:
        seen += "· running" in started.stderr.readline()
    return started


def interrupted(started: "subprocess.Popen[str]", number: int = signal.SIGINT) -> list[str]:
    """What a command writes after Ctrl-C, or another signal that ends it."""
    assert started.stderr is not None
    started.send_signal(number)
    # All by one reader: communicate() would miss what is buffered.
    lines = [line.rstrip("\n") for line in started.stderr]
    assert started.wait(patient(30)) == 128 + number
    started.communicate()
    assert "Traceback" not in "".join(lines)
    return [line for line in lines if "· running" not in line and "· pending" not in line]


@contextmanager
def working(shell: Shell) -> Iterator[None]:
    """A worker elsewhere."""
    with interruptible():
        worker = shell.started("worker")
    try:
        until(lambda: bool(shell.remit("doctor", "--json").json["workers"]))
        yield
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=patient(30))
    finally:
        worker.kill()
        worker.communicate()


def test_without_another_worker_the_task_is_kept_and_it_says_how_to_continue(shell: Shell) -> None:
    assert interrupted(running(shell, "run", "Gentle")) == [
        STOPPING,
        "Stopped. #1 is kept (pending).",
        "No worker is running for it now. Continue it with: remit task run 1",
        "Cancel it with: remit task cancel 1",
    ]
    assert events_of(shell, "1")[-1] == "RunReleased"
    shell.env["REMIT_RUNNER"] = "remit.testing:Scripted"
    continued = shell.remit("task", "run", "1")
    assert (continued.code, shell.remit("task", "show", "1", "--json").json["state"]) == (
        0,
        "done",
    ), continued


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_releases_its_task(shell: Shell, number: int) -> None:
    """A kill, a closed terminal and a supervisor must not count as a crash of the task."""
    said = interrupted(running(shell, "run", "Gentle"), number)
    assert said[:2] == [STOPPING, "Stopped. #1 is kept (pending)."]
    assert events_of(shell, "1")[-1] == "RunReleased"


def test_task_run_says_the_same(shell: Shell) -> None:
    shell.remit("task", "create", "Gentle", "--owner", "general")
    assert interrupted(running(shell, "task", "run", "1"))[:3] == [
        STOPPING,
        "Stopped. #1 is kept (pending).",
        "No worker is running for it now. Continue it with: remit task run 1",
    ]


async def test_one_that_comes_just_before_a_wait_begins_is_not_lost() -> None:
    async def silent() -> AsyncGenerator[dict[str, Any], None]:
        await asyncio.Event().wait()
        yield {}

    interrupt = _Interrupt(Ending(lambda _: None))
    interrupt.begun = True  # it came after the last look at it, and there was no task to cancel yet
    async with asyncio.timeout(patient(5)):
        with pytest.raises(KeyboardInterrupt):
            await interrupt.canceled_by(silent())


def test_parallel_says_it_of_every_task(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "works.txt").write_text("Gentle\nGentle\n")
    said = interrupted(running(shell, "parallel", "works.txt", tasks=2))
    assert said[0] == STOPPING
    assert "Stopped. #1, #2 are kept." in said
    assert "No worker is running for #1, #2 now." in said
    assert "Continue one with: remit task run 1" in said
    assert "Continue all with: remit worker" in said


def test_parallel_says_it_also_of_tasks_that_it_does_not_wait_for(
    shell: Shell, tmp_path: Path
) -> None:
    works = ["Gentle", {"objective": "Gentle", "wait": False}, "Gentle"]
    (tmp_path / "works.json").write_text(json.dumps(works))
    said = interrupted(running(shell, "parallel", "works.json", tasks=2))
    assert "Stopped. #1, #2, #3 are kept." in said
    assert "No worker is running for #1, #2, #3 now." in said


def test_with_a_worker_elsewhere_the_task_continues(shell: Shell) -> None:
    with working(shell):
        for arguments in (("run", "Gentle"), ("task", "result", "1", "--wait", "600")):
            if arguments[0] == "run":
                said = interrupted(running(shell, *arguments))
                assert said[0] == STOPPING
            else:
                with interruptible():
                    started = shell.started(*arguments)
                said = _after_a_wait(started)
            assert said[-3:] == [
                "Stopped waiting. #1 continues (running): a worker is running elsewhere.",
                "Follow it with: remit task watch 1",
                "Cancel it with: remit task cancel 1",
            ]
        assert events_of(shell, "1")[-1] == "RunStarted", "it was not touched"


def _after_a_wait(started: "subprocess.Popen[str]") -> list[str]:
    """What `task result --wait` writes after Ctrl-C, once it has opened its store and waits."""
    until(
        lambda: any(
            "eventpoll" in str(link.readlink())
            for link in Path(f"/proc/{started.pid}/fd").iterdir()
            if link.is_symlink()
        )
    )
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=patient(30))
    assert (started.returncode, "Traceback" in err) == (130, False), err
    return err.splitlines()


def test_through_a_server_the_task_stays_with_it(shell: Shell) -> None:
    with served(shell) as server:
        shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
        said = interrupted(running(shell, "run", "Gentle"))
        assert said == [
            STOPPING,
            (
                f"Stopped waiting. The server at {server.url} keeps #1 (running); its workers"
                " continue it."
            ),
            "Follow it with: remit task watch 1",
            "Cancel it with: remit task cancel 1",
        ]
        assert events_of(shell, "1")[-1] == "RunStarted"
        del shell.env["REMIT_URL"]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(patient(30)) == 0


def test_through_a_server_without_a_worker_it_says_at_once_that_none_is_running(
    shell: Shell,
) -> None:
    alone = "No worker is running for it. Start one on the server's machine with: remit worker"
    shell.remit("task", "create", "Gentle", "--owner", "general")
    with served(shell, "--no-worker") as server:
        shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
        with interruptible():
            started = shell.started("task", "run", "1")
        assert started.stderr is not None
        shown = iter(started.stderr.readline, "")
        assert f"{alone}\n" in shown
        assert interrupted(started) == [
            STOPPING,
            f"Stopped waiting. The server at {server.url} keeps #1 (pending).",
            alone,
            "Cancel it with: remit task cancel 1",
        ]
        refused = shell.remit("run", "Other")
        assert refused.err.endswith(
            "error: No running worker works on task 2. The task waits until a worker runs it."
            " Start one on the server's machine with: remit worker\n"
        )
        del shell.env["REMIT_URL"]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(patient(30)) == 0


def test_a_server_that_stops_promises_no_worker(shell: Shell) -> None:
    with served(shell) as server:
        shell.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
        run = running(shell, "run", "Gentle")
        server.process.send_signal(signal.SIGTERM)
        assert run.stderr is not None
        lines = [line.rstrip("\n") for line in run.stderr if "· running" not in line]
        assert run.wait(patient(30)) == 7
        run.communicate()
        assert lines == [
            f"The server at {server.url} keeps #1. A worker continues it when one runs.",
            "Follow it there with: remit task watch 1",
            (
                "error: The server is stopping. Task 1 is kept; work continues when a worker runs."
                " Get the result from a server with: remit task result 1"
            ),
        ]
        assert server.process.wait(patient(30)) == 0


def test_the_second_one_quits_at_once(shell: Shell, tmp_path: Path) -> None:
    run = running(shell, "run", "Stubborn")
    assert run.stderr is not None
    # A run that was only claimed is given back without asking its runner.
    until((tmp_path / "begun").exists)
    run.send_signal(signal.SIGINT)
    assert run.stderr.readline() == f"{STOPPING}\n"
    until((tmp_path / "deaf").exists)
    run.send_signal(signal.SIGINT)
    assert (run.stderr.read().splitlines(), run.wait(patient(10))) == (
        [
            "Stopped. #1 is kept.",
            "If no other worker is running for it, continue it with: remit task run 1",
            "Cancel it with: remit task cancel 1",
        ],
        130,
    )
    run.communicate()
    shell.env["REMIT_RUNNER"] = "remit.testing:Scripted"
    continued = shell.remit("task", "run", "1")
    assert (continued.code, shell.remit("task", "show", "1", "--json").json["state"]) == (
        0,
        "done",
    ), continued
