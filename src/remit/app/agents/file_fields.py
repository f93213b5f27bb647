"""The fields of an agent file by the names that remit uses, whatever their spelling in the file."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from remit.app.agents.agent_notes import Notes, shown
from remit.app.agents.field_values import is_storable
from remit.domain.agents.agent import Origin

_FIELDS = {
    "id": "id",
    "name": "name",
    "description": "description",
    "tools": "tools",
    "allowedtools": "tools",
    "disallowedtools": "disallowed_tools",
    "permission": "permission",
    "permissionmode": "permission_mode",
    "readonly": "read_only",
    "model": "model",
    "effort": "effort",
    "reasoningeffort": "effort",
    "maxturns": "max_turns",
    "steps": "max_turns",
    "maxsteps": "max_turns",
    "timeoutseconds": "timeout_seconds",
    "timeoutmins": "timeout_mins",
    "mode": "mode",
    "hidden": "hidden",
    "disable": "disabled",
    "disabled": "disabled",
    "capabilities": "capabilities",
    "prompt": "prompt",
    "systemprompt": "prompt",
    "instructions": "prompt",
}
"""The field of a key without case and separators: maxTurns and max-turns are the same."""
NOT_STORABLE = (
    "cannot be stored (NUL, an invalid character, a huge number or too many levels); it is dropped"
)


class FileFields:
    """The values of the fields that a file has, with notes on those that are dropped."""

    def __init__(self, origin: Origin, notes: Notes) -> None:
        self._origin, self._notes = origin, notes
        self.names: dict[str, str] = {}
        """The key that the file uses for each field."""
        self.values: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}

    def __contains__(self, field: str) -> bool:
        return field in self.values

    def assign(self, raw: Mapping[str, Any]) -> None:
        """Assign each key to its field; unknown keys are kept as extra."""
        for name, value in raw.items():
            field = self._field_of(name)
            if not is_storable(value):
                self._notes.add(name, "problem", NOT_STORABLE)
            elif field is None:
                self.extra[name] = value
                self._notes.add(name, "ignored", "is not used by remit; it is kept")
            elif field in self:
                text = f"is ignored: {self.names[field]} takes precedence"
                self._notes.add(name, "problem", text)
            elif value is None:
                self._notes.add(name, "ignored", "is empty")
            else:
                self.names[field] = name
                self.values[field] = value

    def _field_of(self, key: str) -> str | None:
        """Return the field that a key means; None if remit does not use it."""
        field = _FIELDS.get(re.sub(r"[-_ ]", "", key).lower())
        if field == "name" and self._origin == "folder":
            return None
        return field

    def read(self, field: str, convert: Callable[[Any], Any]) -> Any:
        """Return a converted field; drop an invalid one with a note on what is expected."""
        if field not in self:
            return None
        name, written = self.names[field], self.values[field]
        try:
            value = convert(written)
        except ValueError as expected:
            self._notes.add_dropped(name, written, expected)
            return None
        self._notes.add_result(name, same=value == written, mapped_to=shown(value))
        return value

    def note_outranked(self, field: str, other: str) -> None:
        """Note that a field is ignored, if it is given, because something else is given too."""
        if field in self:
            text = f"is ignored: {other} takes precedence"
            self._notes.add(self.names[field], "problem", text)
