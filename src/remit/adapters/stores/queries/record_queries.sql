-- name: updates
SELECT update_id, type, content, status, run_id, turn, at
FROM task_update
WHERE task_id = :id
    AND number > :after
ORDER BY number LIMIT :limit;

-- name: interactions
SELECT interaction_id, task_id, question, options, blocking, asked_by, asked_at, status,
    answer, answered_by, answered_at, allow_other
FROM interaction
WHERE status IN [statuses]
    AND (:task IS NULL OR task_id = :task)
    AND (task_id, number) > (:after, :number)
ORDER BY task_id, number LIMIT :limit;

-- name: interaction
SELECT interaction_id, task_id, question, options, blocking, asked_by, asked_at, status,
    answer, answered_by, answered_at, allow_other
FROM interaction
WHERE interaction_id = :interaction;

-- name: call_answers
SELECT call_id, answer FROM interaction WHERE task_id = :id AND call_id IS NOT NULL;

-- name: notifications
SELECT notification_id, task_id, message, actor, at
FROM notification
WHERE (at, notification_id) > (:after_at, :after_id)
ORDER BY at, notification_id LIMIT :limit;

-- name: guides
SELECT id, title, created_by, created_at
FROM guide
WHERE id > :after_id
ORDER BY id LIMIT :limit;

-- name: guide
SELECT id, title, body, created_by, created_at FROM guide WHERE id IN [names] ORDER BY id;
