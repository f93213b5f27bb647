-- fragment: summary
t.id, t.title, t.state, t.owner, t.parent_id, t.wait, t.priority, t.updated_at

-- fragment: page
-- The filters of a list, all optional; the driver before it is served by an index.
t.id < :before
    AND t.state IN [states]
    AND (:owner IS NULL OR t.owner = :owner)
    AND (:parent IS NULL OR t.parent_id = :parent)
    AND (:parent_session IS NULL OR t.parent_session_id = :parent_session)
    AND (:session IS NULL OR t.session_id = :session)
    AND (:root IS NULL OR t.root_id = :root)
    AND (
        :label IS NULL
            OR EXISTS (SELECT 1 FROM task_label m WHERE m.task_id = t.id AND m.label = :label)
    )
ORDER BY t.id DESC LIMIT :limit

-- fragment: unmet
d.task_id = t.id
    AND NOT (p.state = 'done' OR (d.rule = 'settled' AND p.state IN ('failed', 'canceled')))

-- name: tasks
SELECT id, uid, hash, doc FROM task WHERE id IN [ids] ORDER BY id;

-- name: tasks_by_uid
SELECT id, uid, hash, doc FROM task WHERE uid IN [uids] ORDER BY id;

-- name: list_live
SELECT <summary> FROM task t {task_live} WHERE t.archived_at IS NULL AND <page>;

-- name: list_owner
SELECT <summary> FROM task t {task_live_owner}
WHERE t.archived_at IS NULL
    AND t.owner = :owner
    AND <page>;

-- name: list_ended
SELECT <summary> FROM task t {task_ended}
WHERE t.archived_at IS NOT NULL
    AND t.state = :state
    AND <page>;

-- name: list_any
SELECT <summary> FROM task t WHERE TRUE AND <page>;

-- name: list_parent
SELECT <summary> FROM task t {task_parent} WHERE t.parent_id = :parent AND <page>;

-- name: list_session
SELECT <summary> FROM task t {task_parent_session}
WHERE t.parent_session_id = :parent_session
    AND <page>;

-- name: list_assigned
SELECT <summary> FROM task t {task_session} WHERE t.session_id = :session AND <page>;

-- name: list_tree
SELECT <summary> FROM task t {task_tree} WHERE t.root_id = :root AND <page>;

-- name: list_label
SELECT <summary> FROM task_label l
CROSS JOIN task t
WHERE l.label = :label
    AND t.id = l.task_id
    AND l.task_id < :before
    AND <page>;

-- name: history
SELECT <summary>, t.archived_at FROM task t
WHERE t.archived_at IS NOT NULL
    AND (t.archived_at, t.id) < (:before_at, :before)
ORDER BY t.archived_at DESC, t.id DESC LIMIT :limit;

-- name: ready
SELECT <summary> FROM task t {task_ready}
WHERE t.state = 'pending'
    AND (t.priority, t.id) > (:priority, :after)
    AND t.owner IS NOT NULL
    AND t.session_id IS NULL
    AND (t.not_before IS NULL OR t.not_before <= :now)
    AND NOT EXISTS (SELECT 1 FROM task_dependency d JOIN task p ON p.id = d.needs WHERE <unmet>)
    AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'run/' || t.id AND j.at > :now)
ORDER BY t.priority, t.id LIMIT :limit;

-- name: jobless
SELECT t.id FROM task t
WHERE t.state = 'pending'
    AND t.id > :after
    AND t.owner IS NOT NULL
    AND t.session_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM task_dependency d JOIN task p ON p.id = d.needs WHERE <unmet>)
    AND NOT EXISTS (SELECT 1 FROM job j WHERE j.key = 'run/' || t.id)
ORDER BY t.id LIMIT :limit;

-- name: in_flight
SELECT id FROM task WHERE archived_at IS NULL AND state IN ('running', 'verifying')
UNION
SELECT task_id FROM run WHERE outcome IS NULL
ORDER BY 1;

-- name: unmet
SELECT t.id, d.needs, p.state FROM task t
JOIN task_dependency d ON d.task_id = t.id
JOIN task p ON p.id = d.needs
WHERE t.id IN [ids]
    AND <unmet>
ORDER BY t.id, d.needs;

-- name: starts
-- When the job of a task is due: its run, or its turn by a calendar of its own.
SELECT t.id, t.session_id, t.not_before, t.started_at, (
    SELECT MAX(j.at) FROM job j
    WHERE j.key IN ('run/' || t.id, 'cron/' || t.id)
        AND j.worker IS NULL
) AS at
FROM task t
WHERE t.id IN [ids]
ORDER BY t.id;

-- name: successor
SELECT MIN(id), MAX(id) FROM task WHERE rerun_of = :id GROUP BY rerun_of;

-- name: path
WITH RECURSIVE above (id, parent_id, step) AS (
    SELECT id, parent_id, 0 FROM task WHERE id = :id
    UNION ALL
    SELECT t.id, t.parent_id, above.step + 1 FROM task t JOIN above ON t.id = above.parent_id
)
SELECT id FROM above ORDER BY step DESC;
