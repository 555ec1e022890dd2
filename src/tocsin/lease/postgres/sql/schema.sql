-- The schema itself (schema.py).

-- name: is_there
SELECT to_regclass('tocsin_lease.migrations') IS NOT NULL;

-- name: lock
-- One process at a time; the lock is the transaction's and ends with it, however that ends. The number is arbitrary.
SELECT pg_advisory_xact_lock(7482639105);

-- name: begin
CREATE SCHEMA IF NOT EXISTS tocsin_lease;
CREATE TABLE IF NOT EXISTS tocsin_lease.migrations (number integer NOT NULL PRIMARY KEY, name text NOT NULL);

-- name: done
SELECT COALESCE(max(number), 0) FROM tocsin_lease.migrations;

-- name: add
-- $1 number, $2 name
INSERT INTO tocsin_lease.migrations (number, name) VALUES ($1, $2);
