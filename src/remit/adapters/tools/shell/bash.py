"""The Bash tool and its sandbox."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from remit.adapters.tools.call_deadline import Halted, Stop
from remit.adapters.tools.file_text import decode, whole_end, whole_start
from remit.adapters.tools.shell.processes import Command, Finished, Runner, Why
from remit.adapters.tools.shell.sandbox import ENVIRONMENT, sandbox_command
from remit.adapters.tools.shell.toolchains import Toolchains
from remit.adapters.tools.workspace_paths import Workspace
from remit.domain.agents.tools import MAX_OUTPUT, Bash, Signal, ToolOutcome
from remit.domain.text.counting import in_seconds
from remit.domain.text.truncation import beginning

PROBE_SECONDS = 5.0
NO_SANDBOX = (
    "Bash is not available: this machine has no sandbox ({why}). Ask the operator to"
    " install bubblewrap (`apt-get install bubblewrap`), or to allow commands without a sandbox in"
    " the settings (allow_unsandboxed, REMIT_ALLOW_UNSANDBOXED=true)."
)


_ENDINGS: Mapping[Why, str] = {
    "ended": "[Exit code {code}]",
    "timeout": (
        "[Stopped after {limit}, with all its processes. Set a longer timeout, in milliseconds.]"
    ),
    "canceled": "[Canceled, with all its processes.]",
    "flood": "[Stopped: too much output. Redirect it to a file or reduce it.]",
    "processes": "[Stopped: too many processes.]",
    "lost": "[Ended from outside before it finished; its effects are unknown.]",
}
"""The note on each way in which a command ends."""


class Sandbox(NamedTuple):
    """The sandbox of commands: the `bwrap` program, and whether it needs nested user namespaces."""

    bwrap: str | None
    nested: bool = False
    why_not: str = ""
    sure: bool = True
    """False if the probe was inconclusive: the machine was too busy, or another process ended it.
    """


class Shell:
    """Runs commands in the sandbox; without a sandbox only if the operator allows it."""

    def __init__(
        self,
        workspace: Workspace,
        runner: Runner,
        bwrap: str | None,
        *,
        allow_unsandboxed: bool,
        toolchains: Toolchains,
    ) -> None:
        self._workspace, self._runner = workspace, runner
        self._bwrap, self._allow = bwrap, allow_unsandboxed
        self._toolchains = toolchains
        self._sandbox: Sandbox | None = None

    async def bash(self, call: Bash, stop: Stop) -> ToolOutcome:
        """Run a command and return its output and how it ended."""
        if refusal := await self.refusal(stop.cancel):
            return ToolOutcome(refusal, is_error=True, denied=True)
        sandbox = await self.sandbox(stop.cancel)
        argv = [_program(), "-c", call.command]
        seconds = min(call.timeout / 1000, stop.left())
        env = self._toolchains.environment()
        if sandbox.bwrap:
            argv = sandbox_command(
                sandbox.bwrap,
                self._workspace.root,
                argv,
                env,
                nested=sandbox.nested,
                shown=await asyncio.to_thread(self._toolchains.shown),
                network=self._toolchains.network,
            )
        # A setuid bubblewrap cannot start with no_new_privileges; it drops its privileges itself.
        command = Command(
            argv, self._workspace.fd, env, seconds, no_new_privileges=not sandbox.bwrap
        )
        return _outcome(await self._runner.run(command, stop.cancel), seconds)

    async def refusal(self, cancel: Signal, *, in_doubt: bool = True) -> str:
        """Return why commands cannot run here; empty if they can.

        With `in_doubt=False`, an inconclusive probe of the sandbox is not a refusal.
        """
        if not sys.platform.startswith("linux"):
            return "Bash is not available: it needs Linux."
        if self._allow:
            return ""
        sandbox = await self.sandbox(cancel)
        if sandbox.bwrap or not (sandbox.sure or in_doubt):
            return ""
        return NO_SANDBOX.format(why=sandbox.why_not)

    async def sandbox(self, cancel: Signal) -> Sandbox:
        """Return the working sandbox, probed once; its `bwrap` is None if none works."""
        if self._sandbox is None:
            self._sandbox = await self._probe(cancel)
        return self._sandbox

    async def _probe(self, cancel: Signal) -> Sandbox:
        """Find out whether bubblewrap works here, without nested user namespaces or with them."""
        if not self._bwrap:
            return Sandbox(None, why_not="bubblewrap is not installed")
        if str(self._workspace.root) == "/":
            return Sandbox(None, why_not="the workspace is the whole machine")
        output, sure = "", True
        for nested in (False, True):
            done = await self._try_sandbox(self._bwrap, nested, cancel)
            if done.code == 0:
                return Sandbox(self._bwrap, nested)
            output = output or decode(done.head).strip()[:200]
            sure = sure and done.why == "ended"
        why_not = f"bubblewrap does not work: {output or 'it did not start'}"
        return Sandbox(None, why_not=why_not, sure=sure)

    async def _try_sandbox(self, bwrap: str, nested: bool, cancel: Signal) -> Finished:
        """Run an empty command in the sandbox."""
        root, folder = self._workspace.root, self._workspace.fd
        argv = sandbox_command(bwrap, root, ["/bin/sh", "-c", ":"], nested=nested)
        command = Command(argv, folder, ENVIRONMENT, PROBE_SECONDS, no_new_privileges=False)
        done = await self._runner.run(command, cancel)
        if done.why == "canceled":
            raise Halted("canceled")  # a canceled probe says nothing about the sandbox
        return done


def _program() -> str:
    if Path("/bin/bash").exists():
        return "/bin/bash"
    return "/bin/sh"


def _outcome(done: Finished, seconds: float) -> ToolOutcome:
    """Return the output of a command and how it ended."""
    head, tail = done.head, done.tail
    if done.left_out:
        head, tail = whole_end(head), whole_start(tail)
        left_out = done.left_out + len(done.head) - len(head) + len(done.tail) - len(tail)
        head += (
            f"\n[… {left_out:,} bytes left out. To see them, run the command again with its output"
            " in a file of the workspace, and Read that file …]\n"
        ).encode()
    output = beginning((decode(head) + decode(tail)).rstrip(), MAX_OUTPUT + 500)
    ending = _ending(done, seconds)
    text = "\n".join(filter(None, (output, ending))) or "(The command wrote nothing.)"
    return ToolOutcome(text, is_error=bool(ending), cut=done.left_out > 0)


def _ending(done: Finished, seconds: float) -> str:
    """Return a note on how a command ended; empty if it succeeded."""
    if done.why == "ended" and not done.code:
        return ""
    return _ENDINGS[done.why].format(code=done.code, limit=in_seconds(seconds))


def first_program(*names: str) -> str | None:
    """Return the full path of the first of these programs that is installed; None if none is."""
    from shutil import which

    installed = filter(None, map(which, names))
    return next(map(os.path.realpath, installed), None)
