CREATE TABLE task_result (
    task_id bigint PRIMARY KEY,
    key text COLLATE "C" NOT NULL
);

CREATE INDEX task_result_key ON task_result (key, task_id);
