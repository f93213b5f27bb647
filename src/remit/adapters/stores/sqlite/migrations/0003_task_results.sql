CREATE TABLE task_result (
    task_id INTEGER PRIMARY KEY,
    key TEXT NOT NULL
) STRICT;

CREATE INDEX task_result_key ON task_result (key, task_id);
