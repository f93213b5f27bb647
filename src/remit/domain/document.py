"""A task as its row holds it: a text that somebody may have spoiled."""

import json
from typing import Any, cast

from remit.errors import Corrupt


def document_of(text: str, task_id: object) -> dict[str, Any]:
    """What a row says of a task; Corrupt where that cannot be read."""
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise _spoiled(task_id, str(error)) from error
    if not isinstance(found, dict):
        raise _spoiled(task_id, "it is no object")
    return cast("dict[str, Any]", found)


def _spoiled(task_id: object, why: str) -> Corrupt:
    return Corrupt(f"The row of task {task_id} cannot be read: {why}.", hint="Make it anew from the events with: remit doctor --fix")
