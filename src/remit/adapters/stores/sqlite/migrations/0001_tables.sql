CREATE TABLE event (
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
) STRICT;

CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event
    BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;

-- REPLACE deletes rows without firing the trigger above, so refuse inserts over a row too.
CREATE TRIGGER event_is_never_replaced BEFORE INSERT ON event
    WHEN EXISTS (SELECT 1 FROM event WHERE id = NEW.id)
        OR EXISTS (SELECT 1 FROM event WHERE stream = NEW.stream AND version = NEW.version)
        OR EXISTS (SELECT 1 FROM event WHERE pos = NEW.pos)
    BEGIN SELECT RAISE(ABORT, 'events are never replaced'); END;

CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counter VALUES ('task', 0);

CREATE TRIGGER counter_never_goes_back BEFORE UPDATE ON counter WHEN NEW.value < OLD.value
    BEGIN SELECT RAISE(ABORT, 'ids are never used again'); END;

CREATE TABLE task (
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
) STRICT;

CREATE INDEX task_live ON task (id) WHERE archived_at IS NULL;

CREATE INDEX task_live_owner ON task (owner, id) WHERE archived_at IS NULL;

CREATE INDEX task_ready ON task (priority, id) WHERE state = 'pending';

CREATE INDEX task_ended ON task (state, id) WHERE archived_at IS NOT NULL;

CREATE INDEX task_history ON task (archived_at, id) WHERE archived_at IS NOT NULL;

CREATE INDEX task_parent ON task (parent_id, id) WHERE parent_id IS NOT NULL;

CREATE INDEX task_tree ON task (root_id, id);

CREATE INDEX task_parent_session ON task (parent_session_id, id)
    WHERE parent_session_id IS NOT NULL;

CREATE INDEX task_session ON task (session_id, id) WHERE session_id IS NOT NULL;

CREATE INDEX task_rerun ON task (rerun_of, id) WHERE rerun_of IS NOT NULL;

CREATE TABLE task_label (
    task_id INTEGER NOT NULL,
    label TEXT NOT NULL,
    PRIMARY KEY (task_id, label)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_label_task ON task_label (label, task_id);

CREATE TABLE task_dependency (
    task_id INTEGER NOT NULL,
    needs INTEGER NOT NULL,
    rule TEXT NOT NULL,
    PRIMARY KEY (task_id, needs)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_dependency_needs ON task_dependency (needs, task_id);

CREATE TABLE task_update (
    task_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    update_id TEXT NOT NULL,
    type TEXT NOT NULL,
    content TEXT NOT NULL,
    status TEXT NOT NULL,
    run_id TEXT,
    turn INTEGER,
    at TEXT NOT NULL,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE interaction (
    task_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    interaction_id TEXT NOT NULL UNIQUE,
    question TEXT NOT NULL,
    options TEXT,
    blocking INTEGER NOT NULL,
    asked_by TEXT NOT NULL,
    asked_at TEXT NOT NULL,
    status TEXT NOT NULL,
    answer TEXT,
    answered_by TEXT,
    answered_at TEXT,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX interaction_open ON interaction (task_id, number) WHERE status = 'open';

CREATE TABLE notification (
    task_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    notification_id TEXT NOT NULL,
    message TEXT NOT NULL,
    actor TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX notification_at ON notification (at, notification_id);

CREATE TABLE run (
    task_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    worker TEXT NOT NULL,
    started_at TEXT NOT NULL,
    ended_at TEXT,
    outcome TEXT,
    error TEXT,
    PRIMARY KEY (task_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_live ON run (task_id) WHERE outcome IS NULL;

CREATE TABLE guide (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
