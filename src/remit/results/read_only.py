"""Base class of read-only results, and read-only containers for JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, NoReturn, cast


class ReadOnly:
    """An object whose attributes can be neither set nor deleted."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} objects are read-only: {name} cannot be set.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            f"{type(self).__name__} objects are read-only: {name} cannot be deleted."
        )


def read_only(value: Any) -> Any:
    """Return a JSON value that cannot be changed, at any depth."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return _ReadOnlyDict({name: read_only(item) for name, item in pairs})
    if isinstance(value, list):
        items = cast("Iterable[Any]", value)
        return _ReadOnlyList(map(read_only, items))
    return value


class _ReadOnlyDict(dict[str, Any]):
    """A JSON object that cannot be changed; its deep copy can."""

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {name: deepcopy(value, memo) for name, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _ReadOnlyList(list[Any]):
    """A JSON array that cannot be changed; its deep copy can."""

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _refuse(*_arguments: Any, **_named: Any) -> NoReturn:
    raise TypeError("The values of a result are read-only. Change a copy: copy.deepcopy(value)")


_CHANGES = {
    _ReadOnlyDict: "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update",
    _ReadOnlyList: (
        "__setitem__ __delitem__ __iadd__ __imul__"
        " append clear extend insert pop remove reverse sort"
    ),
}
"""The methods that would change a value."""
for kind, names in _CHANGES.items():
    for method in names.split():
        setattr(kind, method, _refuse)
