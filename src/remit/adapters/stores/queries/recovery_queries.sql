-- name: documents
SELECT id, doc FROM task WHERE id > :after ORDER BY id LIMIT :limit;

-- name: unheard
SELECT t.id FROM task t
WHERE t.state = 'waiting'
    AND t.id > :after
    AND EXISTS (SELECT 1 FROM task_update u WHERE u.task_id = t.id AND u.status = 'queued')
ORDER BY t.id LIMIT :limit;

-- name: alarmed
SELECT id FROM task
WHERE state = 'waiting'
    AND (
        wait LIKE '%"timer"%'
            OR (wait LIKE '%"tick"%' AND doc LIKE '%"cron"%')
            OR (wait LIKE '%"subtask"%' AND doc LIKE '%"clock_since"%')
    )
    AND id > :after
ORDER BY id LIMIT :limit;

-- name: runless
SELECT r.task_id, r.run_id, r.worker FROM run r
WHERE r.outcome IS NULL
    AND r.task_id > :after
    AND NOT EXISTS (
        SELECT 1 FROM job j WHERE j.key = 'run/' || r.task_id AND j.worker IS NOT NULL
    )
ORDER BY r.task_id LIMIT :limit;

-- name: untold
SELECT DISTINCT p.id FROM task p
JOIN task c ON c.parent_id = p.id
WHERE p.archived_at IS NULL
    AND p.id > :after
    AND c.archived_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'tell/' || p.id)
ORDER BY p.id LIMIT :limit;

-- name: unreleased
SELECT DISTINCT p.id FROM task p
JOIN task_dependency d ON d.needs = p.id
JOIN task t ON t.id = d.task_id
WHERE p.id > :after
    AND p.archived_at IS NOT NULL
    AND p.state <> 'done'
    AND d.rule = 'done'
    AND t.archived_at IS NULL
    AND t.started_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'release/' || p.id)
ORDER BY p.id LIMIT :limit;

-- name: unchecked
SELECT t.id FROM task t
WHERE t.archived_at IS NULL
    AND t.state = 'verifying'
    AND t.id > :after
    AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'check/' || t.id)
ORDER BY t.id LIMIT :limit;
