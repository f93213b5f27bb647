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
        -- This lock excludes opening a ledger and storing an answer without one at the same time.
        -- Locks are taken in the order of roots, before any ledger row is locked.
        -- The first key of the lock stands for ledgers, the second is the root.
        FOR other IN SELECT b.root_id, bool_or(COALESCE(b.opens, true)) AS opens
            FROM json_to_recordset(debits) AS b (unit int, root_id bigint, opens boolean)
            WHERE NOT b.unit = ANY(bad)
                AND NOT EXISTS (SELECT 1 FROM budget WHERE budget.root_id = b.root_id)
            GROUP BY b.root_id ORDER BY b.root_id
        LOOP
            IF NOT other.opens THEN
                PERFORM pg_advisory_xact_lock_shared(20261118, hashint8(other.root_id));
                CONTINUE;
            END IF;
            PERFORM pg_advisory_xact_lock(20261118, hashint8(other.root_id));
            -- A task counts the answers of a run when the run ends; until then, count messages.
            INSERT INTO budget
                SELECT other.root_id,
                    COALESCE(SUM(GREATEST(COALESCE((used->>'input_tokens')::bigint, 0), sent)
                        + GREATEST(COALESCE((used->>'output_tokens')::bigint, 0), received)), 0),
                    COALESCE(SUM(GREATEST(COALESCE((used->>'cost')::float8, 0), paid)), 0)
                FROM (
                    SELECT task.doc::json->'usage' AS used,
                        COALESCE(SUM((message.doc::json->>'input')::bigint), 0) AS sent,
                        COALESCE(SUM((message.doc::json->>'output')::bigint), 0) AS received,
                        COALESCE(SUM((message.doc::json->>'cost')::float8), 0) AS paid
                    FROM task LEFT JOIN message
                        ON message.task_id = task.id AND task.doc::json->>'run' IS NOT NULL
                    WHERE task.root_id = other.root_id GROUP BY task.id
                ) AS stored
                ON CONFLICT DO NOTHING;
        END LOOP;
        FOR other IN SELECT * FROM json_to_recordset(debits)
            AS b (unit int, root_id bigint, tokens bigint, cost float8, max_tokens bigint,
                max_cost float8, opens boolean)
            WHERE NOT b.unit = ANY(bad) ORDER BY b.root_id
        LOOP
            UPDATE budget SET tokens = budget.tokens + other.tokens, cost = budget.cost + other.cost
                WHERE root_id = other.root_id
                AND (other.max_tokens IS NULL OR budget.tokens + other.tokens <= other.max_tokens)
                AND (other.max_cost IS NULL OR budget.cost + other.cost <= other.max_cost);
            IF NOT FOUND AND COALESCE(other.opens, true) THEN
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
