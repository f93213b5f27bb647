"""The tables of the PostgreSQL store, as ordered migrations that are never edited once released."""

import asyncio
from typing import Any

import asyncpg

from remit.adapters.opening import OpeningWait
from remit.adapters.postgres.function import COMMIT_AT, FUNCTIONS
from remit.adapters.postgres.scope_function import SCOPE_FUNCTIONS
from remit.errors import NewerSchema, Unavailable

SCHEMA = "remit"
CHANNELS = {"events": "remit_event", "jobs": "remit_job"}
MIGRATION_LOCK = 7_236_001
LOCK_MILLISECONDS = 1000
"""How long a migration waits for a table that a running process uses, before it lets go of everything and tries again."""

Migration = tuple[str, ...]

_IMMUTABLE = """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'events are never changed or deleted'; END $$"""

FIRST: Migration = (
    """CREATE TABLE event (
        pos bigint GENERATED ALWAYS AS IDENTITY,
        tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
        id text COLLATE "C" NOT NULL UNIQUE,
        stream text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        type text NOT NULL,
        at text COLLATE "C" NOT NULL,
        actor text NOT NULL,
        data text NOT NULL,
        hash bytea NOT NULL,
        PRIMARY KEY (tx, pos),
        UNIQUE (stream, version)
    )""",
    _IMMUTABLE,
    "CREATE TRIGGER event_is_never_changed BEFORE UPDATE OR DELETE ON event FOR EACH ROW EXECUTE FUNCTION refuse_change()",
    "CREATE TRIGGER event_is_never_emptied BEFORE TRUNCATE ON event FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
    "CREATE SEQUENCE task_id",
    """CREATE TABLE task (
        id bigint PRIMARY KEY,
        uid text COLLATE "C" NOT NULL UNIQUE,
        title text NOT NULL,
        state text NOT NULL,
        owner text,
        parent_id bigint,
        root_id bigint NOT NULL,
        session_id text,
        parent_session_id text,
        priority bigint NOT NULL,
        wait text,
        not_before text COLLATE "C",
        rerun_of bigint,
        started_at text COLLATE "C",
        updated_at text COLLATE "C" NOT NULL,
        archived_at text COLLATE "C",
        version bigint NOT NULL,
        hash bytea NOT NULL,
        doc text NOT NULL
    )""",
    "CREATE INDEX task_live ON task (id) WHERE archived_at IS NULL",
    "CREATE INDEX task_live_owner ON task (owner, id) WHERE archived_at IS NULL",
    "CREATE INDEX task_ready ON task (priority, id) WHERE state = 'pending'",
    "CREATE INDEX task_ended ON task (state, id) WHERE archived_at IS NOT NULL",
    "CREATE INDEX task_history ON task (archived_at, id) WHERE archived_at IS NOT NULL",
    "CREATE INDEX task_parent ON task (parent_id, id) WHERE parent_id IS NOT NULL",
    "CREATE INDEX task_tree ON task (root_id, id)",
    "CREATE INDEX task_parent_session ON task (parent_session_id, id) WHERE parent_session_id IS NOT NULL",
    "CREATE INDEX task_session ON task (session_id, id) WHERE session_id IS NOT NULL",
    "CREATE INDEX task_rerun ON task (rerun_of, id) WHERE rerun_of IS NOT NULL",
    "CREATE TABLE task_label (task_id bigint NOT NULL, label text NOT NULL, PRIMARY KEY (task_id, label))",
    "CREATE INDEX task_label_task ON task_label (label, task_id)",
    "CREATE TABLE task_dependency (task_id bigint NOT NULL, needs bigint NOT NULL, rule text NOT NULL, PRIMARY KEY (task_id, needs))",
    "CREATE INDEX task_dependency_needs ON task_dependency (needs, task_id)",
    """CREATE TABLE task_update (
        task_id bigint NOT NULL, number bigint NOT NULL, update_id text NOT NULL, type text NOT NULL, content text NOT NULL,
        status text NOT NULL, run_id text, turn bigint, at text NOT NULL, PRIMARY KEY (task_id, number)
    )""",
    """CREATE TABLE interaction (
        task_id bigint NOT NULL, number bigint NOT NULL, interaction_id text NOT NULL UNIQUE, question text NOT NULL, options text,
        blocking bigint NOT NULL, asked_by text NOT NULL, asked_at text NOT NULL, status text NOT NULL, answer text, answered_by text,
        answered_at text, PRIMARY KEY (task_id, number)
    )""",
    "CREATE INDEX interaction_open ON interaction (task_id, number) WHERE status = 'open'",
    """CREATE TABLE notification (
        task_id bigint NOT NULL, number bigint NOT NULL, notification_id text COLLATE "C" NOT NULL, message text NOT NULL, actor text NOT NULL,
        at text COLLATE "C" NOT NULL, PRIMARY KEY (task_id, number)
    )""",
    "CREATE INDEX notification_at ON notification (at, notification_id)",
    """CREATE TABLE run (
        task_id bigint NOT NULL, number bigint NOT NULL, run_id text NOT NULL, worker text NOT NULL, started_at text NOT NULL,
        ended_at text, outcome text, error text, PRIMARY KEY (task_id, number)
    )""",
    "CREATE INDEX run_live ON run (task_id) WHERE outcome IS NULL",
    """CREATE TABLE guide (
        id text COLLATE "C" PRIMARY KEY, title text NOT NULL, body text NOT NULL, created_by text NOT NULL, created_at text NOT NULL
    )""",
)

ENGINE: Migration = (
    """CREATE TABLE job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        key text COLLATE "C" NOT NULL,
        queue text COLLATE "C" NOT NULL,
        priority bigint NOT NULL,
        at text COLLATE "C",
        later bigint NOT NULL,
        worker text,
        beat timestamptz,
        tries bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)""",
    # One queued job for each key; a claimed one may have a successor waiting behind it.
    "CREATE UNIQUE INDEX job_queued ON job (key) WHERE worker IS NULL",
    "CREATE INDEX job_key ON job (key)",
    "CREATE INDEX job_ready_queue ON job (queue, priority, id) WHERE worker IS NULL AND later = 0",
    "CREATE INDEX job_later ON job (at) WHERE worker IS NULL AND later = 1",
    "CREATE INDEX job_claimed ON job (queue, beat) WHERE worker IS NOT NULL",
    """CREATE TABLE worker (
        worker text PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL, version text NOT NULL, agents text NOT NULL,
        concurrency bigint NOT NULL, since text NOT NULL, running bigint NOT NULL, beat timestamptz NOT NULL
    )""",
    """CREATE TABLE call (
        task_id bigint NOT NULL, call_id text COLLATE "C" NOT NULL, run_id text NOT NULL, tool text NOT NULL, arguments text NOT NULL,
        repeatable bigint NOT NULL, started_at text COLLATE "C" NOT NULL, ended_at text, status text NOT NULL, result text,
        PRIMARY KEY (task_id, call_id)
    )""",
    """CREATE TABLE message (
        task_id bigint NOT NULL, number bigint NOT NULL, run_id text NOT NULL, turn bigint NOT NULL, at text COLLATE "C" NOT NULL, doc text NOT NULL,
        PRIMARY KEY (task_id, number)
    )""",
    "CREATE TABLE budget (root_id bigint PRIMARY KEY, tokens bigint NOT NULL, cost float8 NOT NULL)",
    "CREATE INDEX task_waiting ON task (id) WHERE state = 'waiting'",
    *FUNCTIONS,
)

RESULTS: Migration = (
    'CREATE TABLE task_result (task_id bigint PRIMARY KEY, key text COLLATE "C" NOT NULL)',
    "CREATE INDEX task_result_key ON task_result (key, task_id)",
)

PLACES: Migration = (
    "ALTER TABLE worker ADD COLUMN place text NOT NULL DEFAULT ''",
    "ALTER TABLE worker ADD COLUMN models text NOT NULL DEFAULT ''",
)

IDENTITY: Migration = (
    # The epoch rises when somebody accepts that the store went back in time.
    "CREATE TABLE store (one int PRIMARY KEY CHECK (one = 1), id text NOT NULL, epoch bigint NOT NULL)",
    "INSERT INTO store VALUES (1, gen_random_uuid()::text, 1)",
    COMMIT_AT,
)

SCOPES: Migration = (
    "ALTER TABLE job ADD COLUMN root bigint NOT NULL DEFAULT 0",
    'ALTER TABLE job ADD COLUMN seen text COLLATE "C"',
    """UPDATE job SET root = COALESCE(
        (SELECT root_id FROM task WHERE id = substring(job.key FROM '/([0-9]+)')::bigint), 0) WHERE key <> 'tick'""",
    "CREATE INDEX job_ready_root ON job (root, priority, id) WHERE worker IS NULL AND later = 0",
    "CREATE INDEX job_later_root ON job (root, at) WHERE worker IS NULL AND later = 1",
    "ALTER TABLE worker ADD COLUMN scope text NOT NULL DEFAULT ''",
    "ALTER TABLE task ADD COLUMN via text",
    "CREATE INDEX task_live_via ON task (via, root_id) WHERE via IS NOT NULL AND archived_at IS NULL",
    'CREATE TABLE attendance (root_id bigint PRIMARY KEY, at text COLLATE "C" NOT NULL)',
    *SCOPE_FUNCTIONS,
    # The jobs of a task that moves to another tree move with it.
    """CREATE TRIGGER task_moves AFTER UPDATE OF root_id ON task FOR EACH ROW
       WHEN (OLD.root_id IS DISTINCT FROM NEW.root_id) EXECUTE FUNCTION move_jobs()""",
)

OTHER_ANSWERS: Migration = ("ALTER TABLE interaction ADD COLUMN allow_other bigint NOT NULL DEFAULT 0",)

MIGRATIONS: tuple[Migration, ...] = (FIRST, ENGINE, RESULTS, PLACES, IDENTITY, SCOPES, OTHER_ANSWERS)


async def migrate(connection: Any, migrations: tuple[Migration, ...] = MIGRATIONS, wait: OpeningWait | None = None) -> None:
    """Bring the database to the newest schema; safe when several processes start at once."""
    wait = wait or OpeningWait("of this connection")
    found = await wait.answer(_version(connection))
    if found < len(migrations):
        while (upgraded := await _upgrade(connection, migrations)) is None:  # noqa: ASYNC110 - another process cannot set an event here
            await asyncio.sleep(wait.again())
        found = upgraded
    if found > len(migrations):
        raise NewerSchema(f"The database has schema {found}; this remit knows {len(migrations)}.", hint="Upgrade remit, or use another database.")


async def _upgrade(connection: Any, migrations: tuple[Migration, ...]) -> int | None:
    """Run the migrations that are missing, in one transaction: the version found, or None if another process holds a lock."""
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS:d}")
            if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", MIGRATION_LOCK):
                return None
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version int NOT NULL)")
            found = await _version(connection)
            for migration in migrations[found:]:
                for statement in migration:
                    await connection.execute(statement)
            if found < len(migrations):
                await connection.execute("DELETE FROM schema_version")
                await connection.execute("INSERT INTO schema_version VALUES ($1)", len(migrations))
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
        return None
    return found


async def must_follow_own_clock(connection: Any) -> None:
    """Refuse events whose transaction numbers lie ahead of this server's: followers would never see them."""
    ahead = await connection.fetchval(
        "SELECT EXISTS (SELECT 1 FROM event WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))",
    )
    if ahead:
        raise Unavailable(
            "These events were copied from another PostgreSQL server, whose transaction numbers are ahead of this one's.",
            hint="Move a workspace with a full event dump and load instead of pg_dump.",
        )


async def _version(connection: Any) -> int:
    if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{SCHEMA}.schema_version"):
        return 0
    return int(await connection.fetchval("SELECT COALESCE(MAX(version), 0) FROM schema_version"))
