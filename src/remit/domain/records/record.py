"""Frozen records, and the marks that restrict their fields."""

from collections.abc import Callable, KeysView
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, dataclass_transform, get_args

T = TypeVar("T")

MEGABYTE = 1_000_000
MISSING: Any = object()
MANY = 16
"""From this many values on, it pays to drop those that equal the default."""
CALLS = 100
"""The number of valid combinations of field names that are cached per record, about one for each
call site.
"""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen value with named fields.

    Type checkers see a frozen dataclass. The standard one is not used because there are more than
    a hundred records: it compiles five methods for each, which takes more start-up time than the
    rest of a short command, and sets fields one by one, which is slow for a task with sixty fields.
    Here an instance stores only the given values; defaults are read from the class.
    """
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name in getattr(base, "__annotations__", ()):
            found[name] = base.__dict__.get(name, MISSING)
    body: dict[str, Any] = {
        "__fields__": found,
        "__defaults__": {
            name: default for name, default in found.items() if default is not MISSING
        },
        "__required__": frozenset(name for name, default in found.items() if default is MISSING),
        "__calls__": set[tuple[str, ...]](),
        "__init__": _init,
        "__eq__": _eq,
        "__hash__": _hash,
        "__repr__": _repr,
        "__setattr__": _frozen,
        "__delattr__": _frozen,
    }
    for name, value in body.items():
        setattr(cls, name, value)
    RECORDS.add(cls)
    return cls


RECORDS: set[type[Any]] = set()
"""All record classes: a set lookup is cheaper than a class attribute."""


def fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a record by name, each with its default or MISSING."""
    found: dict[str, Any] = kind.__fields__
    return found


def is_record(kind: Any) -> bool:
    """Return True for a record and for its class."""
    return hasattr(kind, "__fields__")


if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - the alias exports it
else:

    def replace(value: T, **changes: Any) -> T:
        """Return a copy of a record with these fields changed."""
        copy = object.__new__(type(value))
        mine = copy.__dict__
        mine.update(value.__dict__)
        mine.update(changes)
        if not changes.keys() <= value.__fields__.keys():
            raise TypeError(
                f"{type(value).__name__} has no field"
                f" {', '.join(changes.keys() - value.__fields__.keys())}"
            )
        return copy


def _init(self: Any, **values: Any) -> None:
    if len(values) > MANY:
        values = {
            name: value
            for name, value in values.items()
            if value is not self.__defaults__.get(name, MISSING)
        }
        _check_names(self, values.keys())
    elif (names := tuple(values)) not in self.__calls__:
        _check_names(self, values.keys())
        if len(self.__calls__) < CALLS:
            self.__calls__.add(names)
    self.__dict__.update(values)


def _check_names(value: Any, given: KeysView[str]) -> None:
    """Raise TypeError for unknown or missing fields."""
    if not (given >= value.__required__ and given <= value.__fields__.keys()):
        unknown, missing = given - value.__fields__.keys(), value.__required__ - given
        raise TypeError(
            f"{type(value).__name__}: unknown {sorted(unknown)}, missing {sorted(missing)}"
        )


def _eq(self: Any, other: Any) -> bool:
    if type(other) is not type(self):
        return False
    mine, theirs = self.__dict__, other.__dict__
    if mine.keys() == theirs.keys():
        return bool(mine == theirs)
    # Only one of two equal values may store a default explicitly.
    return bool(self.__defaults__ | mine == self.__defaults__ | theirs)


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name in self.__fields__))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__fields__)
    return f"{type(self).__name__}({fields})"


def _frozen(self: Any, name: str, *_: Any) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed; use replace")


class Text(NamedTuple):
    """A string of `low` to `high` characters, or bytes of UTF-8 for bodies."""

    low: int = 0
    high: int = MEGABYTE
    unit: str = "bytes"


class Range(NamedTuple):
    """A number from `low` to `high`, both included."""

    low: float
    high: float


class Items(NamedTuple):
    """From `low` to `high` entries."""

    high: int
    low: int = 0


class Matches(NamedTuple):
    """A string that fully matches a pattern; `says` describes the pattern."""

    pattern: str
    says: str


class Coerce(NamedTuple):
    """A short form that is converted to the full form before validation; `short` is its JSON
    Schema.
    """

    convert: Callable[[Any], Any]
    short: str = ""


class Wire(NamedTuple):
    """The name of a field on the wire, if Python cannot or should not use it."""

    name: str


class Alias(NamedTuple):
    """Another name for a field: accepted from every caller but not shown to models."""

    of: str
    required: bool = False
    """True if one of both names is required, so that models are told to give the other one."""


def required_part(hint: Any) -> Any:
    """Return the first part of a type that is not None: the type that may be left out."""
    return next(part for part in get_args(hint) if part is not type(None))


def wire_name(name: str, hint: Any) -> str:
    """Return the name of a field on the wire."""
    return next(
        (mark.name for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Wire)), name
    )


def summary(kind: Any) -> str:
    """Return the first paragraph of a class docstring as one line."""
    return " ".join(str(kind.__doc__).partition("\n\n")[0].split())
