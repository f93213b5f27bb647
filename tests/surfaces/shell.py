"""The real `remit` command in real processes."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.patience import patient
from tests.people import desk
from tests.surfaces.cli_host import Said
from tests.surfaces.forked import FORKERS, can_fork


class Shell:
    """A folder in which commands are typed."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
        self.env = clean | {"HOME": str(folder / "home"), "NO_COLOR": "1"} | variables

    def remit(self, *arguments: str) -> Said:
        if can_fork(self.env):
            return Said(*FORKERS.run(arguments, self.folder, self.env, patient(60)))
        command = [sys.executable, "-m", "remit", *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def started(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "remit", *arguments]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def interruptible() -> Iterator[None]:
    """Whoever is started meanwhile listens to Ctrl-C, also where the tests themselves were
    started in the background and do not.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Served(NamedTuple):
    """A running `remit serve`."""

    url: str
    process: "subprocess.Popen[str]"
    token: str


@contextmanager
def served(shell: Shell, *arguments: str) -> Iterator[Served]:
    """A running `remit serve`, which is killed at the end if it is still there.

    It must not have complained.
    """
    token = shell.remit("token", "show").out.strip()
    with interruptible():
        child = shell.started("serve", "--port", "0", *arguments)
    assert child.stderr is not None
    lines = iter(child.stderr.readline, "")  # tasks that were left are logged before the address
    found = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in lines)))
    try:
        yield Served(found[0], child, token)
    finally:
        child.kill()
        _, rest = child.communicate(timeout=patient(20))
    assert "Traceback" not in rest, rest
    assert child.returncode not in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)


@contextmanager
def serving(shell: Shell) -> Iterator[str]:
    """The URL of a running `remit serve`, which must end well when it is told to."""
    with served(shell) as server:
        yield server.url
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(patient(20)) == 0


def until(what: Callable[[], bool]) -> None:
    """Wait for another process."""
    deadline = time.monotonic() + patient(30)
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def events_of(shell: Shell, task_id: str) -> list[str]:
    """The names of a task's events.

    Asked of the store, since many looks would be many processes.
    """

    async def look() -> list[str]:
        async with desk(shell.env["REMIT_DATABASE_URL"]) as at:
            return await at.events(task_id)

    return asyncio.run(look())
