ALTER TABLE job ADD COLUMN root bigint NOT NULL DEFAULT 0;

ALTER TABLE job ADD COLUMN seen text COLLATE "C";

UPDATE job SET root = COALESCE(
    (SELECT root_id FROM task WHERE id = substring(job.key FROM '/([0-9]+)')::bigint), 0)
        WHERE key <> 'tick';

CREATE INDEX job_ready_root ON job (root, priority, id) WHERE worker IS NULL AND later = 0;

CREATE INDEX job_later_root ON job (root, at) WHERE worker IS NULL AND later = 1;

ALTER TABLE worker ADD COLUMN scope text NOT NULL DEFAULT '';

ALTER TABLE task ADD COLUMN via text;

CREATE INDEX task_live_via ON task (via, root_id) WHERE via IS NOT NULL AND archived_at IS NULL;

CREATE TABLE attendance (
    root_id bigint PRIMARY KEY,
    at text COLLATE "C" NOT NULL
);

CREATE OR REPLACE FUNCTION commit_units(
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
        INSERT INTO job (key, queue, priority, at, later, root)
            SELECT DISTINCT ON (length(j.key), j.key) j.key, j.queue, j.priority, j.at,
                (j.at IS NOT NULL)::int, j.root
            FROM ROWS FROM (json_to_recordset(jobs) AS (unit int, key text, queue text,
                priority bigint, at text, if_needed_by_others bigint, root bigint))
                WITH ORDINALITY AS j (unit, key, queue, priority, at, needed, root, n)
            WHERE NOT j.unit = ANY(bad) AND (j.needed IS NULL OR EXISTS (SELECT 1
                FROM task_dependency WHERE needs = j.needed))
            ORDER BY length(j.key), j.key, j.n DESC
            ON CONFLICT (key) WHERE worker IS NULL DO UPDATE
                SET queue = excluded.queue, priority = excluded.priority, at = excluded.at,
                later = excluded.later, root = excluded.root;
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

CREATE OR REPLACE FUNCTION put_rows(name text, content json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE name
    WHEN 'task' THEN
        INSERT INTO task SELECT * FROM json_populate_recordset(NULL::task, content)
            ON CONFLICT (id) DO UPDATE SET title = excluded.title, state = excluded.state,
                owner = excluded.owner, parent_id = excluded.parent_id, root_id = excluded.root_id,
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

-- To change the columns that a function returns, drop and create it.
DROP FUNCTION claim_jobs(text, text[], int[], int, int, float8, int);

CREATE OR REPLACE FUNCTION claim_jobs(
    me text, queues text[], limits int[], room int, signals int, lease_seconds float8, fleet int
) RETURNS TABLE (id bigint, key text, queue text, priority bigint, tries bigint, at text, seen text,
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
    RETURN QUERY UPDATE job SET worker = me, beat = clock_timestamp(), tries = tries + 1,
        seen = COALESCE(seen, to_char(clock_timestamp() AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) WHERE id = ANY(chosen)
        RETURNING job.id, job.key, job.queue, job.priority, job.tries, job.at, job.seen,
            NULL::float8;
    seconds := CASE WHEN FOUND THEN NULL ELSE next_in(queues, asked, lease_seconds) END;
    RETURN NEXT;
END $$;

CREATE FUNCTION next_in_of(roots bigint[], queues text[], room bigint, lease_seconds float8)
RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    mine text[] := array_append(CASE WHEN room > 0 THEN queues ELSE '{}' END, 'signals');
    wait float8;
BEGIN
    IF EXISTS (
        SELECT 1 FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
            SELECT 1 FROM job WHERE job.root = tree.root AND worker IS NULL AND later = 0
                AND queue = ANY(mine) AND NOT EXISTS (SELECT 1 FROM job held
                    WHERE held.key = job.key AND held.worker IS NOT NULL) LIMIT 1
        ) AS ready
    ) THEN
        RETURN 0;
    END IF;
    wait := LEAST(
        (SELECT EXTRACT(EPOCH FROM MIN(first.at)::timestamptz - clock_timestamp())
            FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
                SELECT at FROM job WHERE job.root = tree.root AND worker IS NULL AND later = 1
                    AND queue = ANY(mine) ORDER BY at LIMIT 1
            ) AS first),
        (SELECT EXTRACT(EPOCH FROM MIN(beat) - clock_timestamp()) + lease_seconds
            FROM job WHERE worker IS NOT NULL AND queue = ANY(mine) AND root = ANY(roots))
    );
    RETURN CASE WHEN wait < 0 THEN 0 ELSE wait END;
END $$;

CREATE FUNCTION claim_jobs_of(
    roots bigint[], me text, queues text[], limits int[], room int, signals int,
        lease_seconds float8, fleet int
) RETURNS TABLE (id bigint, key text, queue text, priority bigint, tries bigint, at text, seen text,
    seconds float8) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    chosen bigint[];
    more bigint[];
    free text[];
    taken bigint;
    asked int := room;
    since timestamptz := clock_timestamp() - make_interval(secs => lease_seconds);
BEGIN
    seconds := next_in_of(roots, queues, room, lease_seconds);
    IF seconds IS NULL OR seconds > 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF fleet > 0 OR 0 < ANY(limits) THEN
        PERFORM pg_advisory_xact_lock(7236002);
    END IF;
    UPDATE job SET later = 0 WHERE id IN (
        SELECT id FROM job WHERE worker IS NULL AND later = 1
            AND at <= to_char(clock_timestamp() AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FOR UPDATE SKIP LOCKED);
    SELECT COALESCE(array_agg(id), '{}') INTO chosen FROM (
        SELECT signal.id FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
            SELECT id FROM job WHERE job.root = tree.root AND priority = 0 AND worker IS NULL
                AND later = 0 AND queue = 'signals' AND NOT EXISTS (SELECT 1 FROM job held
                    WHERE held.key = job.key AND held.worker IS NOT NULL)
                ORDER BY priority, id LIMIT signals FOR UPDATE SKIP LOCKED
        ) AS signal ORDER BY signal.id LIMIT signals
    ) AS signals_of_mine;
    SELECT chosen || COALESCE(array_agg(id), '{}') INTO chosen FROM (
        SELECT id FROM job WHERE queue = 'signals' AND worker IS NOT NULL AND beat < since
            AND root = ANY(roots)
            ORDER BY id LIMIT signals FOR UPDATE SKIP LOCKED
    ) AS left_signal;
    SELECT COALESCE(array_agg(id), '{}') INTO more FROM (
        SELECT id FROM job WHERE queue = ANY(queues) AND worker IS NOT NULL AND beat < since
            AND root = ANY(roots)
            ORDER BY beat LIMIT room FOR UPDATE SKIP LOCKED
    ) AS left_run;
    chosen := chosen || more;
    room := room - cardinality(more);
    IF fleet > 0 THEN
        SELECT COUNT(*) INTO taken FROM job WHERE worker IS NOT NULL AND queue <> 'signals';
        room := LEAST(room, fleet - taken);
    END IF;
    SELECT array_agg(q.queue) INTO free FROM unnest(queues, limits) AS q (queue, most)
        WHERE q.most = 0 OR q.most > (SELECT COUNT(*) FROM job WHERE job.queue = q.queue
            AND worker IS NOT NULL);
    IF room > 0 AND free IS NOT NULL THEN
        SELECT chosen || COALESCE(array_agg(id), '{}') INTO chosen FROM (
            SELECT best.id FROM (
                SELECT run.id, run.priority, run.queue, row_number() OVER (PARTITION BY run.queue
                    ORDER BY run.priority, run.id) AS place
                FROM unnest(roots) AS tree (root) CROSS JOIN LATERAL (
                    SELECT id, priority, queue FROM job
                    WHERE job.root = tree.root AND worker IS NULL AND later = 0
                        AND queue = ANY(free) AND NOT EXISTS (SELECT 1 FROM job held
                            WHERE held.key = job.key AND held.worker IS NOT NULL)
                    ORDER BY priority, id LIMIT CASE WHEN 0 < ANY(limits) THEN NULL
                        ELSE room END FOR UPDATE SKIP LOCKED
                ) AS run
            ) AS best JOIN unnest(queues, limits) AS q (queue, most) ON q.queue = best.queue
            WHERE q.most = 0 OR best.place <= q.most - (SELECT COUNT(*) FROM job
                WHERE job.queue = q.queue AND worker IS NOT NULL)
            ORDER BY best.priority, best.id LIMIT room
        ) AS runs_of_mine;
    END IF;
    RETURN QUERY UPDATE job SET worker = me, beat = clock_timestamp(), tries = tries + 1,
        seen = COALESCE(seen, to_char(clock_timestamp() AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) WHERE id = ANY(chosen)
        RETURNING job.id, job.key, job.queue, job.priority, job.tries, job.at, job.seen,
            NULL::float8;
    seconds := CASE WHEN FOUND THEN NULL ELSE next_in_of(roots, queues, asked, lease_seconds) END;
    RETURN NEXT;
END $$;

CREATE FUNCTION move_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job SET root = NEW.root_id WHERE substring(key FROM '/([0-9]+)')::bigint = NEW.id;
    RETURN NULL;
END $$;

-- When a task moves to another tree, its jobs move with it.
CREATE TRIGGER task_moves AFTER UPDATE OF root_id ON task FOR EACH ROW
    WHEN (OLD.root_id IS DISTINCT FROM NEW.root_id) EXECUTE FUNCTION move_jobs();
