"""The file of `remit parallel`: a JSON list, or one task per line."""

import re
import sys
from typing import Any, cast

from remit.errors import invalid
from remit.surfaces.cli.arguments import usable

_LIST = r'\s*\[\s*(?:[\[{"\]]|(?:-?\d[\d.]*|null|true|false)\s*,\s*(?:[\[{"]|null|true|false))'
"""The start of a JSON list; an objective may also begin with a number in brackets."""


def read_work(path: Any, common: dict[str, Any]) -> list[Any]:
    """Return the tasks in a file, each with the options of the command.

    A line is an objective or a JSON object. If it starts like JSON, it must be JSON.
    """
    with usable("FILE", str(path)):
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    works = _parse_json("FILE", text) if re.match(_LIST, text) else _parse_lines(text)
    if not works:
        raise invalid("FILE", "is empty", "a JSON list, or a line for each piece of work")
    if not common:
        return cast("list[Any]", works)
    return [_add_defaults(work, common) for work in works]


def _parse_lines(text: str) -> list[Any]:
    """Return the task on each line that is not empty."""
    works: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("{"):
            works.append(_parse_json(f"FILE, line {number}", line))
        elif line.strip():
            works.append(line)
    return works


def _parse_json(field: str, text: str) -> Any:
    """Parse JSON; an error names the file or the line."""
    from json import loads

    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(
            field,
            f"is not valid JSON ({error})",
            "a JSON list, or on each line an objective or a JSON object",
        ) from None


def _add_defaults(work: Any, common: dict[str, Any]) -> Any:
    """Return a task with the options of the command.

    An item that is neither text nor an object is returned as it is and refused later.
    """
    if isinstance(work, str):
        return common | {"objective": work}
    if isinstance(work, dict):
        return common | cast("dict[str, Any]", work)
    return work
