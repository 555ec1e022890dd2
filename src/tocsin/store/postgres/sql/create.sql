-- New jobs (create.py), as arrays with one element for each: $2 ID, $3 tenant, $4 queue, $5 lane, $6 handler, $7 hold, $8 suspect,
-- $9 priority, $10 status, $11 due, $12 timeout in ms, $13 expiry, $14 the number of its schedule, $15 definition, $16 partition.
-- $1 is now.

-- name: rows
new AS MATERIALIZED (
    SELECT *
    FROM unnest($2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::text[], $8::boolean[], $9::integer[],
        $10::smallint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::integer[])
        AS n (id, tenant, queue, lane, handler, hold, suspect, priority, status, due_at, timeout_ms, expires_at, schedule, doc,
            partition)
)

-- name: columns
id, tenant, queue, lane, handler, hold, suspect, priority, status, due_at, fire_at, timeout_ms, expires_at, queued_at, schedule,
    doc

-- name: values
id, tenant, queue, lane, handler, hold, suspect, priority, status, due_at, due_at, timeout_ms, expires_at,
    CASE WHEN status = 2 THEN $1::bigint END, schedule, doc

-- name: quick
-- As if nothing of it were there: the first row that is makes the whole statement fail. $17 no job of these can have finished
-- before; $18 tenants, $19 hashes, $20 hashes of bodies, $21 jobs, $22 expiries of keys (bulk)
WITH {{create.rows}},
keyed AS (
    INSERT INTO keys (tenant, hash, body_hash, job, expires_at)
    SELECT k.tenant, k.hash, k.body_hash, k.job, k.expires_at
    FROM unnest($18::text[], $19::bytea[], $20::bytea[], $21::text[], $22::bigint[])
        AS k (tenant, hash, body_hash, job, expires_at)
),
listed AS (
    INSERT INTO occurrences (schedule, job) SELECT schedule, id FROM new WHERE schedule IS NOT NULL
),
timed AS (
    INSERT INTO timers (partition, kind, bucket, lane, tenant, time, job, version)
    SELECT partition, 0, greatest(due_at, $1) / 60000, lane, tenant, due_at, id, 1 FROM new
    ON CONFLICT DO NOTHING
)
INSERT INTO jobs ({{create.columns}})
SELECT {{create.values}}
FROM new
WHERE id <> ALL (ARRAY (
    SELECT f.id FROM finished AS f WHERE f.id = ANY ($2) AND f.finished_at >= $17 AND f.finished_at <= $1 + 86400000
));

-- name: list
-- $1 numbers of schedules, $2 IDs: which of these jobs were not listed before
INSERT INTO occurrences (schedule, job)
SELECT * FROM unnest($1::bigint[], $2::text[])
ON CONFLICT DO NOTHING
RETURNING job;

-- name: careful
-- Which of these jobs were not there before (any pool)
WITH {{create.rows}}
INSERT INTO jobs ({{create.columns}})
SELECT {{create.values}}
FROM new
WHERE id <> ALL (ARRAY (SELECT f.id FROM finished AS f WHERE f.id = ANY ($2)))
ON CONFLICT DO NOTHING
RETURNING id;

-- name: queue_names
-- $1 tenants, $2 queues, in order
INSERT INTO queue_names (tenant, queue)
SELECT * FROM unnest($1::text[], $2::text[])
ON CONFLICT DO NOTHING;
