"""`make test-slow` runs a command beside busy loops, and leaves none of them behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.busy import LOOP, LOOPS

from tests.patience import patient
from tests.toolbox import processes_with, until

ROOT = Path(__file__).parents[2]
SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def start(code: str) -> "subprocess.Popen[str]":
    """Start the script with a Python program as its command, in a process group of its own."""
    command = [sys.executable, "-m", "scripts.busy", sys.executable, "-c", code]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def loops_of(process: "subprocess.Popen[str]") -> list[int]:
    """Return the loops that were started by this process."""
    return processes_with(f"{LOOP}\0{process.pid}\0")


async def test_the_command_runs_beside_the_loops_and_its_exit_code_is_kept() -> None:
    with start("import sys; sys.exit(int(input()))") as process:
        assert await until(lambda: len(loops_of(process)) == LOOPS)
        said, _ = await asyncio.to_thread(process.communicate, "7\n", patient(60))
        assert process.returncode == 7
        assert said.startswith(f"{LOOPS} busy loops run beside: ")
        assert f"The {LOOPS} busy loops have ended" in said
        assert loops_of(process) == []


@pytest.mark.parametrize(
    ("stop", "number"),
    [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM), (os.kill, signal.SIGKILL)],
)
async def test_no_loop_is_left_when_it_is_stopped(
    stop: Callable[[int, int], None], number: int
) -> None:
    """Ctrl-C reaches the whole group.

    SIGKILL only the script, so that the loops must notice that it is gone.
    """
    with start(SLEEP) as process:
        assert process.stdout is not None
        assert "busy loops run beside" in await asyncio.to_thread(process.stdout.readline)
        command = int(await asyncio.to_thread(process.stdout.readline))
        assert len(loops_of(process)) == LOOPS
        stop(process.pid, number)
        assert await asyncio.to_thread(process.wait, patient(60)) != 0
        assert await until(lambda: not loops_of(process))
        if number == signal.SIGKILL:
            os.kill(command, signal.SIGKILL)
