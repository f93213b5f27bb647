"""The statements of the PostgreSQL store, by name."""

from remit.adapters import sql
from remit.domain.table import TABLES

SELECT = {name: sql.for_postgres(statement) for name, statement in sql.SELECT.items()}
FEED = f"""SELECT {sql.EVENT}, tx::text, pos FROM event
    WHERE (tx, pos) > ($1::text::xid8, $2) AND tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY event.tx, event.pos LIMIT $3"""
TAIL = """SELECT tx::text, pos FROM event WHERE tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY event.tx DESC, event.pos DESC LIMIT 1"""
NEW_IDS = "SELECT nextval('task_id') FROM generate_series(1, $1)"
SET_COUNTER = "SELECT setval('task_id', GREATEST($1, (SELECT last_value FROM task_id)))"
ANY_EVENT = "SELECT EXISTS (SELECT 1 FROM event)"
EVENT_COLUMNS = tuple(sql.EVENT.split(", "))
COMMIT = f"SELECT commit_units({', '.join(f'${n}' for n in range(1, 1 + 4 + 3 + 3 + 9 + 1 + len(TABLES['task'].columns) + 4))})"
