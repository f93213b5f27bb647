ALTER TABLE job ADD COLUMN root INTEGER NOT NULL DEFAULT 0;

ALTER TABLE job ADD COLUMN seen TEXT;

UPDATE job SET root = COALESCE(
    (SELECT root_id FROM task WHERE id = CAST(substr(key, instr(key, '/') + 1) AS INTEGER)), 0)
        WHERE key <> 'tick';

CREATE INDEX job_ready_root ON job (root, priority, id) WHERE worker IS NULL AND later = 0;

CREATE INDEX job_later_root ON job (root, at) WHERE worker IS NULL AND later = 1;

-- When a task moves to another tree, its jobs move with it.
CREATE TRIGGER task_moves AFTER UPDATE OF root_id ON task WHEN NEW.root_id <> OLD.root_id
    BEGIN UPDATE job SET root = NEW.root_id
        WHERE instr(key, '/') > 0 AND CAST(substr(key, instr(key,
            '/') + 1) AS INTEGER) = NEW.id; END;

ALTER TABLE worker ADD COLUMN scope TEXT NOT NULL DEFAULT '';

ALTER TABLE task ADD COLUMN via TEXT;

CREATE INDEX task_live_via ON task (via, root_id) WHERE via IS NOT NULL AND archived_at IS NULL;

CREATE TABLE attendance (
    root_id INTEGER PRIMARY KEY,
    at TEXT NOT NULL
) STRICT;
