CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    at text COLLATE "C",
    later bigint NOT NULL,
    worker text,
    beat timestamptz,
    tries bigint NOT NULL DEFAULT 0 ) WITH (fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- Each key has at most one queued job. A claimed job may have a queued successor.
CREATE UNIQUE INDEX job_queued ON job (key) WHERE worker IS NULL;

CREATE INDEX job_key ON job (key);

CREATE INDEX job_ready_queue ON job (queue, priority, id) WHERE worker IS NULL AND later = 0;

CREATE INDEX job_later ON job (at) WHERE worker IS NULL AND later = 1;

CREATE INDEX job_claimed ON job (queue, beat) WHERE worker IS NOT NULL;

CREATE TABLE worker (
    worker text PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    version text NOT NULL,
    agents text NOT NULL,
    concurrency bigint NOT NULL,
    since text NOT NULL,
    running bigint NOT NULL,
    beat timestamptz NOT NULL
);

CREATE TABLE call (
    task_id bigint NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    run_id text NOT NULL,
    tool text NOT NULL,
    arguments text NOT NULL,
    repeatable bigint NOT NULL,
    started_at text COLLATE "C" NOT NULL,
    ended_at text,
    status text NOT NULL,
    result text,
    PRIMARY KEY (task_id, call_id)
);

CREATE TABLE message (
    task_id bigint NOT NULL,
    number bigint NOT NULL,
    run_id text NOT NULL,
    turn bigint NOT NULL,
    at text COLLATE "C" NOT NULL,
    doc text NOT NULL,
    PRIMARY KEY (task_id, number)
);

CREATE TABLE budget (
    root_id bigint PRIMARY KEY,
    tokens bigint NOT NULL,
    cost float8 NOT NULL
);

CREATE INDEX task_waiting ON task (id) WHERE state = 'waiting';

CREATE FUNCTION without(content json, bad int[]) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN cardinality(bad) = 0 THEN content ELSE (
        SELECT json_agg(item ORDER BY n) FROM json_array_elements(content) WITH ORDINALITY
            AS i (item, n) WHERE NOT (item->>'unit')::int = ANY(bad)
    ) END;
END $$;

CREATE FUNCTION put_rows(name text, content json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE name
    WHEN 'task' THEN
        INSERT INTO task SELECT * FROM json_populate_recordset(NULL::task, content)
            ON CONFLICT (id) DO UPDATE SET title = excluded.title, state = excluded.state,
                owner = excluded.owner, parent_id = excluded.parent_id,
            session_id = excluded.session_id, priority = excluded.priority, wait = excluded.wait,
                not_before = excluded.not_before,
            started_at = excluded.started_at, updated_at = excluded.updated_at,
                archived_at = excluded.archived_at, version = excluded.version,
            hash = excluded.hash, doc = excluded.doc;
    WHEN 'run' THEN
        INSERT INTO run SELECT * FROM json_populate_recordset(NULL::run, content)
            ON CONFLICT (task_id, number) DO UPDATE
                SET ended_at = excluded.ended_at, outcome = excluded.outcome,
                    error = excluded.error;
    WHEN 'message' THEN
        INSERT INTO message SELECT * FROM json_populate_recordset(NULL::message, content)
            ON CONFLICT (task_id, number) DO UPDATE
                SET run_id = excluded.run_id, turn = excluded.turn, at = excluded.at,
                    doc = excluded.doc;
    WHEN 'call' THEN
        INSERT INTO call SELECT * FROM json_populate_recordset(NULL::call, content)
            ON CONFLICT (task_id, call_id) DO UPDATE
                SET run_id = excluded.run_id, started_at = excluded.started_at,
            ended_at = excluded.ended_at, status = excluded.status, result = excluded.result;
    WHEN 'task_update' THEN
        INSERT INTO task_update SELECT * FROM json_populate_recordset(NULL::task_update, content)
            ON CONFLICT (task_id, number) DO UPDATE
                SET status = excluded.status, run_id = excluded.run_id, turn = excluded.turn;
    WHEN 'interaction' THEN
        INSERT INTO interaction SELECT * FROM json_populate_recordset(NULL::interaction, content)
            ON CONFLICT (task_id, number) DO UPDATE
                SET status = excluded.status, answer = excluded.answer,
            answered_by = excluded.answered_by, answered_at = excluded.answered_at;
    WHEN 'notification' THEN
        INSERT INTO notification SELECT * FROM json_populate_recordset(NULL::notification, content);
    WHEN 'task_label' THEN
        INSERT INTO task_label SELECT * FROM json_populate_recordset(NULL::task_label, content)
            ON CONFLICT DO NOTHING;
    WHEN 'not task_label' THEN
        DELETE FROM task_label USING json_populate_recordset(NULL::task_label, content) AS gone
            WHERE task_label.task_id = gone.task_id AND task_label.label = gone.label;
    WHEN 'task_dependency' THEN
        INSERT INTO task_dependency SELECT * FROM json_populate_recordset(NULL::task_dependency,
            content)
            ON CONFLICT (task_id, needs) DO UPDATE SET rule = excluded.rule;
    WHEN 'not task_dependency' THEN
        DELETE FROM task_dependency USING json_populate_recordset(NULL::task_dependency,
            content) AS gone
            WHERE task_dependency.task_id = gone.task_id AND task_dependency.needs = gone.needs;
    WHEN 'task_result' THEN
        INSERT INTO task_result SELECT * FROM json_populate_recordset(NULL::task_result, content)
            ON CONFLICT DO NOTHING;
    WHEN 'guide' THEN
        INSERT INTO guide SELECT * FROM json_populate_recordset(NULL::guide, content);
    END CASE;
END $$;

CREATE FUNCTION commit_units(
    guards json, dependents json, firsts json, events json, names text[], contents json[],
        leases json, drops json, jobs json, debits json
) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    bad int[];
    lost int[] := '{}';
    over int[] := '{}';
    held bigint[] := '{}';
    done text[] := '{}';
    acknowledged boolean := false;
    news boolean := false;
    fate int[];
    other record;
BEGIN
    -- Lock the rows of the whole batch in id order, so that two batches cannot deadlock.
    SELECT array_agg(g.task) INTO held FROM json_to_recordset(guards) AS g (task bigint);
    PERFORM 1 FROM task WHERE id = ANY(held) ORDER BY id FOR NO KEY UPDATE;
    IF leases IS NOT NULL THEN
        SELECT array_agg(l.job), bool_or(l.ack) INTO held, acknowledged
            FROM json_to_recordset(leases) AS l (job bigint, ack boolean);
        PERFORM 1 FROM job WHERE id = ANY(held) ORDER BY id FOR UPDATE;
    END IF;
    -- A new statement has a new snapshot: it sees commits that happened while we waited for the
    -- locks.
    SELECT COALESCE(array_agg(DISTINCT g.unit), '{}') INTO bad
        FROM json_to_recordset(guards) AS g (unit int, task bigint, stream text, expected bigint)
        WHERE g.expected <> COALESCE(CASE WHEN g.task IS NULL
            THEN (SELECT MAX(version) FROM event WHERE event.stream = g.stream) ELSE (SELECT version
                FROM task WHERE id = g.task) END, 0);
    IF dependents IS NOT NULL THEN
        SELECT bad || COALESCE(array_agg(d.unit), '{}') INTO bad FROM json_to_recordset(dependents)
            AS d (unit int, task bigint, count bigint)
            WHERE d.count <> (SELECT COUNT(*) FROM task_dependency WHERE needs = d.task);
    END IF;
    IF leases IS NOT NULL THEN
        SELECT COALESCE(array_agg(l.unit), '{}') INTO lost FROM json_to_recordset(leases)
            AS l (unit int, job bigint, worker text)
            WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.id = l.job AND job.worker = l.worker);
        bad := bad || lost;
    END IF;
    IF debits IS NOT NULL THEN
        FOR other IN SELECT * FROM json_to_recordset(debits)
            AS b (unit int, root_id bigint, tokens bigint, cost float8, max_tokens bigint,
                max_cost float8, used_tokens bigint, used_cost float8)
            WHERE NOT b.unit = ANY(bad) ORDER BY b.root_id
        LOOP
            INSERT INTO budget VALUES (other.root_id, other.used_tokens, other.used_cost)
                ON CONFLICT DO NOTHING;
            UPDATE budget SET tokens = budget.tokens + other.tokens, cost = budget.cost + other.cost
                WHERE root_id = other.root_id
                AND (other.max_tokens IS NULL OR budget.tokens + other.tokens <= other.max_tokens)
                AND (other.max_cost IS NULL OR budget.cost + other.cost <= other.max_cost);
            IF NOT FOUND THEN
                over := over || other.unit;
            END IF;
        END LOOP;
        bad := bad || over;
    END IF;
    IF events IS NOT NULL THEN
        INSERT INTO event (id, stream, version, type, at, actor, data, hash)
            SELECT id, stream, version, type, at, actor, data, hash
            FROM json_populate_recordset(NULL::event, without(events, bad)) WITH ORDINALITY
                ORDER BY ordinality;
    END IF;
    FOR other IN SELECT * FROM unnest(names, contents) AS c (name, content)
    LOOP
        PERFORM put_rows(other.name, without(other.content, bad));
    END LOOP;
    IF acknowledged THEN
        WITH gone AS (
            DELETE FROM job USING json_to_recordset(leases) AS l (unit int, job bigint, ack boolean)
                WHERE job.id = l.job AND l.ack AND NOT l.unit = ANY(bad) RETURNING job.key
        ) SELECT array_agg(key) INTO done FROM gone;
    END IF;
    IF drops IS NOT NULL THEN
        DELETE FROM job USING json_to_recordset(drops) AS x (unit int, key text)
            WHERE job.key = x.key AND job.worker IS NULL AND NOT x.unit = ANY(bad);
    END IF;
    -- Sorted by key, so that two batches cannot deadlock; shorter keys first, so that task 2 runs
    -- before task 10. The update locks a queued row until the commit, so a worker that claims it
    -- sees its events.
    IF jobs IS NOT NULL THEN
        INSERT INTO job (key, queue, priority, at, later)
            SELECT DISTINCT ON (length(j.key), j.key) j.key, j.queue, j.priority, j.at,
                (j.at IS NOT NULL)::int
            FROM ROWS FROM (json_to_recordset(jobs) AS (unit int, key text, queue text,
                priority bigint, at text, if_needed_by_others bigint))
                WITH ORDINALITY AS j (unit, key, queue, priority, at, needed, n)
            WHERE NOT j.unit = ANY(bad) AND (j.needed IS NULL OR EXISTS (SELECT 1
                FROM task_dependency WHERE needs = j.needed))
            ORDER BY length(j.key), j.key, j.n DESC
            ON CONFLICT (key) WHERE worker IS NULL DO UPDATE
                SET queue = excluded.queue, priority = excluded.priority, at = excluded.at,
                later = excluded.later;
        news := FOUND;
    END IF;
    -- A job that waited behind an acknowledged job with the same key can be claimed now.
    IF news OR EXISTS (SELECT 1 FROM job WHERE key = ANY(done) AND worker IS NULL) THEN
        PERFORM pg_notify('remit_job', '');
    END IF;
    PERFORM pg_notify('remit_event', '');
    -- A stale unit may already be stored, if its acknowledgement was lost.
    SELECT array_agg(CASE WHEN NOT f.n - 1 = ANY(bad) THEN 0
            WHEN EXISTS (SELECT 1 FROM event WHERE event.stream = f.stream
                AND event.version = f.version AND event.id = f.id) THEN 1
            WHEN f.n - 1 = ANY(lost) THEN 3 WHEN f.n - 1 = ANY(over) THEN 4 ELSE 2 END ORDER BY f.n)
                INTO fate
        FROM ROWS FROM (json_to_recordset(firsts) AS (stream text, version bigint, id text)) WITH
            ORDINALITY AS f (stream, version, id, n);
    RETURN fate;
END $$;

CREATE FUNCTION next_in(queues text[], room bigint,
    lease_seconds float8) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    mine text[] := array_append(CASE WHEN room > 0 THEN queues ELSE '{}' END, 'signals');
    wait float8;
BEGIN
    -- A successor waits for the previous job with its key, or two workers would run one task.
    IF EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND later = 0 AND queue = ANY(mine)
        AND NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key
            AND held.worker IS NOT NULL))
    THEN
        RETURN 0;
    END IF;
    wait := LEAST(
        (SELECT EXTRACT(EPOCH FROM MIN(at)::timestamptz - clock_timestamp()) FROM job
            WHERE worker IS NULL AND later = 1 AND queue = ANY(mine)),
        (SELECT EXTRACT(EPOCH FROM MIN(beat) - clock_timestamp()) + lease_seconds FROM job
            WHERE worker IS NOT NULL AND queue = ANY(mine))
    );
    RETURN CASE WHEN wait < 0 THEN 0 ELSE wait END;
END $$;

CREATE FUNCTION claim_jobs(
    me text, queues text[], limits int[], room int, signals int, lease_seconds float8, fleet int
) RETURNS TABLE (id bigint, key text, queue text, priority bigint, tries bigint, at text,
    seconds float8) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    chosen bigint[];
    more bigint[];
    taken bigint;
    asked int := room;
    since timestamptz := clock_timestamp() - make_interval(secs => lease_seconds);
BEGIN
    -- With many workers, most wakes find no job: this lookup takes no locks.
    seconds := next_in(queues, room, lease_seconds);
    IF seconds IS NULL OR seconds > 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- If a crash of the server undoes a claim, the job is claimed again.
    PERFORM set_config('synchronous_commit', 'off', true);
    IF fleet > 0 OR 0 < ANY(limits) THEN
        PERFORM pg_advisory_xact_lock(7236002);
    END IF;
    UPDATE job SET later = 0 WHERE id IN (
        SELECT id FROM job WHERE worker IS NULL AND later = 1
            AND at <= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        FOR UPDATE SKIP LOCKED);
    SELECT COALESCE(array_agg(id), '{}') INTO chosen FROM (
        SELECT id FROM job WHERE queue = 'signals' AND worker IS NULL AND later = 0
            AND NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key
                AND held.worker IS NOT NULL)
            ORDER BY priority, id LIMIT signals FOR UPDATE SKIP LOCKED
    ) AS signal;
    SELECT chosen || COALESCE(array_agg(id), '{}') INTO chosen FROM (
        SELECT id FROM job WHERE queue = 'signals' AND worker IS NOT NULL AND beat < since
            ORDER BY id LIMIT signals FOR UPDATE SKIP LOCKED
    ) AS left_signal;
    SELECT COALESCE(array_agg(id), '{}') INTO more FROM (
        SELECT id FROM job WHERE queue = ANY(queues) AND worker IS NOT NULL AND beat < since
            ORDER BY beat LIMIT room FOR UPDATE SKIP LOCKED
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
                    THEN q.most - (SELECT COUNT(*) FROM job WHERE job.queue = q.queue
                        AND worker IS NOT NULL) ELSE room END AS free
                FROM unnest(queues, limits) AS q (queue, most)
            ) AS open
            CROSS JOIN LATERAL (
                SELECT id, priority FROM job WHERE job.queue = open.queue AND worker IS NULL
                    AND later = 0
                AND NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key
                    AND held.worker IS NOT NULL)
                ORDER BY priority, id LIMIT GREATEST(0, LEAST(room,
                    open.free)) FOR UPDATE SKIP LOCKED
            ) AS run
            ORDER BY run.priority, run.id LIMIT room
        ) AS best;
    END IF;
    RETURN QUERY UPDATE job SET worker = me, beat = clock_timestamp(), tries = tries + 1
        WHERE id = ANY(chosen)
        RETURNING job.id, job.key, job.queue, job.priority, job.tries, job.at, NULL::float8;
    seconds := CASE WHEN FOUND THEN NULL ELSE next_in(queues, asked, lease_seconds) END;
    RETURN NEXT;
END $$;
