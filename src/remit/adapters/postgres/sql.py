"""The statements of the PostgreSQL store, by name."""

from remit.adapters import sql

SELECT = {name: sql.for_postgres(statement) for name, statement in sql.SELECT.items()}
FEED = f"""SELECT {sql.EVENT}, tx::text, pos FROM event
    WHERE (tx, pos) > ($1::text::xid8, $2) AND tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY event.tx, event.pos LIMIT $3"""
TAIL = """SELECT tx::text, pos FROM event WHERE tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY event.tx DESC, event.pos DESC LIMIT 1"""
NEW_IDS = "SELECT nextval('task_id') FROM generate_series(1, $1)"
SET_COUNTER = "SELECT setval('task_id', GREATEST($1, (SELECT last_value FROM task_id)))"
ANY_EVENT = "SELECT EXISTS (SELECT 1 FROM event)"
EVENT_COLUMNS = tuple(sql.EVENT.split(", "))
_TYPES = (
    *("int", "bigint", "text", "bigint"),  # guards
    *("int", "bigint", "bigint"),  # dependents
    *("text", "bigint", "text"),  # first events
    *("int", "text", "text", "bigint", "text", "text", "text", "text", "bytea"),  # events
    *("int", "bigint", "text", "text", "text", "text", "bigint", "bigint", "text", "text", "bigint", "text", "text", "bigint"),  # tasks
    *("text", "text", "text", "bigint", "bytea", "text"),
    *("int", "text", "boolean", "text"),  # other rows
    *("int", "bigint", "text", "boolean"),  # leases
    *("int", "text"),  # drops
    *("int", "text", "text", "bigint", "text", "bigint"),  # jobs
    *("int", "bigint", "bigint", "float8", "bigint", "float8"),  # debits
)
NUMBERS = tuple(kind in ("int", "bigint") for kind in _TYPES)
"""Which columns hold numbers. They travel as text: the driver looks long and hard at every number in a list, in case it is a list itself."""
COMMIT = "SELECT commit_units({})".format(
    ", ".join(f"${n}::text[]::{kind}[]" if kind in ("int", "bigint") else f"${n}" for n, kind in enumerate(_TYPES, 1))
)
CLAIM = """SELECT j.id, j.key, j.queue, j.tries, j.at, t.hash, t.doc FROM claim_jobs($1, $2, $3, $4, $5, $6, $7) AS j
    LEFT JOIN task t ON t.id = CASE WHEN j.key LIKE 'run/%' THEN substr(j.key, 5)::bigint END
    ORDER BY j.queue <> 'signals', j.priority, j.id"""
HELLO = """INSERT INTO worker (worker, host, pid, version, agents, concurrency, since, running, beat, place, models)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(), $9, $10)
    ON CONFLICT (worker) DO UPDATE SET running = excluded.running, beat = excluded.beat, agents = excluded.agents, models = excluded.models"""
BEAT = """UPDATE job SET beat = clock_timestamp() WHERE worker = $1 AND id IN (SELECT id FROM job WHERE id = ANY($2) ORDER BY id FOR UPDATE)"""
LOST = "SELECT id FROM job WHERE id = ANY($2) AND worker IS DISTINCT FROM $1"
FORGET = "DELETE FROM worker WHERE beat < clock_timestamp() - interval '1 hour'"
GIVE_BACK = """WITH newer AS (DELETE FROM job WHERE worker IS NULL AND key = (SELECT key FROM job WHERE id = $1 AND worker = $2))
    SELECT pg_notify('remit_job', '')"""
RETURN = """UPDATE job SET worker = NULL, beat = NULL, later = ($3::float8 > 0)::int, at = CASE WHEN $3::float8 > 0
    THEN to_char((clock_timestamp() + make_interval(secs => $3)) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') ELSE at END
    WHERE id = $1 AND worker = $2"""
LEAVE = "DELETE FROM worker WHERE worker = $1"
EXPIRE = """WITH expired AS (UPDATE job SET beat = 'epoch' WHERE worker = $1 RETURNING id)
    SELECT pg_notify('remit_job', '') WHERE EXISTS (SELECT 1 FROM expired)"""
WORKERS = """SELECT worker, host, pid, version, agents, concurrency, since, running, EXTRACT(EPOCH FROM clock_timestamp() - beat)::float8, place,
    models FROM worker ORDER BY since, worker"""
NEXT_IN = """SELECT CASE
    WHEN EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND later = 0 AND queue = ANY($1)
        AND NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key AND held.worker IS NOT NULL)) THEN 0
    ELSE LEAST(
        (SELECT EXTRACT(EPOCH FROM MIN(at)::timestamptz - clock_timestamp()) FROM job WHERE worker IS NULL AND later = 1 AND queue = ANY($1)),
        (SELECT EXTRACT(EPOCH FROM MIN(beat) - clock_timestamp()) + $2 FROM job WHERE worker IS NOT NULL AND queue = ANY($1))
    ) END::float8"""
