"""Makes text safe for a terminal: it cannot move the cursor, hide or imitate other text.

Imports nothing slow. Plain ASCII, which most text is, returns at the first line of each function.
"""

import re
from collections.abc import Iterable

# String sequences (OSC, DCS, SOS, PM, APC) end in BEL or ST. Their payload excludes every control
# that could open another one, so that a megabyte of unfinished openings is scanned only once.
_SEQUENCES = (
    r"(?:\x1b[P\]X^_]|[\x90\x98\x9d-\x9f])[^\x07\x18\x1a\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\cno|}~]"
)
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# Bidi controls, zero-width and other invisible format characters, invisible fillers,
# tags, lone surrogates.
_HIDDEN = (
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNSAFE = f"{_SEQUENCES}|{_CONTROLS}|{_HIDDEN}"
_BREAKS = "[\u2028\u2029]"
COMMAND = r"(?<=: )remit [a-z-].*$"
"""A command that a text ends with."""


def display(text: str) -> str:
    """Return text without invisible characters except newlines and tabs."""
    if text.isascii() and text.isprintable():
        return text
    shown = re.sub(_UNSAFE, "", re.sub(_BREAKS, "\n", text))
    if shown.isascii():
        return shown
    from unicodedata import normalize

    return normalize("NFC", shown)


def display_line(text: str) -> str:
    """Return displayed text on one line."""
    shown = display(text)
    if shown.isprintable():
        return shown
    return re.sub(r"[\t\n]+", " ", shown)


def outcome_word(status: str) -> str:
    """Return the status of a delegation as people read it; only the wire has `cancelled`."""
    return "canceled" if status == "cancelled" else status


def width(text: str) -> int:
    """Return the cells that displayed text takes: 0 for combining marks, 2 for wide characters."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    bases = [char for char in text if category(char) not in ("Mn", "Me")]
    wide = [char for char in bases if east_asian_width(char) in "WF"]
    return len(bases) + len(wide)


def cut(text: str, cells: int) -> str:
    """Return displayed text cut to this many cells, with an ellipsis if something is left out."""
    if width(text) <= cells:
        return text
    if cells <= 0:
        return ""
    kept, used = "", 0
    for char in text:
        used += width(char)
        if used > cells - 1:
            break
        kept += char
    return kept.rstrip() + "…"


def cut_at_word(text: str, cells: int) -> str:
    """Return displayed text cut at a word, unless that would waste more than half of the room."""
    shown = cut(text, cells)
    if shown == text or not shown:
        return shown
    kept = shown[:-1]
    words = kept
    is_inside_word = not text[len(kept) : len(kept) + 1].isspace()
    if is_inside_word:
        words = kept.rpartition(" ")[0].rstrip()
    if not words or 2 * width(words) < width(kept):
        return shown
    return f"{words}…"


def surround(value: object, before: str, after: str = "") -> str:
    """Return a value with text around it, or an empty text if the value is empty."""
    if not value:
        return ""
    return f"{before}{value}{after}"


def pad(text: str, cells: int) -> str:
    """Return displayed text, padded with spaces to this many cells."""
    return text + " " * (cells - width(text))


def wrap(text: str, cells: int) -> list[str]:
    """Return a displayed line, wrapped at words to at least two cells; keeps its indentation.
    Splits words that are too long for a line.
    """
    if width(text) <= cells:
        return [text]
    indent = " " * min(len(text) - len(text.lstrip()), cells // 2, cells - 2)
    lines = [""]
    for part in _split_words(text, cells - len(indent)):
        joined = f"{lines[-1]} {part}" if lines[-1] else indent + part
        if width(joined) <= cells:
            lines[-1] = joined
        else:
            lines.append(indent + part)
    return lines


def wrap_all(lines: Iterable[str], cells: int) -> list[str]:
    """Return several displayed lines, each wrapped at words, but never inside a command."""
    return [part for line in lines for part in wrap_before_command(line, cells)]


def wrap_before_command(text: str, cells: int) -> list[str]:
    """Return a displayed line, wrapped at words. A printed command at its end stays whole, because
    a copied newline would split it; one that does not fit gets a line of its own.
    """
    found = re.search(COMMAND, text)
    if found is None or width(text) <= cells:
        return wrap(text, cells)
    lines, command = wrap(text[: found.start()].rstrip(), cells), found[0]
    if width(lines[-1]) + 1 + width(command) <= cells:
        lines[-1] += f" {command}"
    else:
        lines.append(command)
    return lines


def rows_of(text: str, columns: int) -> int:
    """Return the rows that a displayed line and the cursor behind it take in a terminal."""
    return width(text) // columns + 1


def rows_of_all(lines: Iterable[str], columns: int) -> int:
    """Return the rows that displayed lines take in a terminal."""
    return sum(rows_of(line, columns) for line in lines)


def _split_words(text: str, cells: int) -> list[str]:
    """Return the words of a text; a word that is too long for a line is split."""
    parts: list[str] = []
    for word in text.split():
        parts += _split_word(word, cells)
    return parts


def _split_word(word: str, cells: int) -> list[str]:
    """Return a word in parts that fit into a line."""
    parts, used = [""], 0
    for char in word:
        used += width(char)
        if used > cells:
            parts.append("")
            used = width(char)
        parts[-1] += char
    return parts
