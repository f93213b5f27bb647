"""Frozen records and the marks that say what a field accepts."""

from collections.abc import Callable, KeysView
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, dataclass_transform

T = TypeVar("T")

MEGABYTE = 1_000_000
MISSING: Any = object()
MANY = 16
"""From here on it pays to look which of the values given are the defaults anyway."""
CALLS = 100
"""How many ways to name the fields of a record are remembered as right: there are as many as places in the code that make one."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen value with named fields.

    To a type checker this is a frozen dataclass. It is our own because there are more than a hundred of them: the
    standard one compiles five methods for each, which cost more at start-up than all else a short command does, and
    sets fields one by one, which shows for a task with sixty of them. Here a value holds only what was given to it;
    all else is read from its class.
    """
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name in getattr(base, "__annotations__", ()):
            found[name] = base.__dict__.get(name, MISSING)
    body: dict[str, Any] = {
        "__fields__": found,
        "__defaults__": {name: default for name, default in found.items() if default is not MISSING},
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
"""Every record there is: asking a set is cheaper than asking the class."""


def fields(kind: Any) -> dict[str, Any]:
    """The fields of a record by name, each with its default or MISSING."""
    found: dict[str, Any] = kind.__fields__
    return found


def is_record(kind: Any) -> bool:
    """True for a record, and for its class."""
    return hasattr(kind, "__fields__")


if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - the alias exports it
else:

    def replace(value: T, **changes: Any) -> T:
        """A record like another, but for these fields."""
        copy = object.__new__(type(value))
        mine = copy.__dict__
        mine.update(value.__dict__)
        mine.update(changes)
        if not changes.keys() <= value.__fields__.keys():
            raise TypeError(f"{type(value).__name__} has no field {', '.join(changes.keys() - value.__fields__.keys())}")
        return copy


def _init(self: Any, **values: Any) -> None:
    if len(values) > MANY:
        values = {name: value for name, value in values.items() if value is not self.__defaults__.get(name, MISSING)}
        _must_fit(self, values.keys())
    elif (names := tuple(values)) not in self.__calls__:
        _must_fit(self, values.keys())
        if len(self.__calls__) < CALLS:
            self.__calls__.add(names)
    self.__dict__.update(values)


def _must_fit(value: Any, given: KeysView[str]) -> None:
    if not (given >= value.__required__ and given <= value.__fields__.keys()):
        unknown, missing = given - value.__fields__.keys(), value.__required__ - given
        raise TypeError(f"{type(value).__name__}: unknown {sorted(unknown)}, missing {sorted(missing)}")


def _eq(self: Any, other: Any) -> bool:
    if type(other) is not type(self):
        return False
    mine, theirs = self.__dict__, other.__dict__
    if mine.keys() == theirs.keys():
        return bool(mine == theirs)
    # Only one of two equal values may have been given what is the default anyway.
    return bool(self.__defaults__ | mine == self.__defaults__ | theirs)


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name in self.__fields__))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__fields__)})"


def _frozen(self: Any, name: str, *_: Any) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed; use replace")


class Text(NamedTuple):
    """A string from `low` to `high` characters long, or bytes of UTF-8 where a body is meant."""

    low: int = 0
    high: int = MEGABYTE
    unit: str = "bytes"


class Range(NamedTuple):
    """A number from `low` to `high`, both included."""

    low: float
    high: float


class Items(NamedTuple):
    """At most `high` entries, and at least `low`."""

    high: int
    low: int = 0


class Matches(NamedTuple):
    """A string that a pattern matches as a whole; `says` tells a person what that is."""

    pattern: str
    says: str


class Coerce(NamedTuple):
    """A short form that is accepted too, and turned into the full one before the value is read; `short` is its JSON schema."""

    convert: Callable[[Any], Any]
    short: str = ""


class Wire(NamedTuple):
    """The name of a field in what callers send, where Python cannot spell it or would not."""

    name: str


class Alias(NamedTuple):
    """Another name for a field: accepted from every caller, and not shown to models."""

    of: str
    required: bool = False
    """Whether one of both names must be given, so that models are told to give the other one."""


def wire_name(name: str, hint: Any) -> str:
    """What callers call a field."""
    return next((mark.name for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Wire)), name)
