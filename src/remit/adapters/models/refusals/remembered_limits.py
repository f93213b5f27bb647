"""What endpoints do not accept, kept for a day outside of workspaces for later processes."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

from remit.adapters.state_files import locked, replace_json, state_folder

KEEP_SECONDS = 86_400.0
"""Older entries are ignored, so that a mended endpoint is asked in full again."""
MAX_BYTES = 1_000_000
MAX_MODELS = 1024
MAX_OUTPUT = "most output tokens: "
"""The start of the entry with a maximum of output tokens."""

Entries = dict[str, float]
"""What a model of an endpoint does not accept, each with the time when that was learned."""


class Limits(NamedTuple):
    """What a model of an endpoint does not accept."""

    refused: frozenset[str] = frozenset()
    output_limit: int | None = None


class RememberedLimits:
    """A file that all processes of a user share.

    It names neither keys nor addresses. If it cannot be read or written, nothing is remembered.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = path, now

    def read(self, address: str, model: str) -> Limits:
        """Return what is known of a model; nothing if there is no valid file."""
        entries = self._load().get(_key(address, model), {})
        numbers = (name.removeprefix(MAX_OUTPUT) for name in entries if MAX_OUTPUT in name)
        limits = [int(number) for number in numbers if number.isdecimal() and len(number) < 10]
        refused = frozenset(name for name in entries if MAX_OUTPUT not in name)
        return Limits(refused, min(filter(None, limits), default=None))

    def add(self, address: str, model: str, found: Limits) -> None:
        """Add what an accepted request has confirmed."""
        names = set(found.refused)
        if found.output_limit is not None:
            names.add(f"{MAX_OUTPUT}{found.output_limit}")
        with suppress(OSError), locked(self._path.parent):
            known = self._load()
            key = _key(address, model)
            known[key] = known.pop(key, {}) | dict.fromkeys(names, self._now())
            newest = list(known.items())[-MAX_MODELS:]
            replace_json(self._path, dict(newest))

    def _load(self) -> dict[str, Entries]:
        """Return all valid entries; none if the file is missing, too large or broken."""
        try:
            with self._path.open("rb") as file:
                document: Any = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        found = {key: self._valid(entries) for key, entries in _object(document).items()}
        return {key: entries for key, entries in found.items() if entries}

    def _valid(self, entries: Any) -> Entries:
        """Return the entries that are times of the last day."""
        now = self._now()
        return {
            name: at
            for name, at in _object(entries).items()
            if isinstance(at, float) and 0 <= now - at < KEEP_SECONDS
        }


def limits_file() -> Path:
    """Return the file that the processes of this user share."""
    return state_folder() / "models" / "limits.json"


def _key(address: str, model: str) -> str:
    return sha256(f"{address}\n{model}".encode("utf-8", "replace")).hexdigest()


def _object(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one in place of anything else."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}
