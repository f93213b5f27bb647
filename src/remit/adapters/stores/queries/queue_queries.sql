-- name: held
SELECT t.hash, t.doc, (SELECT worker FROM job WHERE id = :job) FROM task t WHERE t.id = :id;

-- name: queued
SELECT key, at, worker FROM job WHERE key IN [names] ORDER BY id;

-- name: jobs
SELECT id, key, queue, priority, at, worker, tries FROM job ORDER BY id LIMIT :limit;

-- name: job_count
SELECT queue, SUM(CASE WHEN worker IS NULL THEN 1 ELSE 0 END),
    SUM(CASE WHEN worker IS NULL THEN 0 ELSE 1 END)
FROM job
GROUP BY queue
ORDER BY queue;

-- name: scheduled
SELECT t.id FROM task t
WHERE t.state = 'pending'
    AND t.started_at IS NULL
    AND t.doc LIKE '%"cron"%'
    AND t.id > :after
ORDER BY t.id LIMIT :limit;

-- name: recurring
SELECT t.id FROM task t {task_live}
WHERE t.archived_at IS NULL
    AND t.parent_id IS NULL
    AND t.started_at IS NOT NULL
    AND t.doc LIKE '%"cron"%'
    AND t.id > :after
ORDER BY t.id LIMIT :limit;

-- name: series
SELECT t.id FROM task t {task_live}
WHERE t.archived_at IS NULL
    AND (t.id = :id OR t.doc LIKE :pattern)
ORDER BY t.id DESC;

-- name: ticking
SELECT id FROM task
WHERE state = 'waiting'
    AND wait LIKE '%"tick"%'
    AND id > :after
ORDER BY id LIMIT :limit;

-- name: turning
SELECT t.id FROM task t {task_live}
WHERE t.archived_at IS NULL
    AND t.state IN ('pending', 'running', 'paused')
    AND t.id > :after
    AND t.started_at IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM event e
        WHERE e.stream = CAST(t.id AS TEXT)
            AND e.type = 'TaskWoken'
            AND e.data LIKE '%"cause":"tick"%'
            AND NOT EXISTS (
                SELECT 1 FROM event y
                WHERE y.stream = e.stream
                    AND y.version > e.version
                    AND y.type = 'RunYielded'
            )
    )
ORDER BY t.id LIMIT :limit;
