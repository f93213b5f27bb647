"""The tables of the PostgreSQL store, as ordered migrations that are never edited once released."""

from typing import Any

from remit.errors import NewerSchema, Unavailable

SCHEMA = "remit"
CHANNELS = {"events": "remit_event", "jobs": "remit_job"}
MIGRATION_LOCK = 7_236_001

Migration = tuple[str, ...]

_IMMUTABLE = """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'events are never changed or deleted'; END $$"""

_COMMIT = """CREATE FUNCTION commit_units(
    g_unit int[], g_task bigint[], g_stream text[], g_expected bigint[],
    d_unit int[], d_task bigint[], d_count bigint[],
    f_stream text[], f_version bigint[], f_id text[],
    e_unit int[], e_id text[], e_stream text[], e_version bigint[], e_type text[], e_at text[], e_actor text[], e_data text[], e_hash bytea[],
    t_unit int[], t_id bigint[], t_uid text[], t_title text[], t_state text[], t_owner text[], t_parent bigint[], t_root bigint[],
    t_session text[], t_parent_session text[], t_priority bigint[], t_wait text[], t_not_before text[], t_rerun bigint[],
    t_started text[], t_updated text[], t_archived text[], t_version bigint[], t_hash bytea[], t_doc text[],
    o_unit int[], o_table text[], o_drop boolean[], o_row text[]
) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    bad int[];
    fate int[];
    other record;
BEGIN
    -- Rows are locked in id order over the whole batch, so that two batches never wait for each other in a circle.
    PERFORM 1 FROM task WHERE id = ANY(g_task) ORDER BY id FOR NO KEY UPDATE;
    -- A new statement, hence a new snapshot: it sees what was committed while we waited for the locks.
    SELECT COALESCE(array_agg(DISTINCT g.unit), '{}') INTO bad
        FROM unnest(g_unit, g_task, g_stream, g_expected) AS g (unit, task, stream, expected)
        WHERE g.expected <> COALESCE(CASE WHEN g.task IS NULL
            THEN (SELECT MAX(version) FROM event WHERE event.stream = g.stream) ELSE (SELECT version FROM task WHERE id = g.task) END, 0);
    SELECT bad || COALESCE(array_agg(d.unit), '{}') INTO bad FROM unnest(d_unit, d_task, d_count) AS d (unit, task, count)
        WHERE d.count <> (SELECT COUNT(*) FROM task_dependency WHERE needs = d.task);
    INSERT INTO event (id, stream, version, type, at, actor, data, hash)
        SELECT id, stream, version, type, at, actor, data, hash
        FROM unnest(e_unit, e_id, e_stream, e_version, e_type, e_at, e_actor, e_data, e_hash)
            WITH ORDINALITY AS e (unit, id, stream, version, type, at, actor, data, hash, n)
        WHERE NOT unit = ANY(bad) ORDER BY n;
    INSERT INTO task SELECT id, uid, title, state, owner, parent_id, root_id, session_id, parent_session_id, priority, wait, not_before, rerun_of,
            started_at, updated_at, archived_at, version, hash, doc
        FROM unnest(t_unit, t_id, t_uid, t_title, t_state, t_owner, t_parent, t_root, t_session, t_parent_session, t_priority, t_wait,
            t_not_before, t_rerun, t_started, t_updated, t_archived, t_version, t_hash, t_doc)
            AS t (unit, id, uid, title, state, owner, parent_id, root_id, session_id, parent_session_id, priority, wait, not_before, rerun_of,
            started_at, updated_at, archived_at, version, hash, doc)
        WHERE NOT unit = ANY(bad)
        ON CONFLICT (id) DO UPDATE SET title = excluded.title, state = excluded.state, owner = excluded.owner, parent_id = excluded.parent_id,
            session_id = excluded.session_id, priority = excluded.priority, wait = excluded.wait, not_before = excluded.not_before,
            started_at = excluded.started_at, updated_at = excluded.updated_at, archived_at = excluded.archived_at, version = excluded.version,
            hash = excluded.hash, doc = excluded.doc;
    FOR other IN SELECT * FROM unnest(o_unit, o_table, o_drop, o_row) WITH ORDINALITY AS o (unit, name, gone, content, n)
        WHERE NOT o.unit = ANY(bad) ORDER BY n
    LOOP
        PERFORM put_row(other.name, other.gone, other.content::json);
    END LOOP;
    PERFORM pg_notify('remit_event', '');
    -- A unit that does not fit any more may be one that is here already and whose acknowledgement was lost.
    SELECT COALESCE(array_agg(CASE WHEN NOT f.n - 1 = ANY(bad) THEN 0
            WHEN EXISTS (SELECT 1 FROM event WHERE event.stream = f.stream AND event.version = f.version AND event.id = f.id) THEN 1
            ELSE 2 END ORDER BY f.n), '{}') INTO fate
        FROM unnest(f_stream, f_version, f_id) WITH ORDINALITY AS f (stream, version, id, n);
    RETURN fate;
END $$"""

_COMMIT_WITH_JOBS = """CREATE FUNCTION commit_units(
    g_unit int[], g_task bigint[], g_stream text[], g_expected bigint[],
    d_unit int[], d_task bigint[], d_count bigint[],
    f_stream text[], f_version bigint[], f_id text[],
    e_unit int[], e_id text[], e_stream text[], e_version bigint[], e_type text[], e_at text[], e_actor text[], e_data text[], e_hash bytea[],
    t_unit int[], t_id bigint[], t_uid text[], t_title text[], t_state text[], t_owner text[], t_parent bigint[], t_root bigint[],
    t_session text[], t_parent_session text[], t_priority bigint[], t_wait text[], t_not_before text[], t_rerun bigint[],
    t_started text[], t_updated text[], t_archived text[], t_version bigint[], t_hash bytea[], t_doc text[],
    o_unit int[], o_table text[], o_drop boolean[], o_row text[],
    l_unit int[], l_job bigint[], l_worker text[], l_ack boolean[],
    x_unit int[], x_key text[],
    j_unit int[], j_key text[], j_queue text[], j_priority bigint[], j_at text[], j_needed bigint[],
    b_unit int[], b_root bigint[], b_tokens bigint[], b_cost float8[], b_max_tokens bigint[], b_max_cost float8[]
) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    bad int[];
    lost int[] := '{}';
    over int[] := '{}';
    done text[] := '{}';
    news boolean := false;
    fate int[];
    other record;
BEGIN
    -- Rows are locked in id order over the whole batch, so that two batches never wait for each other in a circle.
    PERFORM 1 FROM task WHERE id = ANY(g_task) ORDER BY id FOR NO KEY UPDATE;
    IF cardinality(l_unit) > 0 THEN
        PERFORM 1 FROM job WHERE id = ANY(l_job) ORDER BY id FOR UPDATE;
    END IF;
    -- A new statement, hence a new snapshot: it sees what was committed while we waited for the locks.
    SELECT COALESCE(array_agg(DISTINCT g.unit), '{}') INTO bad
        FROM unnest(g_unit, g_task, g_stream, g_expected) AS g (unit, task, stream, expected)
        WHERE g.expected <> COALESCE(CASE WHEN g.task IS NULL
            THEN (SELECT MAX(version) FROM event WHERE event.stream = g.stream) ELSE (SELECT version FROM task WHERE id = g.task) END, 0);
    -- A statement costs as much without rows as with a few, and most units lack most kinds of them.
    IF cardinality(d_unit) > 0 THEN
        SELECT bad || COALESCE(array_agg(d.unit), '{}') INTO bad FROM unnest(d_unit, d_task, d_count) AS d (unit, task, count)
            WHERE d.count <> (SELECT COUNT(*) FROM task_dependency WHERE needs = d.task);
    END IF;
    IF cardinality(l_unit) > 0 THEN
        SELECT COALESCE(array_agg(l.unit), '{}') INTO lost FROM unnest(l_unit, l_job, l_worker) AS l (unit, job, worker)
            WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.id = l.job AND job.worker = l.worker);
        bad := bad || lost;
    END IF;
    IF cardinality(b_unit) > 0 THEN
        FOR other IN SELECT * FROM unnest(b_unit, b_root, b_tokens, b_cost, b_max_tokens, b_max_cost)
            AS b (unit, root, tokens, cost, max_tokens, max_cost) WHERE NOT b.unit = ANY(bad) ORDER BY b.root
        LOOP
            INSERT INTO budget VALUES (other.root, 0, 0) ON CONFLICT DO NOTHING;
            UPDATE budget SET tokens = budget.tokens + other.tokens, cost = budget.cost + other.cost WHERE root_id = other.root
                AND (other.max_tokens IS NULL OR budget.tokens + other.tokens <= other.max_tokens)
                AND (other.max_cost IS NULL OR budget.cost + other.cost <= other.max_cost);
            IF NOT FOUND THEN
                over := over || other.unit;
            END IF;
        END LOOP;
        bad := bad || over;
    END IF;
    INSERT INTO event (id, stream, version, type, at, actor, data, hash)
        SELECT id, stream, version, type, at, actor, data, hash
        FROM unnest(e_unit, e_id, e_stream, e_version, e_type, e_at, e_actor, e_data, e_hash)
            WITH ORDINALITY AS e (unit, id, stream, version, type, at, actor, data, hash, n)
        WHERE NOT unit = ANY(bad) ORDER BY n;
    INSERT INTO task SELECT id, uid, title, state, owner, parent_id, root_id, session_id, parent_session_id, priority, wait, not_before, rerun_of,
            started_at, updated_at, archived_at, version, hash, doc
        FROM unnest(t_unit, t_id, t_uid, t_title, t_state, t_owner, t_parent, t_root, t_session, t_parent_session, t_priority, t_wait,
            t_not_before, t_rerun, t_started, t_updated, t_archived, t_version, t_hash, t_doc)
            AS t (unit, id, uid, title, state, owner, parent_id, root_id, session_id, parent_session_id, priority, wait, not_before, rerun_of,
            started_at, updated_at, archived_at, version, hash, doc)
        WHERE NOT unit = ANY(bad)
        ON CONFLICT (id) DO UPDATE SET title = excluded.title, state = excluded.state, owner = excluded.owner, parent_id = excluded.parent_id,
            session_id = excluded.session_id, priority = excluded.priority, wait = excluded.wait, not_before = excluded.not_before,
            started_at = excluded.started_at, updated_at = excluded.updated_at, archived_at = excluded.archived_at, version = excluded.version,
            hash = excluded.hash, doc = excluded.doc;
    IF cardinality(o_unit) > 0 THEN
        FOR other IN SELECT * FROM unnest(o_unit, o_table, o_drop, o_row) WITH ORDINALITY AS o (unit, name, gone, content, n)
            WHERE NOT o.unit = ANY(bad) ORDER BY n
        LOOP
            PERFORM put_row(other.name, other.gone, other.content::json);
        END LOOP;
    END IF;
    IF true = ANY(l_ack) THEN
        WITH gone AS (
            DELETE FROM job USING unnest(l_unit, l_job, l_ack) AS l (unit, job, ack) WHERE job.id = l.job AND l.ack AND NOT l.unit = ANY(bad)
            RETURNING job.key
        ) SELECT array_agg(key) INTO done FROM gone;
    END IF;
    IF cardinality(x_unit) > 0 THEN
        DELETE FROM job USING unnest(x_unit, x_key) AS x (unit, key) WHERE job.key = x.key AND job.worker IS NULL AND NOT x.unit = ANY(bad);
    END IF;
    -- In the order of keys, so that two batches never wait for each other in a circle; the shorter first, so that task 2 runs before
    -- task 10. A queued row is locked by the update until the commit: whoever claims it then sees what it is about.
    IF cardinality(j_unit) > 0 THEN
        INSERT INTO job (key, queue, priority, at, later)
            SELECT DISTINCT ON (length(j.key), j.key) j.key, j.queue, j.priority, j.at, (j.at IS NOT NULL)::int
            FROM unnest(j_unit, j_key, j_queue, j_priority, j_at, j_needed) WITH ORDINALITY AS j (unit, key, queue, priority, at, needed, n)
            WHERE NOT j.unit = ANY(bad) AND (j.needed IS NULL OR EXISTS (SELECT 1 FROM task_dependency WHERE needs = j.needed))
            ORDER BY length(j.key), j.key, j.n DESC
            ON CONFLICT (key) WHERE worker IS NULL DO UPDATE SET queue = excluded.queue, priority = excluded.priority, at = excluded.at,
                later = excluded.later;
        news := FOUND;
    END IF;
    -- What waited behind a job that is done can be claimed now.
    IF news OR EXISTS (SELECT 1 FROM job WHERE key = ANY(done) AND worker IS NULL) THEN
        PERFORM pg_notify('remit_job', '');
    END IF;
    PERFORM pg_notify('remit_event', '');
    -- A unit that does not fit any more may be one that is here already and whose acknowledgement was lost.
    SELECT COALESCE(array_agg(CASE WHEN NOT f.n - 1 = ANY(bad) THEN 0
            WHEN EXISTS (SELECT 1 FROM event WHERE event.stream = f.stream AND event.version = f.version AND event.id = f.id) THEN 1
            WHEN f.n - 1 = ANY(lost) THEN 3 WHEN f.n - 1 = ANY(over) THEN 4 ELSE 2 END ORDER BY f.n), '{}') INTO fate
        FROM unnest(f_stream, f_version, f_id) WITH ORDINALITY AS f (stream, version, id, n);
    RETURN fate;
END $$"""

_CLAIM = """CREATE FUNCTION claim_jobs(
    me text, queues text[], limits int[], room int, signals int, lease_seconds float8, fleet int
) RETURNS SETOF job LANGUAGE plpgsql AS $$
DECLARE
    chosen bigint[];
    more bigint[];
    taken bigint;
    mine text[] := array_append(CASE WHEN room > 0 THEN queues ELSE '{}' END, 'signals');
    since timestamptz := clock_timestamp() - make_interval(secs => lease_seconds);
BEGIN
    -- Most wakes of many workers find nothing: a look takes no locks.
    IF NOT EXISTS (SELECT 1 FROM job WHERE queue = ANY(mine) AND worker IS NULL AND later = 0
            AND NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key AND held.worker IS NOT NULL))
        AND NOT EXISTS (SELECT 1 FROM job WHERE queue = ANY(mine) AND worker IS NOT NULL AND beat < since)
        AND NOT EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND later = 1
            AND at <= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    THEN
        RETURN;
    END IF;
    -- A claim that a crash of the server takes back is made again.
    PERFORM set_config('synchronous_commit', 'off', true);
    IF fleet > 0 OR 0 < ANY(limits) THEN
        PERFORM pg_advisory_xact_lock(7236002);
    END IF;
    UPDATE job SET later = 0 WHERE id IN (
        SELECT id FROM job WHERE worker IS NULL AND later = 1 AND at <= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        FOR UPDATE SKIP LOCKED);
    -- A successor waits until the job before it with its key is done, or two would work on one task.
    SELECT COALESCE(array_agg(id), '{}') INTO chosen FROM (
        SELECT id FROM job WHERE queue = 'signals' AND worker IS NULL AND later = 0
            AND NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key AND held.worker IS NOT NULL)
            ORDER BY priority, id LIMIT signals FOR UPDATE SKIP LOCKED
    ) AS signal;
    SELECT chosen || COALESCE(array_agg(id), '{}') INTO chosen FROM (
        SELECT id FROM job WHERE queue = 'signals' AND worker IS NOT NULL AND beat < since ORDER BY id LIMIT signals FOR UPDATE SKIP LOCKED
    ) AS left_signal;
    SELECT COALESCE(array_agg(id), '{}') INTO more FROM (
        SELECT id FROM job WHERE queue = ANY(queues) AND worker IS NOT NULL AND beat < since ORDER BY beat LIMIT room FOR UPDATE SKIP LOCKED
    ) AS left_run;
    chosen := chosen || more;
    room := room - cardinality(more);
    IF fleet > 0 THEN
        SELECT COUNT(*) INTO taken FROM job WHERE worker IS NOT NULL AND queue <> 'signals';
        room := LEAST(room, fleet - taken);
    END IF;
    IF room > 0 THEN
        SELECT chosen || COALESCE(array_agg(id), '{}') INTO chosen FROM (
            SELECT run.id FROM (
                SELECT q.queue, CASE WHEN q.most > 0
                    THEN q.most - (SELECT COUNT(*) FROM job WHERE job.queue = q.queue AND worker IS NOT NULL) ELSE room END AS free
                FROM unnest(queues, limits) AS q (queue, most)
            ) AS open
            CROSS JOIN LATERAL (
                SELECT id, priority FROM job WHERE job.queue = open.queue AND worker IS NULL AND later = 0
                AND NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key AND held.worker IS NOT NULL)
                ORDER BY priority, id LIMIT GREATEST(0, LEAST(room, open.free)) FOR UPDATE SKIP LOCKED
            ) AS run
            ORDER BY run.priority, run.id LIMIT room
        ) AS best;
    END IF;
    RETURN QUERY UPDATE job SET worker = me, beat = clock_timestamp(), tries = tries + 1 WHERE id = ANY(chosen) RETURNING job.*;
END $$"""

_PUT_ROW = """CREATE FUNCTION put_row(name text, gone boolean, content json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE name
    WHEN 'task_label' THEN
        IF gone THEN
            DELETE FROM task_label WHERE task_id = (content->>0)::bigint AND label = content->>1;
        ELSE
            INSERT INTO task_label VALUES ((content->>0)::bigint, content->>1) ON CONFLICT DO NOTHING;
        END IF;
    WHEN 'task_dependency' THEN
        IF gone THEN
            DELETE FROM task_dependency WHERE task_id = (content->>0)::bigint AND needs = (content->>1)::bigint;
        ELSE
            INSERT INTO task_dependency VALUES ((content->>0)::bigint, (content->>1)::bigint, content->>2)
                ON CONFLICT (task_id, needs) DO UPDATE SET rule = excluded.rule;
        END IF;
    WHEN 'task_update' THEN
        INSERT INTO task_update VALUES ((content->>0)::bigint, (content->>1)::bigint, content->>2, content->>3, content->>4, content->>5,
            content->>6, (content->>7)::bigint, content->>8)
            ON CONFLICT (task_id, number) DO UPDATE SET status = excluded.status, run_id = excluded.run_id, turn = excluded.turn;
    WHEN 'interaction' THEN
        INSERT INTO interaction VALUES ((content->>0)::bigint, (content->>1)::bigint, content->>2, content->>3, content->>4,
            (content->>5)::bigint, content->>6, content->>7, content->>8, content->>9, content->>10, content->>11)
            ON CONFLICT (task_id, number) DO UPDATE SET status = excluded.status, answer = excluded.answer,
            answered_by = excluded.answered_by, answered_at = excluded.answered_at;
    WHEN 'notification' THEN
        INSERT INTO notification VALUES ((content->>0)::bigint, (content->>1)::bigint, content->>2, content->>3, content->>4, content->>5);
    WHEN 'run' THEN
        INSERT INTO run VALUES ((content->>0)::bigint, (content->>1)::bigint, content->>2, content->>3, content->>4, content->>5, content->>6,
            content->>7)
            ON CONFLICT (task_id, number) DO UPDATE SET ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error;
    WHEN 'guide' THEN
        INSERT INTO guide VALUES (content->>0, content->>1, content->>2, content->>3, content->>4);
    END CASE;
END $$"""

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
    _PUT_ROW,
    _COMMIT,
)

_OLD_COMMIT = """DO $$ BEGIN
    EXECUTE (SELECT 'DROP FUNCTION ' || oid::regprocedure FROM pg_proc WHERE proname = 'commit_units' AND pronamespace = 'remit'::regnamespace);
END $$"""

_PUT_ANY_ROW = _PUT_ROW.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION").replace(
    "    END CASE;",
    """    WHEN 'call' THEN
        INSERT INTO call VALUES ((content->>0)::bigint, content->>1, content->>2, content->>3, content->>4, (content->>5)::bigint, content->>6,
            content->>7, content->>8, content->>9)
            ON CONFLICT (task_id, call_id) DO UPDATE SET run_id = excluded.run_id, started_at = excluded.started_at,
            ended_at = excluded.ended_at, status = excluded.status, result = excluded.result;
    WHEN 'message' THEN
        INSERT INTO message VALUES ((content->>0)::bigint, (content->>1)::bigint, content->>2, (content->>3)::bigint, content->>4, content->>5)
            ON CONFLICT (task_id, number) DO UPDATE SET run_id = excluded.run_id, turn = excluded.turn, at = excluded.at, doc = excluded.doc;
    END CASE;""",
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
    _OLD_COMMIT,
    _COMMIT_WITH_JOBS,
    _PUT_ANY_ROW,
    _CLAIM,
)

RESULTS: Migration = (
    'CREATE TABLE task_result (task_id bigint PRIMARY KEY, key text COLLATE "C" NOT NULL)',
    "CREATE INDEX task_result_key ON task_result (key, task_id)",
    _PUT_ANY_ROW.replace(
        "    END CASE;",
        """    WHEN 'task_result' THEN
        INSERT INTO task_result VALUES ((content->>0)::bigint, content->>1) ON CONFLICT DO NOTHING;
    END CASE;""",
    ),
)

PLACES: Migration = (
    "ALTER TABLE worker ADD COLUMN place text NOT NULL DEFAULT ''",
    "ALTER TABLE worker ADD COLUMN models text NOT NULL DEFAULT ''",
)

MIGRATIONS: tuple[Migration, ...] = (FIRST, ENGINE, RESULTS, PLACES)


async def migrate(connection: Any, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the database to the newest schema; safe when several processes start at once."""
    found = await _version(connection)
    if found < len(migrations):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version int NOT NULL)")
            found = await _version(connection)
            for migration in migrations[found:]:
                for statement in migration:
                    await connection.execute(statement)
            if found < len(migrations):
                await connection.execute("DELETE FROM schema_version")
                await connection.execute("INSERT INTO schema_version VALUES ($1)", len(migrations))
    if found > len(migrations):
        raise NewerSchema(f"The database has schema {found}; this remit knows {len(migrations)}.", hint="Upgrade remit, or use another database.")


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
