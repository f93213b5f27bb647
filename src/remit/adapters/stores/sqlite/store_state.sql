-- name: state
SELECT s.id, s.epoch, COALESCE(CAST(e.pos AS TEXT), ''), COALESCE(e.id, ''),
    COALESCE((SELECT MAX(id) FROM task), 0), s.commits, s.floor
FROM store s
LEFT JOIN event e ON e.pos = (SELECT MAX(pos) FROM event);

-- name: event_id
SELECT id FROM event WHERE pos = ?;

-- name: page_of_id
SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = 'store';

-- name: count_commit
UPDATE store SET commits = commits + 1;

-- name: take_over
UPDATE store SET id = ?;

-- name: new_epoch
UPDATE store SET epoch = :epoch, floor = MAX(floor, :floor);
