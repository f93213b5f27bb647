ALTER TABLE interaction ADD COLUMN allow_other bigint NOT NULL DEFAULT 0;
