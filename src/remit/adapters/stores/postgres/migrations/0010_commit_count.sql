-- Counts the commits that store no event: a copy from before them has the same events. The count is
-- the sum of all rows. A commit takes a row that no other commit has locked, so none waits for
-- another. A sequence would not do: after a recovery it can be ahead of the rows.
CREATE TABLE commit_count (
    slot int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    commits bigint NOT NULL
);

CREATE FUNCTION count_commit() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE commit_count SET commits = commits + 1
        WHERE slot = (SELECT slot FROM commit_count ORDER BY slot LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO commit_count (commits) VALUES (1);
    END IF;
END $$;

-- The function with fewer arguments stays for running processes of older versions.
CREATE FUNCTION commit_units_at(
    known_epoch bigint, known_tx text, known_pos bigint, known_id text, known_commits bigint,
    guards json, dependents json, firsts json, events json, names text[], contents json[],
        leases json, drops json, jobs json, debits json
) RETURNS TABLE (fates int[], store_id text, epoch bigint, tx text, pos bigint, id text,
    task_id bigint, commits bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT s.id, s.epoch INTO store_id, epoch FROM store s;
    SELECT COALESCE(SUM(c.commits), 0) INTO commits FROM commit_count c;
    -- If the newest event that the caller has seen is missing, or a commit without events, the
    -- store was rolled back: write nothing.
    IF epoch > known_epoch OR (epoch = known_epoch AND commits >= known_commits AND (known_tx = ''
        OR EXISTS (SELECT 1 FROM event e WHERE e.tx = known_tx::xid8 AND e.pos = known_pos
            AND e.id = known_id)))
    THEN
        fates := commit_units(guards, dependents, firsts, events, names, contents, leases, drops,
            jobs, debits);
        IF (cardinality(names) > 0 OR debits IS NOT NULL) AND EXISTS (
            SELECT 1 FROM ROWS FROM (json_to_recordset(firsts) AS (id text), unnest(fates))
                AS u (first_id, fate)
            WHERE u.first_id IS NULL AND u.fate = 0)
        THEN
            PERFORM count_commit();
            commits := commits + 1;
        END IF;
    END IF;
    SELECT e.tx::text, e.pos, e.id INTO tx, pos, id FROM event e ORDER BY e.tx DESC, e.pos DESC
        LIMIT 1;
    SELECT t.id INTO task_id FROM task t ORDER BY t.id DESC LIMIT 1;
    RETURN NEXT;
END $$;
