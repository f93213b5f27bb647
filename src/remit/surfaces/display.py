"""The one way in which text reaches a person's terminal: nothing in it can move the cursor, hide, or pretend.

Nothing slow is imported here: most text is plain ASCII and leaves by the first line of each function.
"""

import re

# String sequences (OSC, DCS, SOS, PM, APC) end in BEL or ST. Their payload excludes every control that could open another
# one, so that a megabyte of unfinished openings is still read once.
_SEQUENCES = (
    r"(?:\x1b[P\]X^_]|[\x90\x98\x9d-\x9f])[^\x07\x18\x1a\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\cno|}~]"
)
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# Bidi controls, zero-width and other invisible format characters, fillers that look like nothing, tags, lone surrogates.
_HIDDEN = (
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNSAFE = f"{_SEQUENCES}|{_CONTROLS}|{_HIDDEN}"
_BREAKS = "[\u2028\u2029]"


def display(text: str) -> str:
    """Text as a terminal may have it: newlines and tabs stay, whatever else is not visible goes."""
    if text.isascii() and text.isprintable():
        return text
    shown = re.sub(_UNSAFE, "", re.sub(_BREAKS, "\n", text))
    if shown.isascii():
        return shown
    from unicodedata import normalize

    return normalize("NFC", shown)


def display_line(text: str) -> str:
    """The same on one line."""
    shown = display(text)
    return shown if shown.isprintable() else re.sub(r"[\t\n]+", " ", shown)


def width(text: str) -> int:
    """How many cells displayed text takes: none for combining marks, two for wide characters."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(char) in ("Mn", "Me") else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, cells: int) -> str:
    """Displayed text that takes no more than this many cells; an ellipsis stands for the rest."""
    if width(text) <= cells:
        return text
    kept, used = "", 0
    for char in text:
        used += width(char)
        if used > cells - 1:
            break
        kept += char
    return kept.rstrip() + "…" if cells > 0 else ""


def cut_at_word(text: str, cells: int) -> str:
    """The same, but it ends at a word, unless that would leave less than half of what fits."""
    shown = cut(text, cells)
    if shown == text or not shown:
        return shown
    kept = shown[:-1]
    words = kept if text[len(kept) : len(kept) + 1].isspace() else kept.rpartition(" ")[0].rstrip()
    return f"{words}…" if 2 * width(words) >= width(kept) and words else shown


def pad(text: str, cells: int) -> str:
    """Displayed text with spaces behind it, up to this many cells."""
    return text + " " * (cells - width(text))


def wrap(text: str, cells: int) -> list[str]:
    """A displayed line in lines of at least two cells, broken between words or inside one too long by itself; its indentation is kept."""
    if width(text) <= cells:
        return [text]
    indent = " " * min(len(text) - len(text.lstrip()), cells // 2, cells - 2)
    lines = [""]
    for word in text.split():
        for part in _parts(word, cells - len(indent)):
            joined = f"{lines[-1]} {part}" if lines[-1] else indent + part
            if width(joined) <= cells:
                lines[-1] = joined
            else:
                lines.append(indent + part)
    return lines


def _parts(word: str, cells: int) -> list[str]:
    parts, used = [""], 0
    for char in word:
        used += width(char)
        if used > cells:
            parts.append("")
            used = width(char)
        parts[-1] += char
    return parts
