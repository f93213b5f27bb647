"""The tables of the embedded store, as ordered migrations that are never edited once released."""

from pathlib import Path
from typing import Any

from remit.adapters.sqlite.driver import sqlite3, translated
from remit.errors import NewerSchema

Migration = tuple[str, ...]

FIRST: Migration = (
    """CREATE TABLE event (
        pos INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        stream TEXT NOT NULL,
        version INTEGER NOT NULL,
        type TEXT NOT NULL,
        at TEXT NOT NULL,
        actor TEXT NOT NULL,
        data TEXT NOT NULL,
        hash BLOB NOT NULL,
        UNIQUE (stream, version)
    ) STRICT""",
    """CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
       BEGIN SELECT RAISE(ABORT, 'events are never changed'); END""",
    """CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event
       BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END""",
    # REPLACE deletes without asking the trigger above, so what is there must not be inserted again either.
    """CREATE TRIGGER event_is_never_replaced BEFORE INSERT ON event
       WHEN EXISTS (SELECT 1 FROM event WHERE id = NEW.id) OR EXISTS (SELECT 1 FROM event WHERE stream = NEW.stream AND version = NEW.version)
       OR EXISTS (SELECT 1 FROM event WHERE pos = NEW.pos)
       BEGIN SELECT RAISE(ABORT, 'events are never replaced'); END""",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "INSERT INTO counter VALUES ('task', 0)",
    """CREATE TRIGGER counter_never_goes_back BEFORE UPDATE ON counter WHEN NEW.value < OLD.value
       BEGIN SELECT RAISE(ABORT, 'ids are never used again'); END""",
    """CREATE TABLE task (
        id INTEGER PRIMARY KEY,
        uid TEXT NOT NULL UNIQUE,
        title TEXT NOT NULL,
        state TEXT NOT NULL,
        owner TEXT,
        parent_id INTEGER,
        root_id INTEGER NOT NULL,
        session_id TEXT,
        parent_session_id TEXT,
        priority INTEGER NOT NULL,
        wait TEXT,
        not_before TEXT,
        rerun_of INTEGER,
        started_at TEXT,
        updated_at TEXT NOT NULL,
        archived_at TEXT,
        version INTEGER NOT NULL,
        hash BLOB NOT NULL,
        doc TEXT NOT NULL
    ) STRICT""",
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
    "CREATE TABLE task_label (task_id INTEGER NOT NULL, label TEXT NOT NULL, PRIMARY KEY (task_id, label)) STRICT, WITHOUT ROWID",
    "CREATE INDEX task_label_task ON task_label (label, task_id)",
    """CREATE TABLE task_dependency (
        task_id INTEGER NOT NULL, needs INTEGER NOT NULL, rule TEXT NOT NULL, PRIMARY KEY (task_id, needs)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX task_dependency_needs ON task_dependency (needs, task_id)",
    """CREATE TABLE task_update (
        task_id INTEGER NOT NULL, number INTEGER NOT NULL, update_id TEXT NOT NULL, type TEXT NOT NULL, content TEXT NOT NULL,
        status TEXT NOT NULL, run_id TEXT, turn INTEGER, at TEXT NOT NULL, PRIMARY KEY (task_id, number)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE interaction (
        task_id INTEGER NOT NULL, number INTEGER NOT NULL, interaction_id TEXT NOT NULL UNIQUE, question TEXT NOT NULL, options TEXT,
        blocking INTEGER NOT NULL, asked_by TEXT NOT NULL, asked_at TEXT NOT NULL, status TEXT NOT NULL, answer TEXT, answered_by TEXT,
        answered_at TEXT, PRIMARY KEY (task_id, number)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX interaction_open ON interaction (task_id, number) WHERE status = 'open'",
    """CREATE TABLE notification (
        task_id INTEGER NOT NULL, number INTEGER NOT NULL, notification_id TEXT NOT NULL, message TEXT NOT NULL, actor TEXT NOT NULL,
        at TEXT NOT NULL, PRIMARY KEY (task_id, number)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX notification_at ON notification (at, notification_id)",
    """CREATE TABLE run (
        task_id INTEGER NOT NULL, number INTEGER NOT NULL, run_id TEXT NOT NULL, worker TEXT NOT NULL, started_at TEXT NOT NULL,
        ended_at TEXT, outcome TEXT, error TEXT, PRIMARY KEY (task_id, number)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX run_live ON run (task_id) WHERE outcome IS NULL",
    """CREATE TABLE guide (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, body TEXT NOT NULL, created_by TEXT NOT NULL, created_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
)

ENGINE: Migration = (
    """CREATE TABLE job (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL,
        queue TEXT NOT NULL,
        priority INTEGER NOT NULL,
        at TEXT,
        later INTEGER NOT NULL,
        worker TEXT,
        beat REAL,
        tries INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    # One queued job for each key; a claimed one may have a successor waiting behind it.
    "CREATE UNIQUE INDEX job_queued ON job (key) WHERE worker IS NULL",
    "CREATE INDEX job_key ON job (key)",
    "CREATE INDEX job_ready ON job (priority, id) WHERE worker IS NULL AND later = 0",
    "CREATE INDEX job_ready_queue ON job (queue, priority, id) WHERE worker IS NULL AND later = 0",
    "CREATE INDEX job_later ON job (at) WHERE worker IS NULL AND later = 1",
    "CREATE INDEX job_claimed ON job (queue, beat) WHERE worker IS NOT NULL",
    """CREATE TABLE worker (
        worker TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, version TEXT NOT NULL, agents TEXT NOT NULL,
        concurrency INTEGER NOT NULL, since TEXT NOT NULL, running INTEGER NOT NULL, beat REAL NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE call (
        task_id INTEGER NOT NULL, call_id TEXT NOT NULL, run_id TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL,
        repeatable INTEGER NOT NULL, started_at TEXT NOT NULL, ended_at TEXT, status TEXT NOT NULL, result TEXT, PRIMARY KEY (task_id, call_id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE message (
        task_id INTEGER NOT NULL, number INTEGER NOT NULL, run_id TEXT NOT NULL, turn INTEGER NOT NULL, at TEXT NOT NULL, doc TEXT NOT NULL,
        PRIMARY KEY (task_id, number)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE budget (root_id INTEGER PRIMARY KEY, tokens INTEGER NOT NULL, cost REAL NOT NULL) STRICT",
    "CREATE INDEX task_waiting ON task (id) WHERE state = 'waiting'",
)

RESULTS: Migration = (
    "CREATE TABLE task_result (task_id INTEGER PRIMARY KEY, key TEXT NOT NULL) STRICT",
    "CREATE INDEX task_result_key ON task_result (key, task_id)",
)

PLACES: Migration = (
    "ALTER TABLE worker ADD COLUMN place TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE worker ADD COLUMN models TEXT NOT NULL DEFAULT ''",
)

IDENTITY: Migration = (
    # The epoch rises when somebody accepts that the store went back in time; new events then come after `floor`.
    """CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, epoch INTEGER NOT NULL, floor INTEGER NOT NULL
    ) STRICT""",
    """INSERT INTO store VALUES (1, lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)
        || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))), 1, 0)""",
)

SCOPES: Migration = (
    "ALTER TABLE job ADD COLUMN root INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE job ADD COLUMN seen TEXT",
    """UPDATE job SET root = COALESCE(
        (SELECT root_id FROM task WHERE id = CAST(substr(key, instr(key, '/') + 1) AS INTEGER)), 0) WHERE key <> 'tick'""",
    "CREATE INDEX job_ready_root ON job (root, priority, id) WHERE worker IS NULL AND later = 0",
    "CREATE INDEX job_later_root ON job (root, at) WHERE worker IS NULL AND later = 1",
    # The jobs of a task that moves to another tree move with it.
    """CREATE TRIGGER task_moves AFTER UPDATE OF root_id ON task WHEN NEW.root_id <> OLD.root_id
       BEGIN UPDATE job SET root = NEW.root_id
           WHERE instr(key, '/') > 0 AND CAST(substr(key, instr(key, '/') + 1) AS INTEGER) = NEW.id; END""",
    "ALTER TABLE worker ADD COLUMN scope TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE task ADD COLUMN via TEXT",
    "CREATE INDEX task_live_via ON task (via, root_id) WHERE via IS NOT NULL AND archived_at IS NULL",
    "CREATE TABLE attendance (root_id INTEGER PRIMARY KEY, at TEXT NOT NULL) STRICT",
)

OTHER_ANSWERS: Migration = ("ALTER TABLE interaction ADD COLUMN allow_other INTEGER NOT NULL DEFAULT 0",)

MIGRATIONS: tuple[Migration, ...] = (FIRST, ENGINE, RESULTS, PLACES, IDENTITY, SCOPES, OTHER_ANSWERS)


def migrate(connection: Any, path: Path | str, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the database to the newest schema; safe when several processes start at once."""
    try:
        if _version(connection) != len(migrations):
            _upgrade(connection, path, migrations)
    except sqlite3.Error as error:
        raise translated(error, path) from error


def must_be_current(connection: Any, path: Path | str) -> None:
    """Refuse to read what another version of remit wrote."""
    try:
        found = _version(connection)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    if found > len(MIGRATIONS):
        raise _newer(path, found, len(MIGRATIONS))


def _upgrade(connection: Any, path: Path | str, migrations: tuple[Migration, ...]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _version(connection)
        if found > len(migrations):
            raise _newer(path, found, len(migrations))
        for migration in migrations[found:]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={len(migrations):d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: Any) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _newer(path: Path | str, found: int, known: int) -> NewerSchema:
    return NewerSchema(f"{path} has schema {found}; this remit knows {known}.", hint="Upgrade remit, or use another database.")
