"""The statements of the embedded store, by name."""

from remit.adapters import sql
from remit.domain.table import TABLES

SELECT = {name: sql.for_sqlite(statement) for name, statement in sql.SELECT.items()}
FEED = f"SELECT {sql.EVENT}, pos FROM event WHERE pos > :after ORDER BY pos LIMIT :limit"
TAIL = "SELECT COALESCE(MAX(pos), 0) FROM event"
NEW_IDS = "UPDATE counter SET value = value + :count WHERE name = 'task' RETURNING value"
SET_COUNTER = "UPDATE counter SET value = MAX(value, :value) WHERE name = 'task'"
TASK_VERSION = "SELECT version FROM task WHERE id = ?"
STREAM_VERSION = "SELECT MAX(version) FROM event WHERE stream = ?"
DEPENDENTS = "SELECT COUNT(*) FROM task_dependency WHERE needs = ?"
EVENT_AT = "SELECT id FROM event WHERE stream = ? AND version = ?"
INSERT_EVENT = f"INSERT INTO event ({sql.EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def _put(name: str) -> str:
    key, columns = TABLES[name]
    rest = columns[key:]
    update = f"DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in rest)}" if rest else "DO NOTHING"
    return f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) ON CONFLICT ({', '.join(columns[:key])}) {update}"


PUT = {name: _put(name) for name in TABLES}
DROP = {name: f"DELETE FROM {name} WHERE {' AND '.join(f'{column} = ?' for column in columns[:key])}" for name, (key, columns) in TABLES.items()}
