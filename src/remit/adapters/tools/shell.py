"""Bash, and where it may run."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from remit.adapters.tools.paths import Workspace
from remit.adapters.tools.process import Command, Finished, Runner
from remit.adapters.tools.sandbox import ENVIRONMENT, sandboxed
from remit.adapters.tools.stop import Halted, Stop
from remit.adapters.tools.text import decoded
from remit.adapters.tools.toolchains import Toolchains
from remit.domain.counting import in_seconds
from remit.domain.tool import MAX_OUTPUT, Bash, Signal, ToolOutcome

PROBE_SECONDS = 5.0
NO_SANDBOX = (
    "Bash is refused: there is no sandbox for it on this machine ({why}). "
    "Ask the operator to install bubblewrap (`apt-get install bubblewrap`), or to allow commands without a sandbox in the settings "
    "(allow_unsandboxed, REMIT_ALLOW_UNSANDBOXED=true)."
)


class Box(NamedTuple):
    """Where commands run: the program that makes namespaces, and whether it must be allowed to make more inside."""

    bwrap: str | None
    nested: bool = False
    why_not: str = ""
    sure: bool = True
    """False if it could not be tried out: the machine was too busy, or the trial was ended from outside."""


class Shell:
    """Runs commands in the sandbox; without one only if the operator has said so."""

    def __init__(
        self,
        workspace: Workspace,
        runner: Runner,
        bwrap: str | None,
        *,
        allow_unsandboxed: bool,
        toolchains: Toolchains,
    ) -> None:
        self._workspace, self._runner, self._bwrap, self._allow = workspace, runner, bwrap, allow_unsandboxed
        self._toolchains = toolchains
        self._box: Box | None = None

    async def bash(self, call: Bash, stop: Stop) -> ToolOutcome:
        """What a command wrote, and how it ended."""
        if refusal := await self.refusal(stop.cancel):
            return ToolOutcome(refusal, is_error=True, denied=True)
        box = await self.box(stop.cancel)
        argv = [_program(), "-c", call.command]
        seconds = min(call.timeout / 1000, stop.left())
        env = self._toolchains.environment()
        if box.bwrap:
            argv = sandboxed(
                box.bwrap,
                self._workspace.root,
                argv,
                env,
                nested=box.nested,
                readable=self._toolchains.folders,
                masked=self._toolchains.masked(),
                network=self._toolchains.network,
            )
        # A bubblewrap that is installed setuid could not start without privileges; it drops them itself.
        command = Command(argv, self._workspace.fd, env, seconds, no_new_privileges=not box.bwrap)
        return _outcome(await self._runner.run(command, stop.cancel), seconds)

    async def refusal(self, cancel: Signal, *, in_doubt: bool = True) -> str:
        """Why no command may run here; nothing if commands may. Also, unless `in_doubt` is off, where the sandbox could not be tried out."""
        if not sys.platform.startswith("linux"):
            return "Bash is refused: it is only there on Linux."
        if self._allow:
            return ""
        box = await self.box(cancel)
        return "" if box.bwrap or not (box.sure or in_doubt) else NO_SANDBOX.format(why=box.why_not)

    async def box(self, cancel: Signal) -> Box:
        """The sandbox that works here, tried once; one that is installed and does not work is none."""
        if self._box is None:
            self._box = await self._tried(cancel)
        return self._box

    async def _tried(self, cancel: Signal) -> Box:
        if not self._bwrap:
            return Box(None, why_not="bubblewrap is not installed")
        if str(self._workspace.root) == "/":
            return Box(None, why_not="the workspace is the whole machine")
        said, sure = "", True
        for nested in (False, True):
            argv = sandboxed(self._bwrap, self._workspace.root, ["/bin/sh", "-c", ":"], nested=nested)
            done = await self._runner.run(Command(argv, self._workspace.fd, ENVIRONMENT, PROBE_SECONDS, no_new_privileges=False), cancel)
            if done.why == "canceled":
                raise Halted("canceled")  # it says nothing about the sandbox
            if done.code == 0:
                return Box(self._bwrap, nested)
            said, sure = said or decoded(done.head).strip()[:200], sure and done.why == "ended"
        return Box(None, why_not=f"bubblewrap does not work: {said or 'it did not start'}", sure=sure)


def _program() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _outcome(done: Finished, seconds: float) -> ToolOutcome:
    output = decoded(done.head)
    if done.left_out:
        output += f"\n[… {done.left_out:,} bytes left out; send long output to a file in the workspace and read that …]\n"
    output = (output + decoded(done.tail)).rstrip()[: MAX_OUTPUT + 500]
    said = _ending(done, seconds)
    text = "\n".join(part for part in (output, said) if part)
    return ToolOutcome(text or "(The command wrote nothing.)", is_error=bool(said), cut=done.left_out > 0)


def _ending(done: Finished, seconds: float) -> str:
    match done.why:
        case "ended":
            return f"[Exit code {done.code}]" if done.code else ""
        case "timeout":
            return f"[Stopped after {in_seconds(seconds)}, with everything it had started. A longer timeout can be given, in milliseconds.]"
        case "canceled":
            return "[Canceled; everything it had started was ended.]"
        case "flood":
            return "[Stopped because it wrote too much. Send its output to a file, or make it say less.]"
        case "processes":
            return "[Stopped because it started too many processes.]"
        case "lost":
            return "[It was ended from outside before it was done; whether it took effect is not known.]"


def first_program(*names: str) -> str | None:
    """The full path of the first of these that is installed."""
    from shutil import which

    return next((os.path.realpath(found) for name in names if (found := which(name))), None)
