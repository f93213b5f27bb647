"""Worker processes that tests start, and processes that agents start."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.crash.process import environment
from tests.patience import patient


@asynccontextmanager
async def worker(
    folder: Path, url: str, endpoint: str, *, heartbeat: float | None = None, concurrency: int = 6
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real worker process."""
    env = environment() | {
        "REMIT_DATABASE_URL": url,
        "REMIT_HEARTBEAT_SECONDS": str(heartbeat or patient(1)),
        "REMIT_CONCURRENCY": str(concurrency),
        "REMIT_ALLOW_UNSANDBOXED": "true",
        "HOME": str(folder),
        "LLM_MODEL_ID": "scripted",
        "LLM_API_KEY": "none",
        "LLM_BASE_URL": f"{endpoint}/v1",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "remit", "worker", "--workspace", str(folder), env=env, cwd=folder
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


@asynccontextmanager
async def fragile(
    folder: Path, url: str, endpoint: str, deadly: Sequence[str]
) -> AsyncIterator[None]:
    """Workers that die one after the other, each when it has stored such an event."""
    settings = {
        "REMIT_DATABASE_URL": url,
        "REMIT_WORKSPACE": str(folder),
        "REMIT_HEARTBEAT_SECONDS": "600",
        "HOME": str(folder),
    }
    model = {"LLM_MODEL_ID": "scripted", "LLM_API_KEY": "none", "LLM_BASE_URL": f"{endpoint}/v1"}
    program = (sys.executable, "-m", "tests.agents.fragile", *deadly)
    process = await asyncio.create_subprocess_exec(
        *program, env=environment() | settings | model, cwd=folder, start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def sleepers(command: str) -> list[str]:
    """Processes that carry out a command."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if command in (process / "cmdline").read_text():
                found.append(process.name)
    return found
