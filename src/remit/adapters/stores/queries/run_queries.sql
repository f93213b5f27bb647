-- name: live_runs
SELECT r.task_id, r.run_id, t.state, t.version
FROM run r
JOIN task t ON t.id = r.task_id
WHERE r.outcome IS NULL
    AND r.task_id IN [ids]
ORDER BY r.task_id;

-- name: running
SELECT worker, COUNT(*) FROM run WHERE outcome IS NULL GROUP BY worker ORDER BY worker;

-- name: calls
SELECT task_id, call_id, run_id, tool, arguments, repeatable, started_at, ended_at, status, result
FROM call
WHERE task_id = :id
ORDER BY started_at, call_id;

-- name: call
SELECT task_id, call_id, run_id, tool, arguments, repeatable, started_at, ended_at, status, result
FROM call
WHERE task_id = :id
    AND call_id = :call;

-- name: messages
SELECT task_id, number, run_id, turn, at, doc
FROM message
WHERE task_id = :id
    AND number > :after
ORDER BY number LIMIT :limit;

-- name: pulse
SELECT t.id, t.version,
    COALESCE((SELECT MAX(number) FROM message m WHERE m.task_id = t.id), 0),
    (SELECT COUNT(*) FROM call c WHERE c.task_id = t.id AND c.status = 'denied')
FROM task t
WHERE t.id IN [ids]
ORDER BY t.id;
