-- Accepting a rollback raises the epoch.
CREATE TABLE store (
    one int PRIMARY KEY CHECK (one = 1),
    id text NOT NULL,
    epoch bigint NOT NULL
);

INSERT INTO store VALUES (1, gen_random_uuid()::text, 1);

CREATE FUNCTION commit_units_at(
    known_epoch bigint, known_tx text, known_pos bigint, known_id text,
    guards json, dependents json, firsts json, events json, names text[], contents json[],
        leases json, drops json, jobs json, debits json
) RETURNS TABLE (fates int[], store_id text, epoch bigint, tx text, pos bigint, id text,
    task_id bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT s.id, s.epoch INTO store_id, epoch FROM store s;
    -- If the newest event that the caller has seen is missing, the store was rolled back: write
    -- nothing.
    IF epoch > known_epoch OR (epoch = known_epoch AND (known_tx = ''
        OR EXISTS (SELECT 1 FROM event e WHERE e.tx = known_tx::xid8 AND e.pos = known_pos
            AND e.id = known_id)))
    THEN
        fates := commit_units(guards, dependents, firsts, events, names, contents, leases, drops,
            jobs, debits);
    END IF;
    SELECT e.tx::text, e.pos, e.id INTO tx, pos, id FROM event e ORDER BY e.tx DESC, e.pos DESC
        LIMIT 1;
    SELECT t.id INTO task_id FROM task t ORDER BY t.id DESC LIMIT 1;
    RETURN NEXT;
END $$;
