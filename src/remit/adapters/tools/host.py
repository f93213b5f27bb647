"""The tools of one run: what is granted is done, and whatever goes wrong is said to the model."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remit.adapters.tools.files import Files
from remit.adapters.tools.paths import NotThere, PathDenied, Workspace
from remit.adapters.tools.process import Runner
from remit.adapters.tools.search import Search
from remit.adapters.tools.shell import Shell, first_program
from remit.adapters.tools.stop import Halted, Stop
from remit.adapters.tools.toolchains import NONE, Toolchains
from remit.domain import tool as t
from remit.domain.counting import in_seconds
from remit.domain.media import SUFFIXES
from remit.domain.output import Seen, Sought
from remit.domain.schema import model_schema
from remit.domain.shape import describe, parse
from remit.domain.tool import ToolCallRequest, ToolOutcome, ToolSpec
from remit.errors import InvalidParam, RemitError

FILE_SECONDS = 10.0
SEARCH_SECONDS = 20.0
SHELL_SECONDS = t.MAX_TIMEOUT_MS / 1000

NO_NETWORK = " It has no network."

Do = Callable[[Any, Stop], Awaitable[ToolOutcome]]


class _Tool(NamedTuple):
    kind: Any
    do: Do
    seconds: float = FILE_SECONDS
    effects: bool = False
    repeatable: bool = True
    remark: str = ""
    """What is added to its description here."""

    @property
    def spec(self) -> ToolSpec:
        name = self.kind.__name__
        description = f"{self.kind.__doc__}{self.remark}"
        return ToolSpec(name, description, model_schema(self.kind), self.effects, self.repeatable)


class WorkspaceTools:
    """Tools on a folder of this machine; must be closed."""

    def __init__(
        self,
        workspace: Path,
        *,
        allow_unsandboxed: bool = False,
        bwrap: str | None = None,
        rg: str | None = None,
        find_programs: bool = True,
        toolchains: Toolchains = NONE,
    ) -> None:
        """Programs that are not given are looked for, unless `find_programs` is off."""
        if find_programs:
            bwrap, rg = bwrap or first_program("bwrap"), rg or first_program("rg")
        self._workspace = Workspace(workspace)
        self._runner = Runner()
        self._files = files = Files(self._workspace)
        shell = Shell(
            self._workspace,
            self._runner,
            bwrap,
            allow_unsandboxed=allow_unsandboxed,
            toolchains=toolchains,
        )
        self._shell = shell
        network = "" if toolchains.network or allow_unsandboxed else NO_NETWORK
        search = Search(self._workspace, self._runner, shell, rg)
        tools = (
            _Tool(t.LS, _blocking(files.ls)),
            _Tool(t.Glob, _blocking(files.glob), SEARCH_SECONDS),
            _Tool(t.Grep, search.grep, SEARCH_SECONDS),
            _Tool(t.Read, _blocking(files.read)),
            _Tool(t.Write, _blocking(files.write), effects=True),
            _Tool(t.Edit, _blocking(files.edit), effects=True, repeatable=False),
            _Tool(t.MultiEdit, _blocking(files.multi_edit), effects=True, repeatable=False),
            _Tool(t.Bash, shell.bash, SHELL_SECONDS, effects=True, repeatable=False, remark=network),
        )
        self._tools = {tool.spec.name: tool for tool in tools}

    def specs(self) -> tuple[ToolSpec, ...]:
        """Every tool there is, granted or not."""
        return tuple(tool.spec for tool in self._tools.values())

    async def refusal(self, tools: frozenset[str]) -> str:
        """Why one of these cannot be used on this machine; nothing if all can, or if that is only seen when one is used."""
        return await self._shell.refusal(asyncio.Event(), in_doubt=False) if "Bash" in tools else ""

    async def call(self, call: ToolCallRequest) -> ToolOutcome:
        """Do one call, if it is granted; whatever goes wrong is an outcome for the model. Nothing of it runs on afterwards."""
        tool = self._tools.get(call.tool)
        if tool is None or call.tool not in call.granted:
            offered = ", ".join([*(name for name in self._tools if name in call.granted), *call.operations]) or "none"
            refusal = f"{call.tool[:60]!r} is not a tool that this task may use. It may use: {offered}."
            return ToolOutcome(refusal, is_error=True, denied=True)
        stop = Stop(min(tool.seconds, call.deadline_seconds), call.cancel)
        try:
            stop.check()
            request = parse(tool.kind, call.arguments)
            if isinstance(request, t.Read) and Path(request.file_path).suffix.lower() in SUFFIXES:
                return await self._read_media(request.file_path, stop, takes_media=call.takes_media)
            return await tool.do(request, stop)
        except PathDenied as refused:
            return _error(str(refused))._replace(denied=True)
        except RemitError as refused:
            return _error(str(refused))
        except Halted as halted:
            return _error(_halted(call.tool, halted, stop))
        except OSError as failed:  # a full disk and the like: the model cannot mend it, but must know
            return _error(f"{call.tool} failed: {failed.strerror or type(failed).__name__}.")

    async def _read_media(self, path: str, stop: Stop, *, takes_media: bool) -> ToolOutcome:
        return await stop.in_thread(lambda: self._files.read_media(path, takes_media=takes_media))

    async def look_for(self, files: Sequence[Sought]) -> Mapping[Sought, Seen]:
        """What is seen of these, as the tools read files; after a while the rest is not looked at any more."""
        stop = Stop(SEARCH_SECONDS, asyncio.Event())
        return await stop.in_thread(lambda: {wanted: self._seen(wanted, stop) for wanted in files})

    def _seen(self, wanted: Sought, stop: Stop) -> Seen:
        try:
            stop.check()
            return self._found(wanted)
        except InvalidParam as refused:
            problem = str(refused.details["fields"][0]["problem"])
            return Seen(False if isinstance(refused, NotThere) else None, problem.removeprefix(f"{describe(wanted.path)} "))
        except Halted:
            return Seen(None, f"could not be looked at within {in_seconds(stop.seconds)}")
        except OSError as failed:
            return Seen(None, f"cannot be read ({failed.strerror or type(failed).__name__})")

    def _found(self, wanted: Sought) -> Seen:
        if wanted.text is None:
            return Seen(False, "is a folder") if self._workspace.find(wanted.path, "path")[1] else Seen(True)
        if wanted.text.encode() in self._workspace.read(wanted.path, "path").data:
            return Seen(True)
        return Seen(False, f"does not contain {describe(wanted.text)}")

    async def fingerprint(self) -> str | None:
        """All files that the tools can see, in one word; nothing if they are too many to look at in time."""
        stop = Stop(SEARCH_SECONDS, asyncio.Event())
        try:
            return await stop.in_thread(lambda: self._workspace.fingerprint(stop.check))
        except Halted:
            return None

    async def close(self) -> None:
        """Let go of the workspace."""
        try:
            await self._runner.close()
        finally:
            self._workspace.close()


def _blocking(work: Callable[[Any, Stop], ToolOutcome]) -> Do:
    return lambda call, stop: stop.in_thread(lambda: work(call, stop))


def _error(text: str) -> ToolOutcome:
    return ToolOutcome(text, is_error=True)


def _halted(tool: str, halted: Halted, stop: Stop) -> str:
    if halted.why == "canceled":
        return f"{tool} was canceled before it was done."
    return f"{tool} was stopped after {in_seconds(stop.seconds)}, before it was done. Use a narrower path or pattern."
