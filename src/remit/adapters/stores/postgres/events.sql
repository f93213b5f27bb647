-- name: feed
SELECT id, stream, version, type, at, actor, data, hash, tx::text || '.' || pos
FROM event
WHERE (tx, pos) > ($1::text::xid8, $2)
    AND tx < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY event.tx, event.pos LIMIT $3;

-- name: tail
SELECT tx::text || '.' || pos AS position
FROM event
WHERE tx < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY event.tx DESC, event.pos DESC LIMIT 1;

-- name: new_ids
SELECT nextval('task_id') AS id FROM generate_series(1, $1);

-- name: set_counter
SELECT setval('task_id', GREATEST($1, (SELECT last_value FROM task_id)));

-- name: lock_for_writes
LOCK TABLE event, task, run, job, worker, attendance IN ROW EXCLUSIVE MODE;

-- name: any_event
SELECT EXISTS (SELECT 1 FROM event);

-- name: commit
SELECT * FROM commit_units_at($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);
