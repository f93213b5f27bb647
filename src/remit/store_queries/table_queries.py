"""Queries for whole tables of query rows."""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Self

from remit.domain.projection.tables import TABLES
from remit.store_queries.query import Query


class TableRow(tuple[Any, ...]):
    """A whole row of any table, in the order of `TABLES`."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    """The columns of its table."""

    @classmethod
    def _make(cls, iterable: Iterable[Any], /) -> Self:
        return cls(iterable)


class RowCount(NamedTuple):
    """How many rows a table has."""

    rows: int


def _row_type(table: str) -> type[TableRow]:
    return type(table, (TableRow,), {"__slots__": (), "_fields": TABLES[table].columns})


TABLE_ROWS: dict[str, Query[TableRow]] = {
    name: Query(f"rows_{name}", ("names" if name == "guide" else "ids",), _row_type(name))
    for name in TABLES
}
TABLE_COUNTS: dict[str, Query[RowCount]] = {
    name: Query(f"count_{name}", (), RowCount) for name in ("event", *TABLES)
}
