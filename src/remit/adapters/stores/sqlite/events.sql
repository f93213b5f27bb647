-- name: feed
SELECT id, stream, version, type, at, actor, data, hash, CAST(pos AS TEXT)
FROM event
WHERE pos > :after
ORDER BY pos LIMIT :limit;

-- name: tail
SELECT COALESCE(MAX(pos), 0) FROM event;

-- name: new_ids
UPDATE counter SET value = value + :count WHERE name = 'task' RETURNING value;

-- name: set_counter
UPDATE counter SET value = MAX(value, :value) WHERE name = 'task';

-- name: versions
SELECT id, version FROM task WHERE id IN (SELECT value FROM json_each(?));

-- name: holders
SELECT id, worker FROM job WHERE id IN (SELECT value FROM json_each(?));

-- name: stream_version
SELECT MAX(version) FROM event WHERE stream = ?;

-- name: dependents
SELECT COUNT(*) FROM task_dependency WHERE needs = ?;

-- name: event_at
SELECT id FROM event WHERE stream = ? AND version = ?;

-- name: insert_event
INSERT INTO event (id, stream, version, type, at, actor, data, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_event_at
INSERT INTO event (pos, id, stream, version, type, at, actor, data, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: has_budget
SELECT EXISTS (SELECT 1 FROM budget WHERE root_id = :root_id);

-- name: open_budget
-- A task counts the answers of a run when the run ends; until then, the stored messages do.
INSERT INTO budget
SELECT :root_id,
    COALESCE(SUM(MAX(COALESCE(json_extract(used, '$.input_tokens'), 0), sent)
        + MAX(COALESCE(json_extract(used, '$.output_tokens'), 0), received)), 0),
    COALESCE(SUM(MAX(COALESCE(json_extract(used, '$.cost'), 0.0), paid)), 0.0)
FROM (
    SELECT json_extract(task.doc, '$.usage') AS used,
        COALESCE(SUM(json_extract(message.doc, '$.input')), 0) AS sent,
        COALESCE(SUM(json_extract(message.doc, '$.output')), 0) AS received,
        COALESCE(SUM(json_extract(message.doc, '$.cost')), 0.0) AS paid
    FROM task INDEXED BY task_tree
    LEFT JOIN message ON message.task_id = task.id
        AND json_extract(task.doc, '$.run') IS NOT NULL
    WHERE task.root_id = :root_id
    GROUP BY task.id
);

-- name: debit
UPDATE budget
SET tokens = tokens + :tokens, cost = cost + :cost
WHERE root_id = :root_id
    AND (:max_tokens IS NULL OR tokens + :tokens <= :max_tokens)
    AND (:max_cost IS NULL OR cost + :cost <= :max_cost);
