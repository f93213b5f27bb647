CREATE TABLE event (
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
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'events are never changed or deleted'; END $$;

CREATE TRIGGER event_is_never_changed BEFORE UPDATE
    OR DELETE ON event FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TRIGGER event_is_never_emptied BEFORE TRUNCATE ON event FOR EACH STATEMENT EXECUTE FUNCTION
    refuse_change();

CREATE SEQUENCE task_id;

CREATE TABLE task (
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
);

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
    task_id bigint NOT NULL,
    label text NOT NULL,
    PRIMARY KEY (task_id, label)
);

CREATE INDEX task_label_task ON task_label (label, task_id);

CREATE TABLE task_dependency (
    task_id bigint NOT NULL,
    needs bigint NOT NULL,
    rule text NOT NULL,
    PRIMARY KEY (task_id, needs)
);

CREATE INDEX task_dependency_needs ON task_dependency (needs, task_id);

CREATE TABLE task_update (
    task_id bigint NOT NULL,
    number bigint NOT NULL,
    update_id text NOT NULL,
    type text NOT NULL,
    content text NOT NULL,
    status text NOT NULL,
    run_id text,
    turn bigint,
    at text NOT NULL,
    PRIMARY KEY (task_id, number)
);

CREATE TABLE interaction (
    task_id bigint NOT NULL,
    number bigint NOT NULL,
    interaction_id text NOT NULL UNIQUE,
    question text NOT NULL,
    options text,
    blocking bigint NOT NULL,
    asked_by text NOT NULL,
    asked_at text NOT NULL,
    status text NOT NULL,
    answer text,
    answered_by text,
    answered_at text,
    PRIMARY KEY (task_id, number)
);

CREATE INDEX interaction_open ON interaction (task_id, number) WHERE status = 'open';

CREATE TABLE notification (
    task_id bigint NOT NULL,
    number bigint NOT NULL,
    notification_id text COLLATE "C" NOT NULL,
    message text NOT NULL,
    actor text NOT NULL,
    at text COLLATE "C" NOT NULL,
    PRIMARY KEY (task_id, number)
);

CREATE INDEX notification_at ON notification (at, notification_id);

CREATE TABLE run (
    task_id bigint NOT NULL,
    number bigint NOT NULL,
    run_id text NOT NULL,
    worker text NOT NULL,
    started_at text NOT NULL,
    ended_at text,
    outcome text,
    error text,
    PRIMARY KEY (task_id, number)
);

CREATE INDEX run_live ON run (task_id) WHERE outcome IS NULL;

CREATE TABLE guide (
    id text COLLATE "C" PRIMARY KEY,
    title text NOT NULL,
    body text NOT NULL,
    created_by text NOT NULL,
    created_at text NOT NULL
);
