"""Some of the fields of an object by their names or values, and values by their keys."""

from collections.abc import Container, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=str)
Place = TypeVar("Place", int, str)
V = TypeVar("V")


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
