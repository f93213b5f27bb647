-- fragment: now
-- The start of the transaction: the commit is later if the worker stands still in between.
to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')

-- name: claim
-- The last row says in how many seconds to come back.
SELECT j.id, j.key, j.queue, j.tries, j.at, t.hash AS head, t.doc AS document, j.seen, j.seconds
FROM claim_jobs($1, $2, $3, $4, $5, $6, $7) AS j
LEFT JOIN task t ON t.id = CASE WHEN j.key LIKE 'run/%' THEN substr(j.key, 5)::bigint END
ORDER BY j.queue <> 'signals' NULLS LAST, j.priority, j.id;

-- name: claim_of
-- The same for a worker that serves some trees only.
SELECT j.id, j.key, j.queue, j.tries, j.at, t.hash AS head, t.doc AS document, j.seen, j.seconds
FROM claim_jobs_of($8, $1, $2, $3, $4, $5, $6, $7) AS j
LEFT JOIN task t ON t.id = CASE WHEN j.key LIKE 'run/%' THEN substr(j.key, 5)::bigint END
ORDER BY j.queue <> 'signals' NULLS LAST, j.priority, j.id;

-- name: hello
INSERT INTO worker (
    worker, host, pid, version, agents, concurrency, since, running, beat, place, models, scope
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(), $9, $10, $11)
ON CONFLICT (worker) DO UPDATE
SET running = excluded.running, beat = excluded.beat, agents = excluded.agents,
    models = excluded.models, scope = excluded.scope;

-- name: attend
INSERT INTO attendance
SELECT root, <now> FROM unnest($1::bigint[]) AS served (root) ORDER BY root
ON CONFLICT (root_id) DO UPDATE SET at = excluded.at;

-- name: unattend
DELETE FROM attendance
WHERE root_id > 0
    AND NOT EXISTS (
        SELECT 1 FROM task WHERE task.root_id = attendance.root_id AND archived_at IS NULL
    );

-- name: beat
UPDATE job
SET beat = clock_timestamp(), seen = <now>
WHERE worker = $1
    AND id IN (SELECT id FROM job WHERE id = ANY($2) ORDER BY id FOR UPDATE);

-- name: lost
SELECT id FROM job WHERE id = ANY($2) AND worker IS DISTINCT FROM $1;

-- name: forget
DELETE FROM worker WHERE beat < clock_timestamp() - interval '1 hour';

-- name: give_back
WITH newer AS (
    DELETE FROM job
    WHERE worker IS NULL
        AND key = (SELECT key FROM job WHERE id = $1 AND worker = $2)
) SELECT pg_notify('remit_job', '');

-- name: return
UPDATE job
SET worker = NULL, beat = NULL, later = ($3::float8 > 0)::int,
    at = CASE WHEN $3::float8 > 0
        THEN to_char((clock_timestamp() + make_interval(secs => $3)) AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        ELSE at END
WHERE id = $1
    AND worker = $2;

-- name: leave
DELETE FROM worker WHERE worker = $1;

-- name: expire
WITH expired AS (
    UPDATE job SET beat = 'epoch' WHERE worker = $1 RETURNING id
) SELECT pg_notify('remit_job', '')
WHERE EXISTS (SELECT 1 FROM expired);

-- name: workers
SELECT worker, host, pid, version, agents, concurrency, since, running,
    EXTRACT(EPOCH FROM clock_timestamp() - beat)::float8, place, models, scope
FROM worker
ORDER BY since, worker;
