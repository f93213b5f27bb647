"""Grep: by ripgrep where there is one, else by RE2, else for the text as it stands.

Never by Python's own engine: there are patterns that keep it busy for years, and they are short.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from remit.adapters.tools.glob import GlobPattern
from remit.adapters.tools.paths import HIDDEN, Workspace
from remit.adapters.tools.process import Command, Finished, Runner
from remit.adapters.tools.sandbox import ENVIRONMENT, sandboxed
from remit.adapters.tools.shell import Shell
from remit.adapters.tools.stop import Halted, Stop
from remit.adapters.tools.text import decoded, is_binary, shown
from remit.domain.tool import Grep, ToolOutcome, clip
from remit.errors import InvalidParam, invalid

MAX_COLUMNS = 500
MAX_LINES = 10_000
KEEP = 1_000_000
INSIDE = "/rg"
NARROWER = "Use a narrower pattern, path or glob, or head_limit."
TAKEN_LITERALLY = (
    "[The pattern was looked for as it stands and not as a regular expression: neither ripgrep nor google-re2 is installed here. "
    "Ask the operator to install one.]"
)

Test = Callable[[str], bool]


class Engine(NamedTuple):
    """How lines are tested where there is no ripgrep."""

    compile: Callable[[str, bool], Test]
    note: str = ""


class Search:
    """Searches the text of files."""

    def __init__(self, workspace: Workspace, runner: Runner, shell: Shell, rg: str | None, engine: Engine | None = None) -> None:
        self._workspace, self._runner, self._shell, self._rg = workspace, runner, shell, rg
        self._engine = engine

    async def grep(self, call: Grep, stop: Stop) -> ToolOutcome:
        """The lines that match, the files that have one, or how many."""
        if call.glob:
            GlobPattern(call.glob.removeprefix("!"), "glob")
        start, is_folder = await stop.in_thread(lambda: self._workspace.find(call.path, "path"))
        if self._rg:
            return await self._by_ripgrep(self._rg, call, start, stop)
        return await stop.in_thread(lambda: self._by_engine(call, start, stop, is_folder=is_folder))

    async def _by_ripgrep(self, rg: str, call: Grep, start: str, stop: Stop) -> ToolOutcome:
        """In the sandbox where there is one: ripgrep opens files by name, and a name can be swapped under it."""
        box = await self._shell.box(stop.cancel)
        argv = [rg, *ripgrep_words(call, start)]
        if box.bwrap:
            argv = sandboxed(box.bwrap, self._workspace.root, [INSIDE, *argv[1:]], writable=False, nested=box.nested, tools={INSIDE: rg})
        command = Command(argv, self._workspace.fd, ENVIRONMENT, stop.left(), not box.bwrap, KEEP, stop_when_full=True)
        done = await self._runner.run(command, stop.cancel)
        if done.why in ("canceled", "timeout"):
            raise Halted(done.why)
        # Only what it found has a NUL after the name of the file; what it complains about has not.
        if done.code == 2 and done.head.strip() and b"\0" not in done.head:
            raise invalid("pattern", f"cannot be used: {_complaint(done)}", "a regular expression without look-around or back references")
        if done.why != "flood" and done.code not in (0, 1, 2):
            return ToolOutcome(f"Grep failed: ripgrep ended with code {done.code}. {_complaint(done)}".rstrip(), is_error=True)
        lines = list(_parsed(done.head, call))
        if done.why == "flood" and call.output_mode == "content":
            lines = lines[:-1]  # the last was read in part
        return _answer(lines, call, more=done.why == "flood")

    def _by_engine(self, call: Grep, start: str, stop: Stop, *, is_folder: bool) -> ToolOutcome:
        engine = self._engine or best_engine()
        test = engine.compile(call.pattern, call.ignore_case)
        wanted = call.head_limit or MAX_LINES
        lines: list[str] = []
        for path in self._files(call, start, stop) if is_folder else [start]:
            stop.check()
            lines.extend(self._in_file(path, test, call))
            if len(lines) > wanted:
                break
        outcome = _answer(lines, call, more=False)
        return outcome._replace(text=f"{outcome.text}\n{engine.note}") if engine.note else outcome

    def _files(self, call: Grep, start: str, stop: Stop) -> Iterator[str]:
        unwanted = bool(call.glob and call.glob.startswith("!"))
        glob = GlobPattern(call.glob.removeprefix("!"), "glob") if call.glob else None
        prefix = "" if start == "." else f"{start}/"
        for path, entry in self._workspace.walk(start, lambda folder: folder.rpartition("/")[2] != ".git", stop.check):
            if entry.kind == "file" and (glob is None or glob.matches(prefix + path) != unwanted):
                yield prefix + path

    def _in_file(self, path: str, test: Test, call: Grep) -> list[str]:
        try:
            data = self._workspace.read(path, "path").data
        except InvalidParam:
            return []  # too large, or gone since its name was seen
        if is_binary(data):
            return []
        lines = decoded(data).removesuffix("\n").split("\n")
        hits = [index for index, line in enumerate(lines) if test(line)]
        if not hits:
            return []
        if call.output_mode != "content":
            return [shown(path) if call.output_mode == "files_with_matches" else f"{shown(path)}:{len(hits)}"]
        return list(_with_context(path, lines, hits, call))


def ripgrep_words(call: Grep, start: str) -> list[str]:
    """What ripgrep is told: no settings of anybody, links not followed, remit's own folder left out whatever the glob says."""
    modes = {
        "files_with_matches": ["--files-with-matches"],
        "count": ["--count"],
        "content": ["--line-number" if call.line_numbers else "--no-line-number"],
    }
    around = {"--after-context": call.after, "--before-context": call.before, "--context": call.around}
    return [
        *("--no-config", "--no-messages", "--no-ignore-global", "--no-ignore-parent", "--no-require-git", "--no-follow", "--hidden"),
        *("--color=never", "--no-heading", "--with-filename", "--null", "--sort=path", "--engine=default", "--no-mmap"),
        *(f"--max-columns={MAX_COLUMNS}", "--max-columns-preview", "--max-filesize=10M", "--regex-size-limit=10M", "--dfa-size-limit=10M"),
        *modes[call.output_mode],
        *(["--ignore-case"] if call.ignore_case else ["--case-sensitive"]),
        *(f"{word}={count}" for word, count in around.items() if count is not None and call.output_mode == "content"),
        *([f"--glob={call.glob}"] if call.glob else []),
        *("--iglob=!.git", f"--iglob=!{HIDDEN}"),
        *("--", call.pattern, f"./{start}" if start != "." else "./"),
    ]


def best_engine() -> Engine:
    """RE2 if it is installed, else no expressions at all."""
    try:
        re2 = import_module("re2")
    except ImportError:
        return LITERAL
    return Engine(partial(_by_re2, re2))


def _by_re2(re2: Any, pattern: str, ignore_case: bool) -> Test:
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else "it is no regular expression"
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise invalid("pattern", f"cannot be used: {text}", "a regular expression without look-around or back references") from None
    return lambda line: compiled.search(line) is not None


def _literally(pattern: str, ignore_case: bool) -> Test:
    if ignore_case:
        folded = pattern.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: pattern in line


LITERAL = Engine(_literally, TAKEN_LITERALLY)


def _parsed(output: bytes, call: Grep) -> Iterator[str]:
    if call.output_mode == "files_with_matches":
        yield from (_path(name) for name in output.split(b"\0") if name.strip())
        return
    for line in output.removesuffix(b"\n").split(b"\n") if output else ():
        name, separator, rest = line.partition(b"\0")
        if not separator:
            yield decoded(line)
        elif call.output_mode == "content" and not call.line_numbers:
            yield f"{_path(name)}:{decoded(rest)}"
        else:
            yield f"{_path(name)}:{decoded(rest)}".removesuffix("\r")


def _path(name: bytes) -> str:
    return shown(name.decode("utf-8", "surrogateescape").removeprefix("./"))


def _with_context(path: str, lines: list[str], hits: list[int], call: Grep) -> Iterator[str]:
    before, after = call.before or call.around or 0, call.after or call.around or 0
    hit = set(hits)
    wanted = sorted({near for index in hits for near in range(max(0, index - before), min(len(lines), index + after + 1))})
    last = -1
    for index in wanted:
        if (before or after) and last >= 0 and index != last + 1:
            yield "--"
        last = index
        line = lines[index].removesuffix("\r")
        text = line if len(line) <= MAX_COLUMNS else f"{line[:MAX_COLUMNS]} [the rest of a long line is left out]"
        mark = ":" if index in hit else "-"
        yield f"{shown(path)}:{f'{index + 1}{mark}' if call.line_numbers else ''}{text}"


def _answer(lines: list[str], call: Grep, *, more: bool) -> ToolOutcome:
    if not lines:
        return ToolOutcome(f"Nothing matches {call.pattern!r}.")
    wanted = call.head_limit or MAX_LINES
    if len(lines) <= wanted and not more:
        return clip("\n".join(lines), NARROWER)
    note = f"[The first {min(wanted, len(lines)):,} lines; there are more. {NARROWER}]"
    return clip("\n".join([*lines[:wanted], note]), NARROWER)._replace(cut=True)


def _complaint(done: Finished) -> str:
    return " ".join(decoded(done.head).split())[:300]
