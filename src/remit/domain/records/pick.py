"""Some of the fields of an object, or some of the items of a list, in their order."""

from collections.abc import Container, Iterable, Mapping
from typing import Protocol, TypeVar

Name = TypeVar("Name", bound=str)
Place = TypeVar("Place", int, str)
T = TypeVar("T")
V = TypeVar("V")


class Identified(Protocol):
    """A value with an id."""

    @property
    def id(self) -> str:
        """Return the id."""
        ...


Item = TypeVar("Item", bound=Identified)


def pick(fields: Mapping[Name, V], names: Container[Name]) -> dict[Name, V]:
    """Return the fields with these names."""
    return {name: value for name, value in fields.items() if name in names}


def omit(fields: Mapping[Name, V], names: Container[Name]) -> dict[Name, V]:
    """Return the fields without those with these names."""
    return {name: value for name, value in fields.items() if name not in names}


def omit_none(fields: Mapping[str, V | None]) -> dict[str, V]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def omit_empty(fields: Mapping[str, V | None]) -> dict[str, V]:
    """Return the fields that are not None, empty or 0."""
    return {name: value for name, value in fields.items() if value}


def in_order(found: Mapping[Place, V]) -> list[V]:
    """Return the values in the order of their keys."""
    return [found[place] for place in sorted(found)]


def among(items: Iterable[T], known: Container[object]) -> list[T]:
    """Return the items that are known."""
    return [item for item in items if item in known]


def beyond(items: Iterable[T], known: Container[object]) -> list[T]:
    """Return the items that are not known."""
    return [item for item in items if item not in known]


def by_id(items: Iterable[Item]) -> dict[str, Item]:
    """Return the items by their ids."""
    return {item.id: item for item in items}
