"""Cuts long texts, and writes the call that reads the rest."""

import json
import unicodedata
from typing import Any

MOST_MARKS = 32
"""The number of characters that a cut moves back to keep a letter and its marks together."""
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_JAMO = range(0x1160, 0x1200)
"""Vowels and final consonants that continue a Korean syllable."""


def cut_place(text: str, most: int) -> int:
    """Return where to cut a text that is longer than `most` characters.

    This is after the last line end in the second half, or else between two characters as people see
    them: letters keep their marks, and surrogate pairs, flags and emoji stay whole.
    """
    if len(text) <= most:
        return len(text)
    line_end = text.rfind("\n", most // 2, most)
    if line_end >= 0:
        return line_end + 1
    places = range(most, max(0, most - MOST_MARKS), -1)
    return next((place for place in places if not _continues(text, place)), most)


def beginning(text: str, most: int) -> str:
    """Return the beginning of a text, cut at `cut_place`."""
    return text[: cut_place(text, most)]


def shortened(text: str, most: int, mark: str = "…") -> str:
    """Return a text of at most `most` characters; one that is cut ends with a mark."""
    if len(text) <= most:
        return text
    return f"{text[: most - len(mark)]}{mark}"


def beginning_marked(text: str, most: int, mark: str) -> str:
    """Return a text, or its beginning with a mark after it if it is longer than `most`."""
    if len(text) <= most:
        return text
    return f"{beginning(text, most)}{mark}"


def written_out(tool: str, /, **arguments: Any) -> str:
    """Return a call of a tool as a model reads it: `Read(file_path="a.py", offset=2001)`."""
    given = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"{tool}({', '.join(given)})"


def _continues(text: str, place: int) -> bool:
    """Return True if the character at a place belongs to the one before it."""
    before, here = text[place - 1], text[place]
    if here in _FLAG_LETTERS and before != _JOINER:
        return _flag_letters_before(text, place) % 2 == 1
    return (
        _JOINER in (before, here)
        or (before, here) == ("\r", "\n")
        or _is_surrogate_pair(before, here)
        or _is_mark(here)
    )


def _is_surrogate_pair(before: str, here: str) -> bool:
    return "\ud800" <= before <= "\udbff" and "\udc00" <= here <= "\udfff"


def _is_mark(character: str) -> bool:
    """Return True for a character that changes the one before it: a mark, a skin tone, a Korean
    vowel.
    """
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or ord(character) in _SKIN_TONES
        or ord(character) in _JAMO
    )


def _flag_letters_before(text: str, place: int) -> int:
    """Count the letters of flags directly before a place, up to a maximum."""
    letters = text[max(0, place - MOST_MARKS) : place]
    return len(letters) - len(letters.rstrip(_FLAG_LETTERS))
