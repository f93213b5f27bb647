"""Read the stored JSON document of a task, which may be damaged."""

import json
from typing import Any, cast

from remit.errors import Corrupt


def document_of(text: str, task_id: object) -> dict[str, Any]:
    """Parse the document of a task; raise Corrupt if it is not a JSON object."""
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise _corrupt(task_id, str(error)) from error
    if not isinstance(found, dict):
        raise _corrupt(task_id, "it is not a JSON object")
    return cast("dict[str, Any]", found)


def _corrupt(task_id: object, why: str) -> Corrupt:
    return Corrupt(
        f"The row of task {task_id} cannot be read: {why}.",
        hint="Rebuild it from the events with: `remit doctor --fix`",
    )
