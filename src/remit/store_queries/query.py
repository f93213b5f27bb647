"""A named query of a store, and the type of its rows. Nothing slow is imported here."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

R = TypeVar("R", bound=tuple[Any, ...])
Select = Callable[[Any, Mapping[str, Any]], Awaitable[Any]]
"""The method of a store that answers queries."""


class Query(NamedTuple, Generic[R]):
    """A question to a store."""

    name: str
    params: tuple[str, ...]
    row: type[R]
    """A NamedTuple."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its rows, in order."""
        kind: Any = self.row
        columns: tuple[str, ...] = kind._fields
        return columns

    def rows(self, found: Iterable[Iterable[Any]]) -> list[R]:
        """Typed rows of what a database returned."""
        kind: Any = self.row
        make: Callable[[Iterable[Any]], R] = kind._make
        return list(map(make, found))

    async def among(self, select: Select, **values: Collection[Any]) -> list[R]:
        """Return the rows for the values of a parameter; nothing is read for no values."""
        if not any(values.values()):
            return []
        found: list[R] = await select(self, {name: list(some) for name, some in values.items()})
        return found


class TaskNumber(NamedTuple):
    """A task."""

    id: int


class AboutTask(Protocol):
    """A row about a task."""

    @property
    def id(self) -> int:
        """Return the number of the task."""
        ...


def task_ids(rows: Iterable[AboutTask]) -> list[str]:
    """Return the ids of the tasks that rows are about."""
    return [str(row.id) for row in rows]


BATCH = ("after", "limit")
"""The parameters of a query that is read in batches of ascending ids."""

NO_LIMIT = 1_000_000
"""The value of `limit` for all rows."""
