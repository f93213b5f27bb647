-- fragment: free
-- The key has no claimed job: a successor waits until the job before it is done, or two
-- workers would run one task.
NOT EXISTS (SELECT 1 FROM job held WHERE held.key = job.key AND held.worker IS NOT NULL)

-- name: put_job
INSERT INTO job (key, queue, priority, at, later, root)
VALUES (:key, :queue, :priority, :at, :at IS NOT NULL, :root)
ON CONFLICT (key) WHERE worker IS NULL DO UPDATE
SET queue = excluded.queue, priority = excluded.priority, at = excluded.at,
    later = excluded.later, root = excluded.root;

-- name: needed
SELECT EXISTS (SELECT 1 FROM task_dependency WHERE needs = ?);

-- name: drop_job
DELETE FROM job WHERE key = ? AND worker IS NULL;

-- name: ack
DELETE FROM job WHERE id = ? AND worker = ?;

-- name: promote
UPDATE job SET later = 0 WHERE worker IS NULL AND later = 1 AND at <= :now;

-- name: expired
SELECT id, key, queue, tries, at, NULL, NULL, seen
FROM job
WHERE worker IS NOT NULL
    AND (beat < :now - :lease OR beat > :now + 1)
    AND queue IN (SELECT value FROM json_each(:queues))
ORDER BY beat;

-- name: queued
SELECT id, key, queue, tries, at, NULL, NULL, seen
FROM job INDEXED BY job_ready
WHERE worker IS NULL
    AND later = 0
    AND queue IN (SELECT value FROM json_each(:queues))
    AND <free>
ORDER BY priority, id;

-- name: signalled
SELECT id, key, queue, tries, at FROM job INDEXED BY job_ready_queue
WHERE worker IS NULL
    AND later = 0
    AND queue = :queue
    AND <free>
ORDER BY priority, id LIMIT :limit;

-- name: claimed
SELECT queue, COUNT(*) FROM job WHERE worker IS NOT NULL GROUP BY queue;

-- name: document
SELECT hash, doc FROM task WHERE id = ?;

-- name: take
-- A job keeps the last heartbeat of its former holder until the new holder's first one.
UPDATE job
SET worker = :worker, beat = :now, tries = tries + 1, seen = COALESCE(seen, :at)
WHERE id = :job;

-- name: beat
UPDATE job
SET beat = :now, seen = :at
WHERE worker = :worker
    AND id IN (SELECT value FROM json_each(:jobs));

-- name: lost
SELECT id FROM job
WHERE id IN (SELECT value FROM json_each(:jobs))
    AND worker IS NOT :worker;

-- name: give_back
UPDATE OR REPLACE job
SET worker = NULL, beat = NULL, at = COALESCE(:at, at), later = :at IS NOT NULL
WHERE id = :job
    AND worker = :worker;

-- name: hello
INSERT INTO worker (
    worker, host, pid, version, agents, concurrency, since, running, beat, place, models, scope
)
VALUES (
    :worker, :host, :pid, :version, :agents, :concurrency, :since, :running, :beat, :place,
        :models, :scope
)
ON CONFLICT (worker) DO UPDATE
SET running = excluded.running, beat = excluded.beat, agents = excluded.agents,
    models = excluded.models, scope = excluded.scope;

-- name: forget
DELETE FROM worker WHERE beat < :now - :age OR beat > :now + 1;

-- name: leave
DELETE FROM worker WHERE worker = ?;

-- name: expire
UPDATE job SET beat = -1e9 WHERE worker = ?;

-- name: workers
SELECT worker, host, pid, version, agents, concurrency, since, running, :now - beat, place,
    models, scope FROM worker
WHERE beat <= :now + 1
ORDER BY since, worker;

-- name: ready
SELECT EXISTS (
    SELECT 1 FROM job INDEXED BY job_ready_queue
    WHERE worker IS NULL
        AND later = 0
        AND queue IN (SELECT value FROM json_each(:queues))
        AND <free>
);

-- name: busy
SELECT EXISTS (SELECT 1 FROM job WHERE worker IS NOT NULL)
    OR EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND later = 0)
    OR EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND key GLOB 'limit/*')
    OR EXISTS (SELECT 1 FROM job WHERE worker IS NULL AND key GLOB 'timer/*')
    OR EXISTS (
        SELECT 1 FROM job
        WHERE worker IS NULL
            AND later = 1
            AND at < :soon
            AND key GLOB 'run/*'
    );

-- name: next_at
SELECT MIN(at) FROM job
WHERE worker IS NULL
    AND later = 1
    AND queue IN (SELECT value FROM json_each(:queues));

-- name: next_beat
SELECT MIN(beat) FROM job
WHERE worker IS NOT NULL
    AND queue IN (SELECT value FROM json_each(:queues));

-- Statements whose names end in _of are for a worker that serves some trees only: each root
-- is looked up separately.

-- name: expired_of
SELECT id, key, queue, tries, at, NULL, NULL, seen
FROM job
WHERE worker IS NOT NULL
    AND (beat < :now - :lease OR beat > :now + 1)
    AND queue IN (SELECT value FROM json_each(:queues))
    AND root IN (SELECT value FROM json_each(:roots))
ORDER BY beat;

-- name: queued_of
SELECT found.id, found.key, found.queue, found.tries, found.at, NULL, NULL, found.seen
FROM json_each(:roots) AS tree
CROSS JOIN job AS found
WHERE found.id IN (
    SELECT job.id FROM job INDEXED BY job_ready_root
    WHERE job.root = tree.value
        AND worker IS NULL
        AND later = 0
        AND queue IN (SELECT value FROM json_each(:queues))
        AND <free>
    ORDER BY priority, job.id LIMIT :room
)
ORDER BY found.priority, found.id;

-- name: signalled_of
SELECT job.id, job.key, queue, tries, at
FROM json_each(:roots) AS tree
CROSS JOIN job INDEXED BY job_ready_root ON job.root = tree.value
WHERE worker IS NULL
    AND later = 0
    AND priority = 0
    AND queue = :queue
    AND <free>
ORDER BY priority, job.id LIMIT :limit;

-- name: ready_of
SELECT EXISTS (
    SELECT 1 FROM json_each(:roots) AS tree
    CROSS JOIN job INDEXED BY job_ready_root ON job.root = tree.value
    WHERE worker IS NULL
        AND later = 0
        AND queue IN (SELECT value FROM json_each(:queues))
        AND <free>
);

-- name: next_at_of
SELECT MIN(at) FROM json_each(:roots) AS tree
CROSS JOIN job INDEXED BY job_later_root ON job.root = tree.value
WHERE worker IS NULL
    AND later = 1
    AND queue IN (SELECT value FROM json_each(:queues));

-- name: next_beat_of
SELECT MIN(beat) FROM job
WHERE worker IS NOT NULL
    AND queue IN (SELECT value FROM json_each(:queues))
    AND root IN (SELECT value FROM json_each(:roots));

-- name: attend
INSERT INTO attendance (root_id, at)
SELECT value, :at FROM json_each(:roots) WHERE TRUE
ON CONFLICT (root_id) DO UPDATE SET at = excluded.at;

-- name: unattend
DELETE FROM attendance
WHERE root_id > 0
    AND NOT EXISTS (
        SELECT 1 FROM task INDEXED BY task_tree
        WHERE task.root_id = attendance.root_id
            AND archived_at IS NULL
    );
