"""The statements of the PostgreSQL store, by name; the SQL is in `*.sql` beside this file."""

from remit.adapters.stores.select_statements import for_postgres, select_statement
from remit.adapters.stores.sql_file import beside

EVENTS, JOBS, STATE = beside(__file__, "events", "job_queue", "store_state")


class _Queries(dict[str, tuple[str, tuple[str, ...]]]):
    def __missing__(self, name: str) -> tuple[str, tuple[str, ...]]:
        statement = self[name] = for_postgres(select_statement(name))
        return statement


SELECT = _Queries()
"""The queries of `remit.store_queries` by name, each with the order of its parameters."""
