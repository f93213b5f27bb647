-- Accepting a rollback raises the epoch; later events have positions above `floor`.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    floor INTEGER NOT NULL
) STRICT;

INSERT INTO store VALUES (1,
    lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)
    || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))), 1, 0);
