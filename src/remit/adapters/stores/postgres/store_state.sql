-- name: state
SELECT s.id, s.epoch, e.tx::text || '.' || e.pos, e.id,
    (SELECT t.id FROM task t ORDER BY t.id DESC LIMIT 1),
    (SELECT COALESCE(SUM(commits), 0)::bigint FROM commit_count)
FROM store s
LEFT JOIN LATERAL (SELECT tx, pos, id FROM event ORDER BY tx DESC, pos DESC LIMIT 1) e ON true;

-- name: holds
SELECT EXISTS (SELECT 1 FROM event WHERE tx = $1::text::xid8 AND pos = $2 AND id = $3);

-- name: new_epoch
UPDATE store SET epoch = GREATEST(epoch, $1) + 1;

-- name: skip_positions
SELECT setval(pg_get_serial_sequence('event', 'pos'),
    GREATEST($1, nextval(pg_get_serial_sequence('event', 'pos'))));

-- name: transaction
SELECT pg_current_xact_id()::text::bigint;

-- name: skip_transactions
-- Uses up transaction numbers, one for each block that is rolled back.
DO $$ BEGIN
    FOR i IN 1..10000 LOOP
        BEGIN
            PERFORM pg_current_xact_id();
            RAISE SQLSTATE 'RE000';
        EXCEPTION WHEN SQLSTATE 'RE000' THEN NULL;
        END;
    END LOOP;
END $$;

-- name: any_store
SELECT EXISTS (SELECT 1 FROM store);

-- name: missing
SELECT name FROM unnest($1::text[]) AS relation (name)
WHERE to_regclass('remit.' || quote_ident(name)) IS NULL
UNION ALL
SELECT name FROM unnest($2::text[]) AS trigger (name)
WHERE NOT EXISTS (
    SELECT 1 FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = to_regnamespace('remit') AND tgname = name);
