"""The statements of the embedded store, by name; the SQL is in `*.sql` beside this file."""

from remit.adapters.stores.select_statements import for_sqlite, select_statement
from remit.adapters.stores.sql_file import beside
from remit.domain.projection.tables import BESIDE, TABLES, Table

EVENTS, JOBS, STATE = beside(__file__, "events", "job_queue", "store_state")


class _Queries(dict[str, str]):
    def __missing__(self, name: str) -> str:
        statement = self[name] = for_sqlite(select_statement(name))
        return statement


SELECT = _Queries()
"""The queries of `remit.store_queries` by name; each is translated when it is first asked for."""


def _put(name: str, table: Table) -> str:
    key, columns = table
    rest = columns[key:]
    update = "DO NOTHING"
    if rest:
        values = ", ".join(map("{0} = excluded.{0}".format, rest))
        update = f"DO UPDATE SET {values}"
    return (
        f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) ON"
        f" CONFLICT ({', '.join(columns[:key])}) {update}"
    )


def _drop(name: str, table: Table) -> str:
    return (
        f"DELETE FROM {name} WHERE {' AND '.join(map('{} = ?'.format, table.columns[: table.key]))}"
    )


PUT = {name: _put(name, table) for name, table in (TABLES | BESIDE).items()}
DROP = {name: _drop(name, table) for name, table in (TABLES | BESIDE).items()}
