-- Looking at a database without changing it (examine.py). What a user may not see comes as NULL or is missing.

-- name: server
-- Ages in seconds; a transaction counts from its own beginning, idle or not.
SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('server_encoding') AS encoding,
    pg_is_in_recovery() AS in_recovery,
    current_setting('default_transaction_read_only')::boolean AS read_only,
    current_setting('fsync')::boolean AS fsync,
    current_setting('full_page_writes')::boolean AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('autovacuum')::boolean AS autovacuum,
    current_setting('max_connections')::integer AS max_connections,
    (
        SELECT count(*)::integer
        FROM pg_stat_activity
        WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend' AND pid <> pg_backend_pid()
    ) AS in_use,
    (
        SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::float8
        FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    ) AS transaction_age_s,
    (
        SELECT extract(epoch FROM clock_timestamp() - min(prepared))::float8
        FROM pg_prepared_xacts
        WHERE database = current_database()
    ) AS prepared_age_s,
    (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()) AS xid_age,
    pg_database_size(current_database()) AS size,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all;

-- name: standbys
SELECT application_name AS name, sync_state
FROM pg_stat_replication
WHERE state = 'streaming' AND sync_state IS NOT NULL
ORDER BY application_name, pid;

-- name: contents
-- Whose the database is; NULL where nothing says so.
SELECT i.installation, i.partitions, coalesce(i.least_code, 1) AS least_code, (SELECT coalesce(max(number), 0) FROM migrations) AS version
FROM (SELECT 1) AS one
LEFT JOIN identity AS i ON i.one;

-- name: tables
-- Each table with its indexes, a divided one with all its parts; the largest first. `rows` is the estimate of the last analysis.
SELECT coalesce(whole.relname, c.relname) AS name, sum(pg_total_relation_size(c.oid))::bigint AS size,
    CASE WHEN bool_or(c.reltuples >= 0) THEN sum(greatest(c.reltuples, 0))::bigint END AS rows
FROM pg_class AS c
LEFT JOIN pg_inherits AS part ON part.inhrelid = c.oid
LEFT JOIN pg_class AS whole ON whole.oid = part.inhparent
WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace
GROUP BY 1
ORDER BY 2 DESC, 1;

-- name: days
-- The parts of the tables that are divided by days: which one, and its bounds as PostgreSQL writes them.
SELECT whole.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds
FROM pg_inherits AS part
JOIN pg_class AS c ON c.oid = part.inhrelid
JOIN pg_class AS whole ON whole.oid = part.inhparent
WHERE whole.relname IN ('finished', 'attempts') AND whole.relnamespace = current_schema()::regnamespace
    AND c.relispartition;
