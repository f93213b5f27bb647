"""Every query of `remit.store_queries`, once for all databases, and how each dialect spells it.

The SQL is in `queries/*.sql`. Fixed text only: values travel as parameters. A statement is written
with `:name` parameters, `IN [name]` for membership in a list that is a parameter, `[position]` for
an event's place in the order of all, and `{index}` hints that only SQLite understands.
"""

import re

from remit.adapters.stores.sql_file import SqlFile, beside
from remit.domain.projection.tables import TABLES

FILES: tuple[SqlFile, ...] = beside(
    __file__,
    "queries/task_queries",
    "queries/tree_queries",
    "queries/event_queries",
    "queries/record_queries",
    "queries/run_queries",
    "queries/queue_queries",
    "queries/recovery_queries",
)
"""In the order in which they are searched: most commands that only read need the first alone."""


def select_statement(name: str) -> str:
    """Return the statement of a query, before it is put into a dialect."""
    kind, _, table = name.partition("_")
    if kind == "rows" and table in TABLES:
        columns = TABLES[table].columns
        ids = "names" if table == "guide" else "ids"
        return f"SELECT {', '.join(columns)} FROM {table} WHERE {columns[0]} IN [{ids}]"
    if kind == "count" and table in (*TABLES, "event"):
        return f"SELECT COUNT(*) FROM {table}"
    return next(file for file in FILES if name in file.names)[name]


_TYPES = {
    **dict.fromkeys(
        ("before", "limit", "parent", "root", "id", "after", "priority", "task", "number", "job"),
        "bigint",
    ),
    **dict.fromkeys(
        (
            "owner",
            "state",
            "parent_session",
            "session",
            "label",
            "before_at",
            "now",
            "stream",
            "interaction",
        ),
        "text",
    ),
    **dict.fromkeys(("after_at", "after_id", "call", "key", "via", "pattern"), "text"),
    **dict.fromkeys(("streams", "uids", "states", "statuses", "names"), "text[]"),
    "ids": "bigint[]",
}


def for_sqlite(statement: str) -> str:
    """Return a statement as SQLite reads it: lists come as JSON."""
    statement = statement.replace("[position]", "CAST(pos AS TEXT)")
    statement = re.sub(r"\{(\w+)\}", r"INDEXED BY \1", statement)
    return re.sub(r"IN \[(\w+)\]", r"IN (SELECT value FROM json_each(:\1))", statement)


def for_postgres(statement: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement as PostgreSQL reads it, with the order of its parameters."""
    names: list[str] = []

    def number_parameter(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}::{_TYPES[name]}"

    statement = statement.replace("[position]", "tx::text || '.' || pos")
    statement = re.sub(r"\s*\{\w+\}", "", statement)
    statement = re.sub(r"IN \[(\w+)\]", r"= ANY(:\1)", statement)
    return re.sub(r"(?<!:):(\w+)", number_parameter, statement), tuple(names)
