-- Timers and parked jobs (timers.py, parking.py, finish.py). Timers are reached by the primary key
-- (partition, kind, bucket, lane, tenant, time, job, version). Kinds: 0 fire, 1 watch.

-- name: add
-- $1 now, $2 kind, $3 partitions, $4 lanes, $5 tenants, $6 times, $7 jobs, $8 versions
INSERT INTO timers (partition, kind, bucket, lane, tenant, time, job, version)
SELECT n.partition, $2::smallint, greatest(n.time, $1::bigint) / 60000, n.lane, n.tenant, n.time, n.job, n.version
FROM unnest($3::integer[], $4::smallint[], $5::text[], $6::bigint[], $7::text[], $8::bigint[])
    AS n (partition, lane, tenant, time, job, version)
ON CONFLICT DO NOTHING;

-- name: delete
-- $1-$8 the columns of whole keys (bulk)
DELETE FROM timers AS t
USING unnest($1::integer[], $2::smallint[], $3::bigint[], $4::smallint[], $5::text[], $6::bigint[], $7::text[], $8::bigint[])
    AS k (partition, kind, bucket, lane, tenant, time, job, version)
WHERE t.partition = k.partition AND t.kind = k.kind AND t.bucket = k.bucket AND t.lane = k.lane AND t.tenant = k.tenant
    AND t.time = k.time AND t.job = k.job AND t.version = k.version;

-- name: sweep_void
-- $1 partition, $2 kind, $3 last bucket, $4-$9 the key to go on from, $10 how many to look at: the key up to which was looked, how
-- many were looked at, and how many went (bulk)
WITH page AS MATERIALIZED (
    SELECT ctid AS place, bucket, lane, tenant, time, job, version
    FROM timers
    WHERE partition = $1 AND kind = $2 AND bucket <= $3
        AND (bucket, lane, tenant, time, job, version)
            > ($4::bigint, $5::smallint, $6::text, $7::bigint, $8::text, $9::bigint)
    ORDER BY bucket, lane, tenant, time, job, version
    LIMIT $10
),
void AS (
    DELETE FROM timers
    WHERE ctid = ANY (ARRAY (
        SELECT p.place FROM page AS p
        WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = p.job AND j.version = p.version)
    ))
    RETURNING 1
)
SELECT bucket, lane, tenant, time, job, version, (SELECT count(*) FROM page), (SELECT count(*) FROM void)
FROM page
ORDER BY bucket DESC, lane DESC, tenant DESC, time DESC, job DESC, version DESC
LIMIT 1;

-- name: raise_floor
-- $1 partition, $2 bucket
INSERT INTO floors AS f (partition, bucket) VALUES ($1, $2)
ON CONFLICT (partition) DO UPDATE SET bucket = excluded.bucket WHERE excluded.bucket > f.bucket;

-- name: floors
SELECT partition, bucket FROM floors;

-- name: park
-- $1-$12 the columns
INSERT INTO parked (partition, tenant, queue, lane, handler, hold, suspect, score, job, version, due_at, priority)
SELECT *
FROM unnest($1::integer[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::text[], $7::boolean[], $8::bigint[],
    $9::text[], $10::bigint[], $11::bigint[], $12::integer[])
ON CONFLICT DO NOTHING;

-- name: unpark
-- $1-$10 the columns of whole keys (bulk)
DELETE FROM parked AS p
USING unnest($1::integer[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::text[], $7::boolean[], $8::bigint[],
    $9::text[], $10::bigint[])
    AS k (partition, tenant, queue, lane, handler, hold, suspect, score, job, version)
WHERE p.partition = k.partition AND p.tenant = k.tenant AND p.queue = k.queue AND p.lane = k.lane AND p.handler = k.handler
    AND p.hold = k.hold AND p.suspect = k.suspect AND p.score = k.score AND p.job = k.job AND p.version = k.version;

-- name: parked
-- $1 partition, $2 limit; by parked_by_score
SELECT tenant, queue, lane, handler, hold, suspect, score, job, version, due_at, priority
FROM parked
WHERE partition = $1
ORDER BY score, job, version
LIMIT $2;

-- name: parked_of_line
-- $1 partition, $2-$7 line, $8 limit; by the primary key
SELECT tenant, queue, lane, handler, hold, suspect, score, job, version, due_at, priority
FROM parked
WHERE partition = $1 AND tenant = $2 AND queue = $3 AND lane = $4 AND handler = $5 AND hold = $6 AND suspect = $7
ORDER BY score, job, version
LIMIT $8;

-- name: parked_lines
-- $1 partition
SELECT tenant, queue, lane, handler, hold, suspect, count(*)
FROM parked
WHERE partition = $1
GROUP BY tenant, queue, lane, handler, hold, suspect;
