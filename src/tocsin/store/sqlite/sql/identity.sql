-- The file's own state (migrate.py, store.py).

-- name: migrations_table
CREATE TABLE migrations (
    number     INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    checksum   TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- name: migrations
SELECT number, checksum FROM migrations ORDER BY number;

-- name: add_migration
INSERT INTO migrations (number, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4);

-- name: identity
SELECT partitions, installation FROM identity WHERE only = 1;

-- name: add_identity
-- ?1 installation, ?2 partitions, ?3 now
INSERT INTO identity (only, installation, partitions, made_at, pinged_at) VALUES (1, ?1, ?2, ?3, ?3)
ON CONFLICT DO NOTHING;

-- name: ping
-- ?1 now
UPDATE identity SET pinged_at = ?1 WHERE only = 1;
