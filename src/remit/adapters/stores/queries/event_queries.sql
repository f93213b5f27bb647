-- name: heads
SELECT stream, version, hash FROM event e
WHERE stream IN [streams]
    AND version = (SELECT MAX(version) FROM event WHERE stream = e.stream)
ORDER BY stream;

-- name: streams
SELECT DISTINCT stream FROM event WHERE stream > :after_id ORDER BY stream LIMIT :limit;

-- name: events
SELECT id, stream, version, type, at, actor, data, hash, [position]
FROM event
WHERE stream = :stream
    AND version > :after
ORDER BY version LIMIT :limit;

-- name: events_of
SELECT id, stream, version, type, at, actor, data, hash
FROM event
WHERE stream IN [streams]
ORDER BY stream, version;

-- name: output_events
SELECT type, data FROM event
WHERE stream = :stream
    AND type IN ('TaskCreated', 'OutputsUpdated')
ORDER BY version;
