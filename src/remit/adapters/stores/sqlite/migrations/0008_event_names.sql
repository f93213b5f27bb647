-- Before 0.1.0: a wake that no timer caused becomes TaskWoken, and BudgetSettled loses
-- `reservation_id`, which equals its run. Hashes of changed streams are chained again; `old_head`
-- keeps their last hash from before.
CREATE TABLE old_head (
    stream TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO old_head
SELECT stream, max(version), hash FROM event
WHERE stream IN (
    SELECT stream FROM event
    WHERE type = 'BudgetSettled'
        OR (type = 'TimerFired' AND data LIKE '%,"cause":"%')
)
GROUP BY stream;

-- A stream whose chain is broken stays broken, so that verification still reports it.
DELETE FROM old_head WHERE stream IN (
    SELECT e.stream FROM old_head o
    JOIN event e ON e.stream = o.stream
    LEFT JOIN event p ON p.stream = e.stream AND p.version = e.version - 1
    WHERE e.hash IS NOT chain_hash(
        coalesce(p.hash, zeroblob(32)), e.id, e.stream, e.version, e.type, e.at, e.actor, e.data
    )
);

DROP TRIGGER event_is_never_changed;

UPDATE event SET type = 'TaskWoken' WHERE type = 'TimerFired' AND data LIKE '%,"cause":"%';

UPDATE event SET data = '{' || substr(data, instr(data, '"run_id":'))
WHERE type = 'BudgetSettled';

WITH RECURSIVE chain (stream, version, hash) AS (
    SELECT e.stream, e.version,
        chain_hash(zeroblob(32), e.id, e.stream, e.version, e.type, e.at, e.actor, e.data)
    FROM old_head o
    JOIN event e ON e.stream = o.stream AND e.version = 1
    UNION ALL
    SELECT e.stream, e.version,
        chain_hash(c.hash, e.id, e.stream, e.version, e.type, e.at, e.actor, e.data)
    FROM chain c
    JOIN event e ON e.stream = c.stream AND e.version = c.version + 1
)
UPDATE event SET hash = chain.hash FROM chain
WHERE chain.stream = event.stream AND chain.version = event.version;

UPDATE task SET hash = (
    SELECT e.hash FROM event e WHERE e.stream = CAST(task.id AS TEXT) AND e.version = task.version
)
WHERE CAST(id AS TEXT) IN (SELECT stream FROM old_head);

CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

ALTER TABLE interaction ADD COLUMN call_id TEXT;

UPDATE interaction SET call_id = json_extract(e.data, '$.call_id') FROM event e
WHERE e.stream = CAST(interaction.task_id AS TEXT)
    AND e.type = 'UserInteractionRequested'
    AND json_extract(e.data, '$.interaction_id') = interaction.interaction_id;
