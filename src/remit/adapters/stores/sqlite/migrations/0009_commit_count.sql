-- Counts the commits that store no event: a copy from before them has the same events.
ALTER TABLE store ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;
