"""Parts that pages share: headings, prose, facts, values and durations."""

from collections.abc import Sequence
from typing import Any, TypeVar

from remit.surfaces.cli.output.terminal import Ink, Screen

T = TypeVar("T")

_MINUTE = 60


def put_heading(title: str, items: Any, screen: Screen) -> None:
    """Write a heading, if there is something to put below it."""
    if items:
        screen.section(title)


def put_prose(title: str, text: str, screen: Screen) -> None:
    """Write a section with one text, if there is one."""
    if text:
        screen.section(title)
        screen.put(text=text, indent=2)


def put_facts(title: str, facts: dict[str, Any], screen: Screen) -> None:
    """Write a section with a line for each fact that has a value."""
    shown = {name: str(value) for name, value in facts.items() if value}
    put_heading(title, shown, screen)
    put_rows(shown, screen)


def put_rows(facts: dict[str, str], screen: Screen) -> None:
    """Write a line for each fact."""
    for name, value in facts.items():
        screen.put(Ink(f"{name} ", "dim"), text=value, indent=2)


def by_number(count: int, one: T, many: T) -> T:
    """Return the words for one thing or for another number of things."""
    if count == 1:
        return one
    return many


def join_ids(ids: Sequence[str]) -> str:
    """Return task ids as `#3, #4`."""
    return ", ".join(map("#{}".format, ids))


def format_value(value: Any) -> str:
    """Return text as it is, None as an empty text, and other values as JSON."""
    from json import dumps

    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return dumps(value, ensure_ascii=False)


def format_work_time(seconds: float) -> str:
    """Return the working time of a task, in the same form everywhere."""
    seconds = round(seconds * 1000) / 1000  # some results have only whole milliseconds
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    return f"{int(seconds // _MINUTE)} min {int(seconds % _MINUTE)} s"
