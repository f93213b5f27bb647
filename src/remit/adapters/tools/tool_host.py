"""The tools of one run: make granted calls and report failures to the model."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remit.adapters.tools.call_deadline import Halted, Stop
from remit.adapters.tools.file_tools import Files
from remit.adapters.tools.search.grep import Search
from remit.adapters.tools.shell.bash import Shell, first_program
from remit.adapters.tools.shell.processes import Runner
from remit.adapters.tools.shell.toolchains import NONE, Toolchains
from remit.adapters.tools.workspace_paths import NotThere, PathDenied, Workspace
from remit.domain.agents import tools as t
from remit.domain.agents.media import SUFFIXES
from remit.domain.agents.tools import ToolCallRequest, ToolOutcome, ToolSpec
from remit.domain.outputs.required_outputs import FileFinding, FileQuery
from remit.domain.records.json_schema import model_schema
from remit.domain.records.record import summary
from remit.domain.records.validate import describe, error_for_model, parse
from remit.domain.text.counting import in_seconds
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
    """Appended to the description of the tool."""

    @property
    def spec(self) -> ToolSpec:
        name = self.kind.__name__
        description = f"{summary(self.kind)}{self.remark}"
        return ToolSpec(name, description, model_schema(self.kind), self.effects, self.repeatable)


class WorkspaceTools:
    """Tools for a folder on this machine; close it after use."""

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
        """Locate `bwrap` and `rg` if they are not given, unless `find_programs` is False."""
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
            _Tool(t.LS, _in_thread(files.ls)),
            _Tool(t.Glob, _in_thread(files.glob), SEARCH_SECONDS),
            _Tool(t.Grep, search.grep, SEARCH_SECONDS),
            _Tool(t.Read, _in_thread(files.read)),
            _Tool(t.Write, _in_thread(files.write), effects=True),
            _Tool(t.Edit, _in_thread(files.edit), effects=True, repeatable=False),
            _Tool(t.MultiEdit, _in_thread(files.multi_edit), effects=True, repeatable=False),
            _Tool(
                t.Bash, shell.bash, SHELL_SECONDS, effects=True, repeatable=False, remark=network
            ),
        )
        self._tools = {tool.spec.name: tool for tool in tools}

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return every tool, granted or not."""
        return tuple(tool.spec for tool in self._tools.values())

    async def refusal(self, tools: frozenset[str]) -> str:
        """Return why one of these tools cannot be used on this machine.

        Empty if all can be used, or if only a call can show it.
        """
        if "Bash" not in tools:
            return ""
        return await self._shell.refusal(asyncio.Event(), in_doubt=False)

    async def call(self, call: ToolCallRequest) -> ToolOutcome:
        """Make one call, if it is granted; every failure becomes an outcome for the model.

        No work continues after the return.
        """
        tool = self._tools.get(call.tool)
        if tool is None or call.tool not in call.granted:
            return self._refuse(call)
        stop = Stop(min(tool.seconds, call.deadline_seconds), call.cancel)
        try:
            stop.check()
            request = parse(tool.kind, t.without_blanks(call.arguments, tool.spec.parameters))
            if isinstance(request, t.Read) and Path(request.file_path).suffix.lower() in SUFFIXES:
                return await self._read_media(request.file_path, stop, takes_media=call.takes_media)
            return await tool.do(request, stop)
        except PathDenied as refused:
            return _error(str(refused))._replace(denied=True)
        except InvalidParam as refused:
            shown = tool.spec.parameters["properties"]
            return _error(error_for_model(refused, call.tool, shown))
        except RemitError as refused:
            return _error(str(refused))
        except Halted as halted:
            return _error(_halt_message(call.tool, halted, stop))
        except OSError as failed:  # for example a full disk: the model cannot fix it but must know
            return _error(f"{call.tool} failed: {_reason(failed)}.")

    def _refuse(self, call: ToolCallRequest) -> ToolOutcome:
        """Return the answer to a call of a tool that is not granted."""
        granted = [name for name in self._tools if name in call.granted]
        offered = ", ".join([*granted, *call.operations]) or "none"
        refusal = f"{call.tool[:60]!r} is not a tool that this task may use. It may use: {offered}."
        return _error(refusal)._replace(denied=True)

    async def _read_media(self, path: str, stop: Stop, *, takes_media: bool) -> ToolOutcome:
        return await stop.in_thread(lambda: self._files.read_media(path, takes_media=takes_media))

    async def look_for(self, files: Sequence[FileQuery]) -> Mapping[FileQuery, FileFinding]:
        """Check files the way the tools read them.

        Files that are not reached within the time limit count as not checked.
        """
        stop = Stop(SEARCH_SECONDS, asyncio.Event())
        return await stop.in_thread(
            lambda: {wanted: self._check_file(wanted, stop) for wanted in files}
        )

    def _check_file(self, wanted: FileQuery, stop: Stop) -> FileFinding:
        """Look for one file; a failure becomes a finding."""
        try:
            stop.check()
            return self._inspect(wanted)
        except InvalidParam as refused:
            problem = str(refused.details["fields"][0]["problem"])
            why = problem.removeprefix(f"{describe(wanted.path)} ")
            if isinstance(refused, NotThere):
                return FileFinding(False, why)
            return FileFinding(None, why)
        except Halted:
            return FileFinding(None, f"could not be checked within {in_seconds(stop.seconds)}")
        except OSError as failed:
            return FileFinding(None, f"cannot be read ({_reason(failed)})")

    def _inspect(self, wanted: FileQuery) -> FileFinding:
        """Look for a file, and for a text in it."""
        if wanted.text is None:
            _, is_folder = self._workspace.find(wanted.path, "path")
            if is_folder:
                return FileFinding(False, "is a folder")
            return FileFinding(True)
        if wanted.text.encode() in self._workspace.read(wanted.path, "path").data:
            return FileFinding(True)
        return FileFinding(False, f"does not contain {describe(wanted.text)}")

    async def fingerprint(self) -> str | None:
        """Return one hash of all files that the tools can read; None if there are too many to read
        in time.
        """
        stop = Stop(SEARCH_SECONDS, asyncio.Event())
        try:
            return await stop.in_thread(lambda: self._workspace.fingerprint(stop.check))
        except Halted:
            return None

    async def close(self) -> None:
        """Stop running commands and close the workspace."""
        try:
            await self._runner.close()
        finally:
            self._workspace.close()


def _in_thread(work: Callable[[Any, Stop], ToolOutcome]) -> Do:
    return lambda call, stop: stop.in_thread(lambda: work(call, stop))


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _error(text: str) -> ToolOutcome:
    return ToolOutcome(text, is_error=True)


def _halt_message(tool: str, halted: Halted, stop: Stop) -> str:
    if halted.why == "canceled":
        return f"{tool} was canceled before it finished."
    return (
        f"{tool} was stopped after {in_seconds(stop.seconds)}, before it finished."
        " Use a narrower path or pattern."
    )
