"""LS, Glob, Read, Write, Edit and MultiEdit."""

from base64 import b64encode
from collections.abc import Sequence

from remit.adapters.tools.call_deadline import Stop
from remit.adapters.tools.file_text import decode, is_binary, printable
from remit.adapters.tools.search.path_glob import GlobPattern
from remit.adapters.tools.workspace_paths import Content, Entry, Workspace
from remit.domain.agents.media import MAX_MEDIA, PDF, Media, media_type
from remit.domain.agents.tools import (
    LS,
    MAX_OUTPUT,
    READ_LINES,
    Change,
    Edit,
    Glob,
    MultiEdit,
    Read,
    ToolOutcome,
    Write,
    clip,
)
from remit.domain.text.counting import counted
from remit.domain.text.truncation import beginning, written_out
from remit.errors import invalid

MAX_LINE = 2000
MAX_FOUND = 1000
MAX_SEEN = 500_000
NOT_SEARCHED = ".git"
NARROWER = "Use a narrower pattern or path."
NARROWER_TO_SEE_OTHERS = "Use a narrower pattern or path to see others."
LONG_LINES = f"[Lines longer than {MAX_LINE:,} characters are cut and end in …; use Grep on them.]"
_ENTRY_FORMS = {"folder": "{name}/", "link": "{name} -> {target}", "file": "{name}"}
PDF_HINT = " If you can run commands, extract its text, for example with pdftotext."


class Files:
    """The file tools. Every method may block."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def ls(self, call: LS, _stop: Stop) -> ToolOutcome:
        """List the names in a folder."""
        entries = self._workspace.entries(call.path, "path")
        if not entries:
            return ToolOutcome("(The folder is empty.)")
        entries.sort(key=lambda entry: entry.kind != "folder")
        lines = map(_format_entry, entries)
        return clip("\n".join(lines), "Use Glob with a pattern to see fewer.")

    def glob(self, call: Glob, stop: Stop) -> ToolOutcome:
        """List the files that match a pattern, newest first."""
        pattern = GlobPattern(call.pattern)
        start, is_folder = self._workspace.find(call.path, "path")
        if not is_folder:
            raise invalid("path", f"{call.path[:60]!r} is a file", "a folder")
        prefix = "" if start == "." else f"{start}/"
        found, complete = self._match_files(pattern, start, stop)
        dated = sorted((-self._changed_ns(prefix + path, stop), prefix + path) for path in found)
        if not dated:
            return ToolOutcome(f"No file matches {call.pattern!r}.")
        lines = [printable(path) for _, path in dated[:MAX_FOUND]]
        if complete and len(dated) <= MAX_FOUND:
            return clip("\n".join(lines), NARROWER)
        total = f"{len(dated):,}" if complete else f"{len(dated):,} or more"
        note = f"[The newest {len(lines):,} of {total} files. {NARROWER_TO_SEE_OTHERS}]"
        return clip("\n".join([*lines, note]), NARROWER)._replace(cut=True)

    def read(self, call: Read, _stop: Stop) -> ToolOutcome:
        """Return the requested lines of a file, numbered."""
        content = self._workspace.read(call.file_path, "file_path")
        text = decode(_require_text(content, "file_path"))
        if not text:
            return ToolOutcome("(The file is empty.)")
        lines = text.removesuffix("\n").split("\n")
        if call.offset > len(lines):
            expected = f"at most {len(lines):,}, the number of lines of this file"
            raise invalid("offset", f"is {call.offset:,}", expected)
        return _number_lines(call, lines, min(call.offset - 1 + call.limit, len(lines)))

    def read_media(self, path: str, *, takes_media: bool) -> ToolOutcome:
        """Return an image or a PDF, or the reason why it is not printable."""
        name = printable(path)[:60]
        content = self._workspace.read(path, "file_path")
        kind, size = media_type(content.data), len(content.data)
        if kind is None:
            expected = "a PNG, JPEG, GIF, WebP or PDF file"
            raise invalid("file_path", f"{name!r} is not a readable image or PDF", expected)
        if not takes_media:
            return _refuse_media(name, kind, size)
        if size > MAX_MEDIA:
            noun = "a PDF" if kind == PDF else "an image"
            found = f"{name!r} is {noun} of {size:,} bytes"
            raise invalid("file_path", found, f"one of at most {MAX_MEDIA:,} bytes")
        media = Media(kind, b64encode(content.data).decode())
        return ToolOutcome(f"{name} ({kind}, {size:,} bytes)", media=media)

    def write(self, call: Write, stop: Stop) -> ToolOutcome:
        """Create or replace a file."""
        new = self._workspace.write(call.file_path, call.content.encode(), "file_path", stop.check)
        verb = "Created" if new else "Replaced"
        size = len(call.content.encode())
        return ToolOutcome(f"{verb} {printable(call.file_path)} ({size:,} bytes).")

    def edit(self, call: Edit, stop: Stop) -> ToolOutcome:
        """Replace one text in a file."""
        change = Change(
            old_string=call.old_string, new_string=call.new_string, replace_all=call.replace_all
        )
        return self._change(call.file_path, [("", change)], stop)

    def multi_edit(self, call: MultiEdit, stop: Stop) -> ToolOutcome:
        """Replace several texts in a file: all of them or none."""
        if not call.edits:
            raise invalid("edits", "is empty", "at least one replacement")
        return self._change(
            call.file_path,
            [(f"edits[{index}].", change) for index, change in enumerate(call.edits)],
            stop,
        )

    def _changed_ns(self, path: str, stop: Stop) -> int:
        stop.check()
        return self._workspace.changed_ns(path)

    def _match_files(self, pattern: GlobPattern, start: str, stop: Stop) -> tuple[list[str], bool]:
        """Return the matching files, and whether the whole folder was searched.

        Folders that cannot contain a match are skipped.
        """
        states = {"": pattern.start}
        found: list[str] = []

        def enter(folder: str) -> bool:
            above, _, name = folder.rpartition("/")
            below = pattern.feed(states[above], f"{name}/")
            if below and name != NOT_SEARCHED:
                states[folder] = below
            return folder in states

        for seen, (path, entry) in enumerate(self._workspace.walk(start, enter, stop.check)):
            if entry.kind in ("file", "link"):
                above, _, name = path.rpartition("/")
                if pattern.accepts(pattern.feed(states[above], name)):
                    found.append(path)
            if seen >= MAX_SEEN:
                return found, False
        return found, True

    def _change(self, path: str, changes: Sequence[tuple[str, Change]], stop: Stop) -> ToolOutcome:
        """Apply changes to a file, each with the prefix of its fields."""
        content = self._workspace.read(path, "file_path")
        try:
            text = _require_text(content, "file_path").decode()
        except UnicodeDecodeError:
            raise invalid(
                "file_path", f"{path[:60]!r} is not UTF-8", "a text file in UTF-8"
            ) from None
        total = 0
        for prefix, change in changes:
            text, count = _replace_text(text, change, prefix)
            total += count
        stop.check()
        self._workspace.write(path, text.encode(), "file_path", stop.check, expected=content.stamp)
        return ToolOutcome(f"Replaced {counted(total, 'text')} in {printable(path)}.")


def _format_entry(entry: Entry) -> str:
    """Return a line of a list of names."""
    form = _ENTRY_FORMS.get(entry.kind, "{name} (device, pipe or socket)")
    return form.format(name=printable(entry.name), target=printable(entry.target))


def _require_text(content: Content, field: str) -> bytes:
    """Return the bytes of a file; `InvalidParam` for a binary one."""
    if is_binary(content.data):
        found = f"{content.path[:60]!r} is a binary file of {len(content.data):,} bytes"
        raise invalid(field, found, "a text file")
    return content.data


def _refuse_media(name: str, kind: str, size: int) -> ToolOutcome:
    """Return why a model that takes only text cannot see a file."""
    if kind == PDF:
        what, why = "a PDF", f"This model cannot see PDFs.{PDF_HINT}"
    else:
        what, why = "an image", "This model cannot see images."
    return ToolOutcome(f"{name} is {what} ({kind}, {size:,} bytes). {why}", is_error=True)


def _number_lines(call: Read, lines: list[str], last: int) -> ToolOutcome:
    """Number the lines that fit, and name the call that reads the rest."""
    shown_lines: list[str] = []
    size = 0
    has_long_line = False
    for number in range(call.offset, last + 1):
        line = lines[number - 1].removesuffix("\r")
        text = f"{number:6}\t{line}"
        if len(line) > MAX_LINE:
            has_long_line = True
            text = f"{number:6}\t{beginning(line, MAX_LINE)}…"
        size += len(text) + 1
        if size > MAX_OUTPUT:
            last = number - 1
            break
        shown_lines.append(text)
    if last < len(lines):
        shown_lines.append(_name_next_call(call, last, len(lines)))
    if has_long_line:
        shown_lines.append(LONG_LINES)
    return ToolOutcome("\n".join(shown_lines), cut=last < len(lines) or has_long_line)


def _name_next_call(call: Read, last: int, total: int) -> str:
    """Return the note that names the call for the lines after the last one."""
    path = printable(call.file_path)
    next_call = written_out("Read", file_path=path, offset=last + 1)
    if call.limit != READ_LINES:
        next_call = written_out("Read", file_path=path, offset=last + 1, limit=call.limit)
    return f"[Lines {call.offset:,} to {last:,} of {total:,}. Next: {next_call}]"


def _replace_text(text: str, change: Change, prefix: str) -> tuple[str, int]:
    """Return the text after a change, and how often it was made."""
    old, new = _match_line_endings(text, change)
    if not old:
        raise invalid(
            f"{prefix}old_string", "is empty", "the text to replace; Write creates a file"
        )
    if old == new:
        raise invalid(f"{prefix}new_string", "is the same as old_string", "another text")
    count = text.count(old)
    if not count:
        raise invalid(
            f"{prefix}old_string",
            "does not occur in the file",
            "the exact text, with its spaces and without line numbers; read the file again",
        )
    if count > 1 and not change.replace_all:
        raise invalid(
            f"{prefix}old_string",
            f"occurs {count:,} times",
            "a longer text that occurs once, or replace_all",
        )
    return text.replace(old, new), count


def _match_line_endings(text: str, change: Change) -> tuple[str, str]:
    """Convert a change to CR LF if all lines of the file end in CR LF: models see and send LF."""
    old, new = change.old_string, change.new_string
    if "\r" not in old and "\n" in text and text.count("\n") == text.count("\r\n"):
        return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new
