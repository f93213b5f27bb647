-- name: roots
SELECT id, root_id FROM task WHERE id IN [ids] ORDER BY id;

-- name: needed_workers
-- A claim is checked by any worker of its tree; everything else needs one that works for the
-- owner.
SELECT id, root_id, CASE WHEN state <> 'verifying' THEN owner END AS agent
FROM task
WHERE id IN [ids]
ORDER BY id;

-- name: roots_in_use
-- A tree is in use while a task of it is live, or a job about it is left.
SELECT DISTINCT root_id FROM task {task_tree}
WHERE root_id IN [ids] AND archived_at IS NULL
UNION
SELECT root FROM job WHERE root IN [ids] AND worker IS NULL AND later = 0
UNION
SELECT root FROM job WHERE root IN [ids] AND worker IS NULL AND later = 1
UNION
SELECT root FROM job WHERE root IN [ids] AND worker IS NOT NULL
ORDER BY 1;

-- name: roots_needed
-- A task that has ended and whose dependents were not told yet is still needed.
SELECT DISTINCT p.root_id FROM task t {task_tree}
JOIN task_dependency d ON d.task_id = t.id
JOIN task p ON p.id = d.needs
WHERE t.root_id IN [ids]
    AND t.archived_at IS NULL
    AND (p.archived_at IS NULL OR EXISTS (SELECT 1 FROM job j WHERE j.key = 'release/' || p.id))
ORDER BY 1;

-- name: roots_via
SELECT DISTINCT root_id FROM task {task_live_via}
WHERE via = :via
    AND via IS NOT NULL
    AND archived_at IS NULL
ORDER BY root_id;

-- name: roots_due
SELECT DISTINCT root, queue FROM job
WHERE root > 0
    AND (worker IS NOT NULL OR later = 0 OR at <= :now)
ORDER BY root, queue;

-- name: attended
SELECT root_id, at FROM attendance WHERE root_id IN [ids] ORDER BY root_id;

-- name: clocks
SELECT t.id, t.root_id, (SELECT MAX(a.at) FROM attendance a WHERE a.root_id IN (0, t.root_id))
FROM task t
WHERE t.state = 'waiting'
    AND t.doc LIKE '%"clock_since"%'
    AND t.id > :after
ORDER BY t.id LIMIT :limit;

-- name: clocks_of
SELECT t.id, t.root_id, (SELECT MAX(a.at) FROM attendance a WHERE a.root_id IN (0, t.root_id))
FROM task t {task_tree}
WHERE t.root_id IN [ids]
    AND t.state = 'waiting'
    AND t.doc LIKE '%"clock_since"%'
ORDER BY t.id;

-- name: unended
SELECT id, updated_at FROM task WHERE id IN [ids] AND archived_at IS NULL ORDER BY id;

-- name: owners
SELECT owner, MIN(id), COUNT(*) FROM task
WHERE archived_at IS NULL
    AND owner IS NOT NULL
GROUP BY owner
ORDER BY owner;

-- name: tree
SELECT doc FROM task {task_tree} WHERE root_id = :id ORDER BY id;

-- name: budget
SELECT tokens, cost FROM budget WHERE root_id = :id;

-- name: budgets
SELECT root_id, tokens, cost FROM budget
WHERE root_id > :after
ORDER BY root_id LIMIT :limit;

-- name: head
SELECT hash FROM task WHERE id = :id;

-- name: counts
SELECT state, COUNT(*) FROM task GROUP BY state ORDER BY state;

-- name: ended
SELECT id, state FROM task WHERE id IN [ids] AND archived_at IS NOT NULL ORDER BY id;

-- name: states
SELECT id, state, title FROM task WHERE id IN [ids] ORDER BY id;

-- name: result
SELECT task_id FROM task_result {task_result_key}
WHERE key = :key
ORDER BY task_id DESC LIMIT 1;

-- name: dependents
SELECT task_id FROM task_dependency WHERE needs = :id ORDER BY task_id;

-- name: ended_children
SELECT id FROM task {task_parent}
WHERE parent_id = :id
    AND archived_at IS NOT NULL
ORDER BY id;
