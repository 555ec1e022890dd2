-- A database's own state (migrate.py, connection.py, store.py).

-- name: lock
-- Held to the end of the transaction: two processes that start at once migrate one after the other.
SELECT pg_advisory_xact_lock(x'7463736e'::bigint);

-- name: has_migrations
SELECT to_regclass('migrations') IS NOT NULL;

-- name: migrations_table
CREATE TABLE migrations (
    number     integer NOT NULL PRIMARY KEY,
    name       text    NOT NULL,
    checksum   text    NOT NULL,
    applied_at bigint  NOT NULL
);

-- name: migrations
SELECT number, checksum FROM migrations ORDER BY number;

-- name: add_migration
INSERT INTO migrations (number, name, checksum, applied_at) VALUES ($1, $2, $3, $4);

-- name: identity
SELECT installation, partitions, shard, first_partition, last_partition, least_code FROM identity WHERE one;

-- name: add_identity
-- $1 installation, $2 partitions, $3 shard, $4 $5 its first and last partition, $6 now
INSERT INTO identity (one, installation, partitions, shard, first_partition, last_partition, made_at, pinged_at)
VALUES (true, $1, $2, $3, $4, $5, $6, $6)
ON CONFLICT DO NOTHING;

-- name: shards
SELECT version, shard, first_partition, last_partition, address
FROM shards
WHERE version = (SELECT max(version) FROM shards)
ORDER BY shard;

-- name: add_shard
INSERT INTO shards (version, shard, first_partition, last_partition, address) VALUES ($1, $2, $3, $4, $5);

-- name: ping
-- $1 now
UPDATE identity SET pinged_at = greatest(pinged_at, $1) WHERE one;

-- name: now
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: oldest_snapshot
-- How long ago (s) the oldest snapshot was taken that somebody in this database still looks through: until it is let go, no row
-- that went since is cleared away.
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::double precision
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL);
