-- The tables of days (days.py). Their names are made of the parent's and a date, and so are the statements that make and drop them.

-- name: lock
-- Two processes that miss the same day make it one after the other.
SELECT pg_advisory_xact_lock(x'74637364'::bigint);

-- name: exists
-- $1 name
SELECT to_regclass($1) IS NOT NULL;

-- name: found
-- Tables whose names can be a day's, with whether they belong to their parent and whether they are on their way out.
SELECT c.relname::text, i.inhrelid IS NOT NULL AND NOT i.inhdetachpending, coalesce(i.inhdetachpending, false)
FROM pg_class AS c
LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    AND (c.relname LIKE 'finished\_________' OR c.relname LIKE 'attempts\_________');
