"""A workspace with tools, and what of the machine they can use."""

import asyncio
import subprocess
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Any

from remit.adapters.tools import WorkspaceTools
from remit.adapters.tools.shell.bash import first_program
from remit.domain.agents.tools import ToolCallRequest, ToolOutcome
from tests.patience import patient

ALL = frozenset({"LS", "Glob", "Grep", "Read", "Write", "Edit", "MultiEdit", "Bash"})
RG = first_program("rg")


def working_bwrap() -> str | None:
    """Bubblewrap, if it is installed and this machine lets it work."""
    bwrap = first_program("bwrap")
    if (
        bwrap
        and subprocess.run(
            [bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    ):
        return bwrap
    return None


BWRAP = working_bwrap()
BOXES = ["unsandboxed", *(["sandboxed"] if BWRAP else [])]
"""Where commands are tried; that they are refused where neither is there is tested everywhere."""


class Toolbox:
    """Calls tools as a run would."""

    def __init__(self, workspace: Path, *, box: str = "none", rg: str | None = None) -> None:
        self.workspace = workspace
        self.cancel = asyncio.Event()
        bwrap = BWRAP if box == "sandboxed" else None
        self.host = WorkspaceTools(
            workspace,
            allow_unsandboxed=box == "unsandboxed",
            bwrap=bwrap,
            rg=rg,
            find_programs=False,
        )

    async def __call__(
        self,
        tool: str,
        *,
        granted: frozenset[str] = ALL,
        seconds: float | None = None,
        **arguments: Any,
    ) -> ToolOutcome:
        return await self.host.call(
            ToolCallRequest(
                tool, arguments, granted, patient(30) if seconds is None else seconds, self.cancel
            )
        )

    async def said(self, tool: str, **arguments: Any) -> str:
        """The outcome of a call that succeeds."""
        outcome = await self(tool, **arguments)
        assert not outcome.is_error, outcome.text
        return outcome.text

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The error of a call that is refused."""
        outcome = await self(tool, **arguments)
        assert outcome.is_error, outcome.text
        return outcome.text


def processes_with(marker: str) -> list[int]:
    """Processes that have a text in their command line and are not dead."""
    return [pid for pid in _pids() if marker.encode() in _read(pid, "cmdline") and _alive(pid)]


def processes_in(folder: Path) -> list[int]:
    """Processes that work in a folder."""
    return [pid for pid in _pids() if _folder(pid).startswith(str(folder))]


async def until(what: Any, seconds: float = 20) -> bool:
    """Wait for a condition; return whether it came true in time."""
    end = monotonic() + patient(seconds)
    while not what():
        if monotonic() > end:
            return False
        await asyncio.sleep(0.005)
    return True


def _pids() -> Iterable[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _alive(pid: int) -> bool:
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])


def _folder(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""
