-- Before 0.1.0: a wake that no timer caused becomes TaskWoken, and BudgetSettled loses
-- `reservation_id`, which equals its run. Hashes of changed streams are chained again; `old_head`
-- keeps their last hash from before.
CREATE TABLE old_head (
    stream text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    hash bytea NOT NULL
);

INSERT INTO old_head
SELECT DISTINCT ON (stream) stream, version, hash FROM event
WHERE stream IN (
    SELECT stream FROM event
    WHERE type = 'BudgetSettled'
        OR (type = 'TimerFired' AND data LIKE '%,"cause":"%')
)
ORDER BY stream, version DESC;

-- A stream whose chain is broken stays broken, so that verification still reports it.
DELETE FROM old_head WHERE stream IN (
    SELECT e.stream FROM old_head
    JOIN event e USING (stream)
    LEFT JOIN event p ON p.stream = e.stream AND p.version = e.version - 1
    WHERE e.hash <> sha256(coalesce(p.hash, decode(repeat('00', 32), 'hex')) || convert_to(
        concat_ws(E'\n', e.id, e.stream, e.version, e.type, e.at, e.actor, e.data),
        'UTF8'
    ))
);

ALTER TABLE event DISABLE TRIGGER event_is_never_changed;

UPDATE event SET type = 'TaskWoken' WHERE type = 'TimerFired' AND data LIKE '%,"cause":"%';

UPDATE event SET data = '{' || substr(data, strpos(data, '"run_id":'))
WHERE type = 'BudgetSettled';

DO $$
DECLARE
    entry record;
    head bytea;
BEGIN
    FOR entry IN
        SELECT e.* FROM event e JOIN old_head USING (stream) ORDER BY e.stream, e.version
    LOOP
        IF entry.version = 1 THEN
            head := decode(repeat('00', 32), 'hex');
        END IF;
        head := sha256(head || convert_to(
            concat_ws(E'\n', entry.id, entry.stream, entry.version, entry.type, entry.at,
                entry.actor, entry.data),
            'UTF8'
        ));
        UPDATE event SET hash = head WHERE stream = entry.stream AND version = entry.version;
    END LOOP;
END $$;

UPDATE task SET hash = e.hash FROM event e
WHERE e.stream IN (SELECT stream FROM old_head)
    AND e.stream = CAST(task.id AS text)
    AND e.version = task.version;

ALTER TABLE event ENABLE TRIGGER event_is_never_changed;

ALTER TABLE interaction ADD COLUMN call_id text;

UPDATE interaction SET call_id = CAST(e.data AS json) ->> 'call_id' FROM event e
WHERE e.stream = CAST(interaction.task_id AS text)
    AND e.type = 'UserInteractionRequested'
    AND CAST(e.data AS json) ->> 'interaction_id' = interaction.interaction_id;
