"""Optional lines of a prompt: each is a list of lines, empty if there is nothing to show."""

from collections.abc import Sequence


def labeled(label: str, text: str) -> list[str]:
    """Return one line with a label and a text; no line for an empty text."""
    return [f"{label}: {text}"] if text else []


def listed(heading: str, items: Sequence[str]) -> list[str]:
    """Return a heading and a line for each item; no line if there are no items."""
    return [f"{heading}:", *items] if items else []


def indented(text: str) -> str:
    """Indent the later lines of a list item."""
    return "\n  ".join(text.splitlines())
