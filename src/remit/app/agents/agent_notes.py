"""Notes on the fields of agent files and settings: what remit made of each."""

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

from remit.domain.records.pick import among, beyond
from remit.errors import advice

Verdict = Literal["honored", "mapped", "ignored", "problem"]

MAX_NAMES = 20
MAX_SHOWN = 60


class Note(NamedTuple):
    """What happened to a field."""

    field: str
    verdict: Verdict
    text: str = ""


class Notes(list[Note]):
    """The notes on one file, in the order of its reading."""

    def add(self, field: str, verdict: Verdict, text: str = "") -> None:
        """Add a note on a field."""
        self.append(Note(field[:100], verdict, text))

    def add_result(self, field: str, *, same: bool, mapped_to: str) -> None:
        """Note that a field was taken as it is written, or what it was mapped to."""
        if same:
            self.add(field, "honored")
        else:
            self.add(field, "mapped", f"to {mapped_to}")

    def add_dropped(self, field: str, value: Any, expected: object) -> None:
        """Note that a value was dropped, and what was expected instead."""
        self.add(field, "problem", f"is {shown(value)} and was dropped; expected {expected}")


def delegation_notes(
    field: str, spawnable: tuple[str, ...] | None, known: Collection[str]
) -> list[Note]:
    """Return notes on the sub-agents that `Task(a, b)` names in a field."""
    if spawnable is None:
        return []
    if not spawnable:
        return [Note(field, "honored", "may not delegate")]
    found, unknown = among(spawnable, known), beyond(spawnable, known)
    notes = [_unknown_agent(field, name, known) for name in unknown[:MAX_NAMES]]
    if not found:
        return notes
    return [Note(field, "honored", f"may delegate only to {listed(found)}"), *notes]


def _unknown_agent(field: str, name: str, known: Collection[str]) -> Note:
    """Return a note on the name of an agent that does not exist."""
    return Note(field, "problem", f"unknown agent {shown(name)}. {advice(name, known)}")


def shown(value: Any) -> str:
    """Return a value as text, truncated."""
    return _truncate(repr(value))


def listed(names: Sequence[str]) -> str:
    """Return the first names, each truncated."""
    text = ", ".join(map(_truncate, names[:MAX_NAMES]))
    if len(names) > MAX_NAMES:
        return f"{text} and more"
    return text


def _truncate(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[: MAX_SHOWN - 3]}..."
