"""LS, Glob, Read, Write, Edit and MultiEdit."""

from base64 import b64encode
from collections.abc import Sequence

from remit.adapters.tools.glob import GlobPattern
from remit.adapters.tools.paths import Content, Workspace
from remit.adapters.tools.stop import Stop
from remit.adapters.tools.text import decoded, is_binary, shown
from remit.domain.media import MAX_MEDIA, PDF, Media, media_type
from remit.domain.tool import LS, MAX_OUTPUT, Change, Edit, Glob, MultiEdit, Read, ToolOutcome, Write, clip
from remit.errors import invalid

MAX_LINE = 2000
MAX_FOUND = 1000
MAX_SEEN = 500_000
NOT_SEARCHED = ".git"
PDF_HINT = " If you can run commands, a program such as pdftotext gives you its text."


class Files:
    """What is done to files, one call at a time; each may block."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def ls(self, call: LS, _stop: Stop) -> ToolOutcome:
        """The names in a folder."""
        entries = self._workspace.entries(call.path, "path")
        folders = [f"{shown(entry.name)}/" for entry in entries if entry.kind == "folder"]
        others = [_line(entry.name, entry.kind, entry.target) for entry in entries if entry.kind != "folder"]
        return clip("\n".join([*folders, *others]) or "(The folder is empty.)", "Use Glob with a pattern to see fewer.")

    def glob(self, call: Glob, stop: Stop) -> ToolOutcome:
        """The files that match a pattern, newest first."""
        pattern = GlobPattern(call.pattern)
        start, is_folder = self._workspace.find(call.path, "path")
        if not is_folder:
            raise invalid("path", f"{call.path[:60]!r} is a file", "a folder")
        prefix = "" if start == "." else f"{start}/"
        found, complete = self._matching(pattern, start, stop)
        dated = sorted((-self._changed_ns(prefix + path, stop), prefix + path) for path in found)
        if not dated:
            return ToolOutcome(f"No file matches {call.pattern!r}.")
        lines = [shown(path) for _, path in dated[:MAX_FOUND]]
        if len(dated) > MAX_FOUND or not complete:
            note = (
                f"[The newest {len(lines):,} of {len(dated):,}{'' if complete else ' or more'} files. Use a narrower pattern or path to see others.]"
            )
            return clip("\n".join([*lines, note]), "Use a narrower pattern or path.")._replace(cut=True)
        return clip("\n".join(lines), "Use a narrower pattern or path.")

    def read(self, call: Read, _stop: Stop) -> ToolOutcome:
        """Some lines of a file, numbered."""
        text = decoded(_text_file(self._workspace.read(call.file_path, "file_path"), "file_path"))
        if not text:
            return ToolOutcome("(The file is empty.)")
        lines = text.removesuffix("\n").split("\n")
        if call.offset > len(lines):
            raise invalid("offset", f"is {call.offset:,}", f"at most {len(lines):,}, the number of lines of this file")
        return _numbered(lines, call.offset, min(call.offset - 1 + call.limit, len(lines)))

    def read_media(self, path: str, *, takes_media: bool) -> ToolOutcome:
        """An image or a PDF, or why it is not shown."""
        name = shown(path)[:60]
        content = self._workspace.read(path, "file_path")
        kind, size = media_type(content.data), len(content.data)
        if kind is None:
            expected = "a PNG, JPEG, GIF, WebP or PDF file"
            raise invalid("file_path", f"{name!r} is not a readable image or PDF", expected)
        noun, article = ("PDF", "a") if kind == PDF else ("image", "an")
        if not takes_media:
            blind = f"{name} is {article} {noun} ({kind}, {size:,} bytes). "
            blind += f"This model cannot see {noun}s."
            return ToolOutcome(blind + (PDF_HINT if kind == PDF else ""), is_error=True)
        if size > MAX_MEDIA:
            found = f"{name!r} is {article} {noun} of {size:,} bytes"
            raise invalid("file_path", found, f"one of at most {MAX_MEDIA:,} bytes")
        media = Media(kind, b64encode(content.data).decode())
        return ToolOutcome(f"{name} ({kind}, {size:,} bytes)", media=media)

    def write(self, call: Write, stop: Stop) -> ToolOutcome:
        """A file with this content."""
        new = self._workspace.write(call.file_path, call.content.encode(), "file_path", stop.check)
        return ToolOutcome(f"{'Created' if new else 'Replaced'} {shown(call.file_path)} ({len(call.content.encode()):,} bytes).")

    def edit(self, call: Edit, stop: Stop) -> ToolOutcome:
        """A file with one text replaced."""
        change = Change(old_string=call.old_string, new_string=call.new_string, replace_all=call.replace_all)
        return self._change(call.file_path, [("", change)], stop)

    def multi_edit(self, call: MultiEdit, stop: Stop) -> ToolOutcome:
        """A file with several texts replaced, or as it was."""
        if not call.edits:
            raise invalid("edits", "is empty", "at least one replacement")
        return self._change(call.file_path, [(f"edits[{index}].", change) for index, change in enumerate(call.edits)], stop)

    def _changed_ns(self, path: str, stop: Stop) -> int:
        stop.check()
        return self._workspace.changed_ns(path)

    def _matching(self, pattern: GlobPattern, start: str, stop: Stop) -> tuple[list[str], bool]:
        """Matches, and whether everything was looked at; a folder below which nothing can match is not entered."""
        states = {"": pattern.start}
        found: list[str] = []

        def enter(folder: str) -> bool:
            above, _, name = folder.rpartition("/")
            below = pattern.feed(states[above], f"{name}/")
            if below and name != NOT_SEARCHED:
                states[folder] = below
            return folder in states

        for seen, (path, entry) in enumerate(self._workspace.walk(start, enter, stop.check)):
            above, _, name = path.rpartition("/")
            if entry.kind in ("file", "link") and pattern.accepts(pattern.feed(states[above], name)):
                found.append(path)
            if seen >= MAX_SEEN:
                return found, False
        return found, True

    def _change(self, path: str, changes: Sequence[tuple[str, Change]], stop: Stop) -> ToolOutcome:
        content = self._workspace.read(path, "file_path")
        try:
            text = _text_file(content, "file_path").decode()
        except UnicodeDecodeError:
            raise invalid("file_path", f"{path[:60]!r} is not UTF-8", "a text file in UTF-8") from None
        total = 0
        for prefix, change in changes:
            text, count = _replaced(text, change, prefix)
            total += count
        stop.check()
        self._workspace.write(path, text.encode(), "file_path", stop.check, expected=content.stamp)
        return ToolOutcome(f"Replaced {total:,} {'text' if total == 1 else 'texts'} in {shown(path)}.")


def _line(name: str, kind: str, target: str) -> str:
    return f"{shown(name)} -> {shown(target)}" if kind == "link" else shown(name) if kind == "file" else f"{shown(name)} (device, pipe or socket)"


def _text_file(content: Content, field: str) -> bytes:
    if is_binary(content.data):
        raise invalid(field, f"{content.path[:60]!r} is a binary file of {len(content.data):,} bytes", "a text file")
    return content.data


def _numbered(lines: list[str], first: int, last: int) -> ToolOutcome:
    """Lines as far as they fit, and where to go on."""
    shown_lines: list[str] = []
    size, long = 0, False
    for number in range(first, last + 1):
        line = lines[number - 1].removesuffix("\r")
        long = long or len(line) > MAX_LINE
        text = f"{number:6}\t{line[:MAX_LINE]}{'…' if len(line) > MAX_LINE else ''}"
        size += len(text) + 1
        if size > MAX_OUTPUT:
            last = number - 1
            break
        shown_lines.append(text)
    if last < len(lines):
        shown_lines.append(f"[Lines {first:,} to {last:,} of {len(lines):,}. Read on with offset={last + 1}.]")
    if long:
        shown_lines.append(f"[Lines longer than {MAX_LINE:,} characters are cut at …; Grep finds what is in them.]")
    return ToolOutcome("\n".join(shown_lines), cut=last < len(lines) or long)


def _replaced(text: str, change: Change, prefix: str) -> tuple[str, int]:
    old, new = _with_endings_of(text, change)
    if not old:
        raise invalid(f"{prefix}old_string", "is empty", "the text to replace; Write creates a file")
    if old == new:
        raise invalid(f"{prefix}new_string", "is the same as old_string", "another text")
    count = text.count(old)
    if not count:
        raise invalid(
            f"{prefix}old_string", "does not occur in the file", "the exact text, with its spaces and without line numbers; read the file again"
        )
    if count > 1 and not change.replace_all:
        raise invalid(f"{prefix}old_string", f"occurs {count:,} times", "a longer text that occurs once, or replace_all")
    return text.replace(old, new), count


def _with_endings_of(text: str, change: Change) -> tuple[str, str]:
    """Models see and send plain line ends; in a file whose lines all end in CR LF those are meant."""
    old, new = change.old_string, change.new_string
    if "\r" not in old and "\n" in text and text.count("\n") == text.count("\r\n"):
        return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new
