"""Grep: RE2 decides what matches; ripgrep, if installed, preselects the files.

Python's `re` is not used: short patterns can make it run for years.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from remit.adapters.tools.call_deadline import Halted, Stop
from remit.adapters.tools.file_text import decode, is_binary, printable
from remit.adapters.tools.search.file_types import globs_of
from remit.adapters.tools.search.gitignore_rules import IgnoreRules
from remit.adapters.tools.search.path_glob import GlobPattern
from remit.adapters.tools.search.regex import Expression
from remit.adapters.tools.shell.bash import Shell
from remit.adapters.tools.shell.processes import Command, Finished, Runner
from remit.adapters.tools.shell.sandbox import ENVIRONMENT, sandbox_command
from remit.adapters.tools.workspace_paths import HIDDEN, MAX_FILE, Entry, Workspace
from remit.domain.agents.tools import Grep, ToolOutcome, clip
from remit.domain.text.counting import counted
from remit.domain.text.truncation import beginning
from remit.errors import InvalidParam, invalid

MAX_COLUMNS = 500
MAX_LINES = 10_000
KEEP = 4_000_000
INSIDE = "/rg"
NOT_SEARCHED = frozenset({".git", HIDDEN})
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NARROWER = "Use a narrower pattern, path, glob or type, or head_limit."
MAX_NAMED = 3
"""The number of unsearched files that a note names."""
HOW_TO_SEARCH = "If you have Bash, search one with: grep -aE -e PATTERN FILE"
ONE_LINE = "[Lines are searched one at a time. Set multiline to find text that spans lines.]"


class Search:
    """Searches the text of files."""

    def __init__(self, workspace: Workspace, runner: Runner, shell: Shell, rg: str | None) -> None:
        self._workspace, self._runner, self._shell, self._rg = workspace, runner, shell, rg

    async def grep(self, call: Grep, stop: Stop) -> ToolOutcome:
        """Return the matching lines, the files that have one, or the count for each file."""
        wanted = _FileFilter(call)
        expression = Expression(call.pattern, call.ignore_case, call.multiline)
        start, is_folder = await stop.in_thread(lambda: self._workspace.find(call.path, "path"))
        listed: _FileList | None = None
        if is_folder and self._rg and expression.for_ripgrep is not None:
            arguments = ripgrep_arguments(expression, wanted.names, start)
            listed = await self._list_files(self._rg, arguments, stop)

        def search() -> ToolOutcome:
            skipped = _Skipped()
            if not is_folder:
                self._must_be_text(start)
                lines = self._lines([start], expression, call, stop, skipped)
                return _outcome(call, lines, more=False)
            found = self._candidates(start, wanted, listed, stop)
            lines = self._lines(found, expression, call, stop, skipped)
            skipped.large += self._large(start, wanted, stop)
            is_cut = listed is not None and not listed.complete
            return skipped.add_note(_outcome(call, lines, more=is_cut))

        return await stop.in_thread(search)

    def _must_be_text(self, path: str) -> None:
        """Refuse a binary file: finding no match in it would be misleading."""
        data = self._workspace.read(path, "path").data
        if is_binary(data):
            found = f"{printable(path)[:60]!r} is a binary file of {len(data):,} bytes"
            raise invalid("path", found, "a text file or a folder")

    async def _list_files(self, rg: str, arguments: list[str], stop: Stop) -> "_FileList | None":
        """List the files that ripgrep preselects; None if it fails.

        It runs in the sandbox, if there is one, because it opens files by name and a name can be
        swapped.
        """
        sandbox = await self._shell.sandbox(stop.cancel)
        argv = [rg, *arguments]
        if sandbox.bwrap:
            argv = sandbox_command(
                sandbox.bwrap,
                self._workspace.root,
                [INSIDE, *arguments],
                writable=False,
                nested=sandbox.nested,
                tools={INSIDE: rg},
            )
        command = Command(
            argv,
            self._workspace.fd,
            ENVIRONMENT,
            stop.left(),
            no_new_privileges=not sandbox.bwrap,
            keep=KEEP,
            stop_when_full=True,
        )
        done = await self._runner.run(command, stop.cancel)
        if done.why in ("canceled", "timeout"):
            raise Halted(done.why)
        return _read_list(done)

    def _candidates(
        self,
        start: str,
        wanted: "_FileFilter",
        listed: "_FileList | None",
        stop: Stop,
    ) -> Iterator[str]:
        """Yield the files below a folder to search, in order."""
        if listed is None:
            yield from self._walk(start, wanted, stop, _is_small)
            return
        ignored = IgnoreRules(self._workspace, start)
        for path in listed.paths:
            if wanted.takes(path) and not ignored.leaves_out_file(path):
                yield path

    def _large(self, start: str, wanted: "_FileFilter", stop: Stop) -> list[str]:
        """List the files below a folder that are too large to search."""
        return list(self._walk(start, wanted, stop, lambda entry: not _is_small(entry)))

    def _walk(
        self,
        start: str,
        wanted: "_FileFilter",
        stop: Stop,
        chosen: Callable[[Entry], bool],
    ) -> Iterator[str]:
        """Yield the files below a folder that the call and `chosen` accept, in order."""
        ignored = IgnoreRules(self._workspace, start)
        prefix = "" if start == "." else f"{start}/"

        def enter(folder: str) -> bool:
            if folder.rpartition("/")[2].casefold() in NOT_SEARCHED:
                return False
            return not ignored.leaves_out(prefix + folder, is_folder=True)

        for inner, entry in self._workspace.walk(start, enter, stop.check):
            if not _is_searched(entry) or not chosen(entry):
                continue
            path = prefix + inner
            if wanted.takes(path) and not ignored.leaves_out(path, is_folder=False):
                yield path

    def _lines(
        self,
        paths: Iterable[str],
        expression: Expression,
        call: Grep,
        stop: Stop,
        skipped: "_Skipped",
    ) -> list[str]:
        """Return the lines up to the limit, and at least one more if there are more."""
        most = call.head_limit or MAX_LINES
        lines: list[str] = []
        for path in paths:
            stop.check()
            lines.extend(self._in_file(path, expression, call, stop, skipped))
            if len(lines) > most:
                break
        return lines

    def _in_file(
        self,
        path: str,
        expression: Expression,
        call: Grep,
        stop: Stop,
        skipped: "_Skipped",
    ) -> Iterator[str]:
        """Yield the lines of the result for one file."""
        try:
            data = self._workspace.read(path, "path").data.removeprefix(BYTE_ORDER_MARK)
        except InvalidParam:
            return  # too large, or removed after it was listed
        if not expression.occurs_in(data):
            return
        if call.multiline and call.output_mode == "files_with_matches" and not is_binary(data):
            if next(expression.spans(data), None) is not None:
                yield printable(path)
            return
        lines = expression.lines_of(data)
        hits, count = _find_hits(expression, data, lines, stop)
        if not hits:
            return
        if is_binary(data):
            skipped.binary.append(path)
            return
        match call.output_mode:
            case "files_with_matches":
                yield printable(path)
            case "count":
                yield f"{printable(path)}:{count}"
            case "content":
                yield from _with_context(path, lines, hits, call)


class _FileList(NamedTuple):
    paths: list[str]
    complete: bool


class _Skipped:
    """Files that a folder search left out although they could match."""

    def __init__(self) -> None:
        self.binary: list[str] = []
        self.large: list[str] = []

    def add_note(self, answer: ToolOutcome) -> ToolOutcome:
        """Append a note about these files, if there are any."""
        groups = [
            *_describe_files(self.binary, "binary file", "with a match"),
            *_describe_files(self.large, "file", f"over {MAX_FILE // 1_000_000} MB"),
        ]
        if not groups:
            return answer
        note = f"[Not searched: {' and '.join(groups)}. {HOW_TO_SEARCH}]"
        return answer._replace(text=f"{answer.text}\n{note}")


def _describe_files(paths: Sequence[str], noun: str, what: str) -> Iterator[str]:
    """Yield the number of files and a sample of them; nothing if there are none."""
    if paths:
        yield f"{counted(len(paths), noun)} {what} ({_sample(paths)})"


def _sample(paths: Sequence[str]) -> str:
    """Name the first paths and count the rest."""
    names = list(map(printable, paths[:MAX_NAMED]))
    more = len(paths) - len(names)
    if more:
        names.append(f"{more:,} more")
    return ", ".join(names)


class _FileFilter:
    """The files that a call searches."""

    def __init__(self, call: Grep) -> None:
        self.names: tuple[str, ...] = ()
        """File names to pass to ripgrep, if the call can be narrowed by name."""
        self._patterns: list[tuple[GlobPattern, bool]] = []
        """The patterns of the call; each with True if files that match are searched."""
        if call.type:
            self.names = globs_of(call.type)
            types = GlobPattern(f"{{{','.join(self.names)}}}", "type")
            self._patterns.append((types, True))
        if call.glob:
            self._set_glob(call.glob)

    def _set_glob(self, glob: str) -> None:
        is_wanted = not glob.startswith("!")
        self._patterns.append((GlobPattern(glob.removeprefix("!"), "glob"), is_wanted))
        is_name = "/" not in glob and is_wanted
        if is_name and not self.names:
            self.names = (glob,)

    def takes(self, path: str) -> bool:
        """Return whether a file is searched."""
        return all(pattern.matches(path) == wanted for pattern, wanted in self._patterns)


def ripgrep_arguments(expression: Expression, names: Sequence[str], start: str) -> list[str]:
    """Return the arguments that make ripgrep list files that may match, without the user's
    settings.
    """
    assert expression.for_ripgrep is not None
    options = ["--ignore-case" if expression.ignore_case else "--case-sensitive"]
    if expression.multiline:
        options += ["--multiline", "--multiline-dotall"]
    options += map("--type-add=wanted:{}".format, names)
    if names:
        options.append("--type=wanted")
    folder = "./" if start == "." else f"./{start}"
    return [
        *("--no-config", "--no-messages", "--color=never", "--hidden", "--no-follow", "--no-mmap"),
        *("--no-ignore-global", "--no-ignore-parent", "--no-ignore-dot", "--no-ignore-exclude"),
        *("--no-require-git", "--text", "--max-filesize=10M", "--engine=default"),
        *("--regex-size-limit=10M", "--dfa-size-limit=10M"),
        *("--files-with-matches", "--null", "--sort=path"),
        *options,
        *("--iglob=!.git", f"--iglob=!{HIDDEN}"),
        *("--", expression.for_ripgrep, folder),
    ]


def _read_list(done: Finished) -> _FileList | None:
    """Return the files that ripgrep has listed; None if it failed."""
    # A list of files ends with a NUL; an error message of ripgrep does not.
    names, _, rest = done.head.rpartition(b"\0")
    is_full = done.why == "flood"
    if not is_full and (done.code not in (0, 1, 2) or rest.strip()):
        return None
    if done.code == 2 and not names:
        return None
    paths = map(_path, filter(None, names.split(b"\0")))
    return _FileList(list(paths), complete=not is_full)


def _path(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape").removeprefix("./")


def _is_small(entry: Entry) -> bool:
    return entry.size <= MAX_FILE


def _is_searched(entry: Entry) -> bool:
    return entry.kind == "file" and entry.name.casefold() not in NOT_SEARCHED


def _find_hits(
    expression: Expression,
    data: bytes,
    lines: Sequence[bytes],
    stop: Stop,
) -> tuple[list[int], int]:
    """Return the indexes of the matching lines, and the number of matches."""
    if not expression.multiline:
        found = [index for index, line in enumerate(lines) if expression.matches_line(line)]
        return found, len(found)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    hits: set[int] = set()
    count = 0
    for first, end in expression.spans(data):
        stop.check()  # each match may have scanned the whole text
        count += 1
        last = max(first, end - 1)
        hits.update(range(bisect_right(starts, first) - 1, bisect_right(starts, last)))
    return sorted(hits), count


def _with_context(
    path: str,
    lines: Sequence[bytes],
    hits: Sequence[int],
    call: Grep,
) -> Iterator[str]:
    """Yield the matching lines and those around them; `--` separates groups."""
    before = call.before or call.around or 0
    after = call.after or call.around or 0
    shown: set[int] = set()
    for line in hits:
        shown.update(range(max(0, line - before), min(len(lines), line + after + 1)))
    matching = set(hits)
    first = min(shown)
    for index in sorted(shown):
        if index != first and index - 1 not in shown and (before or after):
            yield "--"
        number = ""
        if call.line_numbers:
            mark = ":" if index in matching else "-"
            number = f"{index + 1}{mark}"
        yield f"{printable(path)}:{number}{_truncate(decode(lines[index]))}"


def _truncate(line: str) -> str:
    line = line.removesuffix("\r")
    if len(line) <= MAX_COLUMNS:
        return line
    return f"{beginning(line, MAX_COLUMNS)} [line truncated]"


def _outcome(call: Grep, lines: list[str], *, more: bool) -> ToolOutcome:
    """Return the lines up to the limit, and whether there are more."""
    if not lines:
        text = f"Nothing matches {call.pattern!r}."
        if r"\n" in call.pattern and not call.multiline:
            text += f"\n{ONE_LINE}"
        return ToolOutcome(text)
    wanted = call.head_limit or MAX_LINES
    if len(lines) <= wanted and not more:
        return clip("\n".join(lines), NARROWER)
    note = f"[The first {min(wanted, len(lines)):,} lines; there are more. {NARROWER}]"
    return clip("\n".join([*lines[:wanted], note]), NARROWER)._replace(cut=True)
