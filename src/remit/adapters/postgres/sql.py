"""The statements of the PostgreSQL store, by name."""

from remit.adapters import sql

SELECT = {name: sql.for_postgres(statement) for name, statement in sql.SELECT.items()}
FEED = f"""SELECT {sql.EVENT}, tx::text, pos FROM event
    WHERE (tx, pos) > ($1::text::xid8, $2) AND tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY event.tx, event.pos LIMIT $3"""
TAIL = """SELECT tx::text, pos FROM event WHERE tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY event.tx DESC, event.pos DESC LIMIT 1"""
NEW_IDS = "SELECT nextval('task_id') FROM generate_series(1, $1)"
SET_COUNTER = "SELECT setval('task_id', GREATEST($1, (SELECT last_value FROM task_id)))"
LOCK_FOR_WRITES = "LOCK TABLE event, task, run, job, worker, attendance IN ROW EXCLUSIVE MODE"
ANY_EVENT = "SELECT EXISTS (SELECT 1 FROM event)"
EVENT_COLUMNS = tuple(sql.EVENT.split(", "))
COMMIT = "SELECT * FROM commit_units_at($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
STATE = """SELECT s.id, s.epoch, e.tx::text || '.' || e.pos, e.id, (SELECT t.id FROM task t ORDER BY t.id DESC LIMIT 1)
    FROM store s LEFT JOIN LATERAL (SELECT tx, pos, id FROM event ORDER BY tx DESC, pos DESC LIMIT 1) e ON true"""
HOLDS = "SELECT EXISTS (SELECT 1 FROM event WHERE tx = $1::text::xid8 AND pos = $2 AND id = $3)"
NEW_EPOCH = "UPDATE store SET epoch = GREATEST(epoch, $1) + 1"
SKIP_POSITIONS = "SELECT setval(pg_get_serial_sequence('event', 'pos'), GREATEST($1, nextval(pg_get_serial_sequence('event', 'pos'))))"
TRANSACTION = "SELECT pg_current_xact_id()::text::bigint"
SKIP_TRANSACTIONS = """DO $$ BEGIN
    FOR i IN 1..10000 LOOP
        BEGIN
            PERFORM pg_current_xact_id();
            RAISE SQLSTATE 'RE000';
        EXCEPTION WHEN SQLSTATE 'RE000' THEN NULL;
        END;
    END LOOP;
END $$"""
"""Uses up transaction numbers, one for each block that is rolled back."""
CLAIM = """SELECT j.id, j.key, j.queue, j.tries, j.at, t.hash, t.doc, j.seen, j.seconds FROM claim_jobs($1, $2, $3, $4, $5, $6, $7) AS j
    LEFT JOIN task t ON t.id = CASE WHEN j.key LIKE 'run/%' THEN substr(j.key, 5)::bigint END
    ORDER BY j.queue <> 'signals' NULLS LAST, j.priority, j.id"""
"""The last row says in how many seconds to come back."""
CLAIM_OF = CLAIM.replace("claim_jobs($1, $2, $3, $4, $5, $6, $7)", "claim_jobs_of($8, $1, $2, $3, $4, $5, $6, $7)")
_NOW = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
HELLO = """INSERT INTO worker (worker, host, pid, version, agents, concurrency, since, running, beat, place, models, scope)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(), $9, $10, $11)
    ON CONFLICT (worker) DO UPDATE SET running = excluded.running, beat = excluded.beat, agents = excluded.agents, models = excluded.models,
    scope = excluded.scope"""
ATTEND = f"""INSERT INTO attendance SELECT root, {_NOW} FROM unnest($1::bigint[]) AS served (root) ORDER BY root
    ON CONFLICT (root_id) DO UPDATE SET at = excluded.at"""
UNATTEND = """DELETE FROM attendance WHERE root_id > 0 AND NOT EXISTS (
    SELECT 1 FROM task WHERE task.root_id = attendance.root_id AND archived_at IS NULL)"""
BEAT = f"""UPDATE job SET beat = clock_timestamp(), seen = {_NOW}
    WHERE worker = $1 AND id IN (SELECT id FROM job WHERE id = ANY($2) ORDER BY id FOR UPDATE)"""
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
    models, scope FROM worker ORDER BY since, worker"""
