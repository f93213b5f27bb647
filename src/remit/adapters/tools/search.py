"""Grep: RE2 decides what matches, and ripgrep, where it is installed, which files to look into.

Python's own engine is never used: there are short patterns that keep it busy for years.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from remit.adapters.tools.expression import Expression
from remit.adapters.tools.filetypes import globs_of
from remit.adapters.tools.glob import GlobPattern
from remit.adapters.tools.ignored import Ignored
from remit.adapters.tools.paths import HIDDEN, MAX_FILE, Entry, Workspace
from remit.adapters.tools.process import Command, Runner
from remit.adapters.tools.sandbox import ENVIRONMENT, sandboxed
from remit.adapters.tools.shell import Shell
from remit.adapters.tools.stop import Halted, Stop
from remit.adapters.tools.text import decoded, is_binary, shown
from remit.domain.counting import counted
from remit.domain.tool import Grep, ToolOutcome, clip
from remit.errors import InvalidParam, invalid

MAX_COLUMNS = 500
MAX_LINES = 10_000
KEEP = 4_000_000
INSIDE = "/rg"
NOT_SEARCHED = frozenset({".git", HIDDEN})
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NARROWER = "Use a narrower pattern, path, glob or type, or head_limit."
NAMED = 3
"""How many files that were not searched are named."""
HOW_TO_SEARCH = "If you have Bash, search one with: grep -aE -e PATTERN FILE"
ONE_LINE = "[Lines are searched one at a time. Set multiline to find text that spans lines.]"


class Search:
    """Searches the text of files."""

    def __init__(self, workspace: Workspace, runner: Runner, shell: Shell, rg: str | None) -> None:
        self._workspace, self._runner, self._shell, self._rg = workspace, runner, shell, rg

    async def grep(self, call: Grep, stop: Stop) -> ToolOutcome:
        """The lines that match, the files that have one, or how many each has."""
        wanted = _Wanted(call)
        expression = Expression(call.pattern, call.ignore_case, call.multiline)
        start, is_folder = await stop.in_thread(lambda: self._workspace.find(call.path, "path"))
        listed: _Listed | None = None
        if is_folder and self._rg and expression.for_ripgrep is not None:
            words = ripgrep_words(expression, wanted.names, start)
            listed = await self._listed(self._rg, words, stop)

        def search() -> ToolOutcome:
            skipped = _Skipped()
            if not is_folder:
                self._must_be_text(start)
                lines = self._lines([start], expression, call, stop, skipped)
                return _answer(call, lines, more=False)
            found = self._below(start, wanted, listed, stop)
            lines = self._lines(found, expression, call, stop, skipped)
            skipped.large += self._large(start, wanted, stop)
            answer = _answer(call, lines, more=listed is not None and not listed.complete)
            return skipped.named_in(answer)

        return await stop.in_thread(search)

    def _must_be_text(self, path: str) -> None:
        """Refuse a file that is named and not searched: nothing found in it would mean nothing."""
        data = self._workspace.read(path, "path").data
        if is_binary(data):
            found = f"{shown(path)[:60]!r} is a binary file of {len(data):,} bytes"
            raise invalid("path", found, "a text file or a folder")

    async def _listed(self, rg: str, words: list[str], stop: Stop) -> "_Listed | None":
        """The files that ripgrep would search further; None if it cannot say.

        It runs in the sandbox if there is one: it opens files by name, and a name can be swapped.
        """
        box = await self._shell.box(stop.cancel)
        argv = [rg, *words]
        if box.bwrap:
            argv = sandboxed(
                box.bwrap,
                self._workspace.root,
                [INSIDE, *words],
                writable=False,
                nested=box.nested,
                tools={INSIDE: rg},
            )
        command = Command(
            argv,
            self._workspace.fd,
            ENVIRONMENT,
            stop.left(),
            no_new_privileges=not box.bwrap,
            keep=KEEP,
            stop_when_full=True,
        )
        done = await self._runner.run(command, stop.cancel)
        if done.why in ("canceled", "timeout"):
            raise Halted(done.why)
        # A list of files ends with a NUL; what ripgrep complains about does not.
        names, _, rest = done.head.rpartition(b"\0")
        is_full = done.why == "flood"
        if not is_full and (done.code not in (0, 1, 2) or rest.strip()):
            return None
        if done.code == 2 and not names:
            return None
        paths = [_path(name) for name in names.split(b"\0") if name]
        return _Listed(paths, complete=not is_full)

    def _below(
        self,
        start: str,
        wanted: "_Wanted",
        listed: "_Listed | None",
        stop: Stop,
    ) -> Iterator[str]:
        """The files below a folder that are searched, in order."""
        if listed is None:
            yield from self._walk(start, wanted, stop, _is_small)
            return
        ignored = Ignored(self._workspace, start)
        for path in listed.paths:
            if wanted.takes(path) and not ignored.leaves_out_file(path):
                yield path

    def _large(self, start: str, wanted: "_Wanted", stop: Stop) -> list[str]:
        """The files below a folder that would be searched if they were smaller."""
        return list(self._walk(start, wanted, stop, lambda entry: not _is_small(entry)))

    def _walk(
        self,
        start: str,
        wanted: "_Wanted",
        stop: Stop,
        chosen: Callable[[Entry], bool],
    ) -> Iterator[str]:
        """The files below a folder that a call is about and that are chosen, in order."""
        ignored = Ignored(self._workspace, start)
        prefix = "" if start == "." else f"{start}/"

        def enter(folder: str) -> bool:
            if folder.rpartition("/")[2].casefold() in NOT_SEARCHED:
                return False
            return not ignored.leaves_out(prefix + folder, is_folder=True)

        for inner, entry in self._workspace.walk(start, enter, stop.check):
            path = prefix + inner
            is_wanted = _is_searched(entry) and chosen(entry) and wanted.takes(path)
            if is_wanted and not ignored.leaves_out(path, is_folder=False):
                yield path

    def _lines(
        self,
        paths: Iterable[str],
        expression: Expression,
        call: Grep,
        stop: Stop,
        skipped: "_Skipped",
    ) -> list[str]:
        """The lines of the answer, as far as they are wanted, and one more if there are more."""
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
        try:
            data = self._workspace.read(path, "path").data.removeprefix(BYTE_ORDER_MARK)
        except InvalidParam:
            return  # too large, or gone since its name was seen
        if not expression.occurs_in(data):
            return
        if is_binary(data):
            hits, _ = _hits(expression, data, expression.lines_of(data), stop)
            skipped.binary += [path] if hits else []
            return
        if call.multiline and call.output_mode == "files_with_matches":
            yield from (shown(path) for _ in islice(expression.spans(data), 1))
            return
        lines = expression.lines_of(data)
        hits, count = _hits(expression, data, lines, stop)
        if not hits:
            return
        match call.output_mode:
            case "files_with_matches":
                yield shown(path)
            case "count":
                yield f"{shown(path)}:{count}"
            case "content":
                yield from _with_context(path, lines, hits, call)


class _Listed(NamedTuple):
    paths: list[str]
    complete: bool


class _Skipped:
    """The files that a search of a folder left out and that could be in its answer."""

    def __init__(self) -> None:
        self.binary: list[str] = []
        self.large: list[str] = []

    def named_in(self, answer: ToolOutcome) -> ToolOutcome:
        """The answer with one line about these files, if there are any."""
        binary = counted(len(self.binary), "binary file")
        large = f"{counted(len(self.large), 'file')} over {MAX_FILE // 1_000_000} MB"
        groups = [
            *([f"{binary} with a match ({_some(self.binary)})"] if self.binary else []),
            *([f"{large} ({_some(self.large)})"] if self.large else []),
        ]
        if not groups:
            return answer
        note = f"[Not searched: {' and '.join(groups)}. {HOW_TO_SEARCH}]"
        return answer._replace(text=f"{answer.text}\n{note}")


def _some(paths: Sequence[str]) -> str:
    """Name the first paths and count the rest."""
    names = [shown(path) for path in paths[:NAMED]]
    more = len(paths) - len(names)
    return ", ".join([*names, *([f"{more:,} more"] if more else [])])


class _Wanted:
    """Which files a call is about."""

    def __init__(self, call: Grep) -> None:
        globs = globs_of(call.type) if call.type else ()
        glob = call.glob or ""
        self._unwanted = glob.startswith("!")
        self._glob = GlobPattern(glob.removeprefix("!"), "glob") if glob else None
        self._type = GlobPattern(f"{{{','.join(globs)}}}", "type") if globs else None
        self.names = globs or ((glob,) if glob and "/" not in glob and not self._unwanted else ())
        """Names of files for ripgrep, if the call can be narrowed by names."""

    def takes(self, path: str) -> bool:
        """Whether a file is searched."""
        if self._type is not None and not self._type.matches(path):
            return False
        return self._glob is None or self._glob.matches(path) != self._unwanted


def ripgrep_words(expression: Expression, names: Sequence[str], start: str) -> list[str]:
    """What ripgrep is told: to list files that may match, by no settings of the user."""
    assert expression.for_ripgrep is not None
    return [
        *("--no-config", "--no-messages", "--color=never", "--hidden", "--no-follow", "--no-mmap"),
        *("--no-ignore-global", "--no-ignore-parent", "--no-ignore-dot", "--no-ignore-exclude"),
        *("--no-require-git", "--text", "--max-filesize=10M", "--engine=default"),
        *("--regex-size-limit=10M", "--dfa-size-limit=10M"),
        *("--files-with-matches", "--null", "--sort=path"),
        "--ignore-case" if expression.ignore_case else "--case-sensitive",
        *(["--multiline", "--multiline-dotall"] if expression.multiline else []),
        *(f"--type-add=wanted:{name}" for name in names),
        *(["--type=wanted"] if names else []),
        *("--iglob=!.git", f"--iglob=!{HIDDEN}"),
        *("--", expression.for_ripgrep, f"./{start}" if start != "." else "./"),
    ]


def _path(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape").removeprefix("./")


def _is_small(entry: Entry) -> bool:
    return entry.size <= MAX_FILE


def _is_searched(entry: Entry) -> bool:
    return entry.kind == "file" and entry.name.casefold() not in NOT_SEARCHED


def _hits(
    expression: Expression,
    data: bytes,
    lines: Sequence[bytes],
    stop: Stop,
) -> tuple[list[int], int]:
    """The lines that match, and how often the expression is counted."""
    if not expression.multiline:
        found = [index for index, line in enumerate(lines) if expression.matches_line(line)]
        return found, len(found)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    hits: set[int] = set()
    count = 0
    for first, end in expression.spans(data):
        stop.check()  # each match may have looked at all of the text
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
    before = call.before or call.around or 0
    after = call.after or call.around or 0
    hit = set(hits)
    near: set[int] = set()
    for line in hits:
        near.update(range(max(0, line - before), min(len(lines), line + after + 1)))
    previous = -1
    for index in sorted(near):
        if (before or after) and previous >= 0 and index != previous + 1:
            yield "--"
        previous = index
        number = f"{index + 1}{':' if index in hit else '-'}" if call.line_numbers else ""
        yield f"{shown(path)}:{number}{_cut(decoded(lines[index]))}"


def _cut(line: str) -> str:
    line = line.removesuffix("\r")
    if len(line) <= MAX_COLUMNS:
        return line
    return f"{line[:MAX_COLUMNS]} [the rest of a long line is left out]"


def _answer(call: Grep, lines: list[str], *, more: bool) -> ToolOutcome:
    if not lines:
        hint = f"\n{ONE_LINE}" if r"\n" in call.pattern and not call.multiline else ""
        return ToolOutcome(f"Nothing matches {call.pattern!r}.{hint}")
    wanted = call.head_limit or MAX_LINES
    if len(lines) <= wanted and not more:
        return clip("\n".join(lines), NARROWER)
    note = f"[The first {min(wanted, len(lines)):,} lines; there are more. {NARROWER}]"
    return clip("\n".join([*lines[:wanted], note]), NARROWER)._replace(cut=True)
