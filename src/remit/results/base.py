"""Read-only objects over JSON: the base of everything that operations return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from inspect import get_annotations
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Self,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from remit.results.read_only import ReadOnly, read_only

REQUIRED: Any = object()
_SHOWN = (
    "code",
    "message",
    "id",
    "task_id",
    "name",
    "title",
    "question",
    "type",
    "role",
    "status",
    "state",
    "success",
    "tool",
    "count",
)
"""The fields in a repr, if a class has them."""
_LONGEST = 60


@dataclass_transform(frozen_default=True, kw_only_default=True)
class ResultObject(ReadOnly):  # noqa: PLW1641 - holds mappings, so it has no hash
    """A read-only view of a JSON object; fields are converted when they are first read.

    Fields that a newer server adds are kept: `to_dict()` returns everything that was received.
    """

    _fields: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: cls.__dict__.get(name, REQUIRED) for name in get_annotations(cls)}
        cls._fields = {**cls._fields, **own}
        for name, default in own.items():
            setattr(cls, name, _Field(name, default))

    def __init__(self, **values: Any) -> None:
        required = {name for name, default in self._fields.items() if default is REQUIRED}
        unknown, missing = values.keys() - self._fields.keys(), required - values.keys()
        if unknown or missing:
            raise TypeError(
                f"{type(self).__name__}: unknown {sorted(unknown)}, missing {sorted(missing)}"
            )
        self.__dict__["_wire"] = {name: _to_wire(value) for name, value in values.items()}

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Self:
        """Create the object from the value of `to_dict()`."""
        made = cls.__new__(cls)
        made.__dict__["_wire"] = wire
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the server sent."""
        return deepcopy(dict(self.__dict__["_wire"]))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.__dict__["_wire"] == other.__dict__["_wire"])

    def __repr__(self) -> str:
        names = [name for name in _SHOWN if name in self._fields] or list(self._fields)[:3]
        shown = [
            f"{name}={cut(repr(value))}"
            for name in names
            if (value := getattr(self, name)) is not None
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


class _Field:
    """Reads one field and caches its value in the instance."""

    def __init__(self, name: str, default: Any) -> None:
        self._name, self._default = name, default
        self.convert: Callable[[Any], Any] | None = None

    def __get__(self, instance: ResultObject | None, owner: type[ResultObject]) -> Any:
        if instance is None:
            return self
        if self.convert is None:
            _resolve(owner)
            assert self.convert is not None
        default = None if self._default is REQUIRED else self._default
        raw = instance.__dict__["_wire"].get(self._name, default)
        value = raw if raw is None or raw is default else self.convert(raw)
        instance.__dict__[self._name] = value
        return value


def _resolve(owner: type[ResultObject]) -> None:
    """Resolve the converters of a class when its first field is read."""
    hints = get_type_hints(owner)
    for name in owner._fields:  # pyright: ignore[reportPrivateUsage]
        field: _Field = getattr(owner, name)
        field.convert = _converter(hints[name])


def _converter(hint: Any) -> Callable[[Any], Any]:
    """Return a function that converts a JSON value to an annotated type."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not type(None)]
        return _converter(inner[0]) if len(inner) == 1 else read_only
    if origin is tuple:
        convert = _converter(get_args(hint)[0])
        return lambda raw: tuple(map(convert, raw))
    if hint is datetime:
        return datetime.fromisoformat
    if isinstance(hint, type) and issubclass(hint, ResultObject):
        return hint.from_dict
    return read_only


def _to_wire(value: Any) -> Any:
    if isinstance(value, ResultObject):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return list(map(_to_wire, cast("list[Any]", value)))
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value


def cut(text: str) -> str:
    """Return a text, or its first characters if it is long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
