"""Rows of the memory store that a query narrows down step by step."""

from collections.abc import Callable, Container
from typing import Any

Record = dict[str, Any]
"""A row by column."""


class Records(list[Record]):
    """Rows of a table; each step returns the rows that it keeps, in their order."""

    def where(self, **values: Any) -> "Records":
        """Keep rows that have these values in these columns."""
        wanted = values.items()
        return self.filter(lambda record: wanted <= record.items())

    def known(self, column: str) -> "Records":
        """Keep rows that have a value in a column."""
        return self.filter(lambda record: record[column] is not None)

    def among(self, column: str, values: Container[Any]) -> "Records":
        """Keep rows that have one of these values in a column."""
        return self.filter(lambda record: record[column] in values)

    def containing(self, column: str, text: str) -> "Records":
        """Keep rows whose column contains a text."""
        return self.filter(lambda record: text in record[column])

    def after(self, **last: Any) -> "Records":
        """Sort by columns, and keep the rows behind these values."""
        end = tuple(last.values())

        def place(record: Record) -> tuple[Any, ...]:
            return tuple(record[column] for column in last)

        return Records(sorted(self, key=place)).filter(lambda record: place(record) > end)

    def first(self, limit: int | None) -> "Records":
        """Keep as many rows as a page has; None for all."""
        return Records(self[:limit])

    def filter(self, keeps: Callable[[Record], bool]) -> "Records":
        """Keep the rows for which a function returns True."""
        return Records(filter(keeps, self))

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return [record[name] for record in self]
