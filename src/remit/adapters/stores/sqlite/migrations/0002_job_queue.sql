CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    at TEXT,
    later INTEGER NOT NULL,
    worker TEXT,
    beat REAL,
    tries INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Each key has at most one queued job. A claimed job may have a queued successor.
CREATE UNIQUE INDEX job_queued ON job (key) WHERE worker IS NULL;

CREATE INDEX job_key ON job (key);

CREATE INDEX job_ready ON job (priority, id) WHERE worker IS NULL AND later = 0;

CREATE INDEX job_ready_queue ON job (queue, priority, id) WHERE worker IS NULL AND later = 0;

CREATE INDEX job_later ON job (at) WHERE worker IS NULL AND later = 1;

CREATE INDEX job_claimed ON job (queue, beat) WHERE worker IS NOT NULL;

CREATE TABLE worker (
    worker TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    agents TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    since TEXT NOT NULL,
    running INTEGER NOT NULL,
    beat REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE call (
    task_id INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    repeatable INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    ended_at TEXT,
    status TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (task_id, call_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE message (
    task_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    turn INTEGER NOT NULL,
    at TEXT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE budget (
    root_id INTEGER PRIMARY KEY,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL
) STRICT;

CREATE INDEX task_waiting ON task (id) WHERE state = 'waiting';
