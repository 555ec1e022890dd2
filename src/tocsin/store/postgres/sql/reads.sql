-- Queries of the connections that read. Each is one statement, so it sees one state of the database: a job is found in `jobs` or in
-- `finished`, never in both or neither.

-- name: live
id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at, queued_at, started_at,
    claimed_at, lease_until, lease_ms, beaten_at, worker, losses, releases, expires_at, finished_at, last_error, progress,
    NULL::bytea AS result, outcome, doc

-- name: ended
id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at, queued_at, started_at,
    claimed_at, NULL::bigint, NULL::bigint, NULL::bigint, worker, losses, releases, expires_at, finished_at, last_error,
    progress, result, outcome, doc

-- name: states
-- $1 IDs, $2 finished from this instant on: only those days are looked at
SELECT {{reads.live}} FROM jobs WHERE id = ANY ($1::text[])
UNION ALL
SELECT {{reads.ended}} FROM finished WHERE id = ANY ($1::text[]) AND finished_at >= $2;

-- name: attempts
-- $1 ID; at most 1 + one for each attempt. The finished row stands for a success that has no record of its own.
SELECT attempt, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response
FROM attempts
WHERE job = $1
UNION ALL
SELECT f.attempt, f.worker, f.claimed_at, f.finished_at, f.outcome, NULL, f.due_at, f.status_code, f.response
FROM finished AS f
WHERE f.id = $1 AND f.status = 6 AND f.claimed_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.job = f.id AND a.attempt = f.attempt)
ORDER BY 1;

-- name: job_of_timer
LEFT JOIN LATERAL (
    SELECT {{reads.live}} FROM jobs WHERE id = t.job AND version = t.version LIMIT 1
) AS j ON true

-- name: due
-- $1 partition, $2 last bucket, $3-$8 the key to go on from, $9 limit. Due and time are judged by the caller.
SELECT t.bucket, t.lane, t.tenant, t.time, t.job, t.version, j.status, j.tenant, j.queue, j.lane, j.handler, j.hold, j.suspect,
    j.priority
FROM (
    SELECT bucket, lane, tenant, time, job, version
    FROM timers
    WHERE partition = $1 AND kind = 0 AND bucket <= $2
        AND (bucket, lane, tenant, time, job, version)
            > ($3::bigint, $4::smallint, $5::text, $6::bigint, $7::text, $8::bigint)
    ORDER BY bucket, lane, tenant, time, job, version
    LIMIT $9
) AS t
{{reads.job_of_timer}}
ORDER BY t.bucket, t.lane, t.tenant, t.time, t.job, t.version;

-- name: due_of_lane
-- $1 partition, $2 bucket, $3 lane, $4-$7 the tenant, time, job and version to go on from, $8 limit
SELECT t.bucket, t.lane, t.tenant, t.time, t.job, t.version, j.status, j.tenant, j.queue, j.lane, j.handler, j.hold, j.suspect,
    j.priority
FROM (
    SELECT bucket, lane, tenant, time, job, version
    FROM timers
    WHERE partition = $1 AND kind = 0 AND bucket = $2 AND lane = $3
        AND (tenant, time, job, version) > ($4::text, $5::bigint, $6::text, $7::bigint)
    ORDER BY tenant, time, job, version
    LIMIT $8
) AS t
{{reads.job_of_timer}}
ORDER BY t.tenant, t.time, t.job, t.version;

-- name: due_of_tenant
-- $1 partition, $2 bucket, $3 lane, $4 tenant, $5-$7 the time, job and version to go on from, $8 limit
SELECT t.bucket, t.lane, t.tenant, t.time, t.job, t.version, j.status, j.tenant, j.queue, j.lane, j.handler, j.hold, j.suspect,
    j.priority
FROM (
    SELECT bucket, lane, tenant, time, job, version
    FROM timers
    WHERE partition = $1 AND kind = 0 AND bucket = $2 AND lane = $3 AND tenant = $4
        AND (time, job, version) > ($5::bigint, $6::text, $7::bigint)
    ORDER BY time, job, version
    LIMIT $8
) AS t
{{reads.job_of_timer}}
ORDER BY t.time, t.job, t.version;

-- name: next_bucket
-- $1 partition, $2 kind, $3 bucket: the first bucket from there on
SELECT bucket FROM timers WHERE partition = $1 AND kind = $2 AND bucket >= $3 ORDER BY bucket LIMIT 1;

-- name: timers
-- $1 partition, $2 kind, $3 last bucket, $4-$9 the key to go on from, $10 limit
SELECT t.bucket, t.lane, t.tenant, t.time, t.job, t.version, j.*
FROM (
    SELECT bucket, lane, tenant, time, job, version
    FROM timers
    WHERE partition = $1 AND kind = $2 AND bucket <= $3
        AND (bucket, lane, tenant, time, job, version)
            > ($4::bigint, $5::smallint, $6::text, $7::bigint, $8::text, $9::bigint)
    ORDER BY bucket, lane, tenant, time, job, version
    LIMIT $10
) AS t
{{reads.job_of_timer}}
ORDER BY t.bucket, t.lane, t.tenant, t.time, t.job, t.version;

-- name: queues
-- $1 tenant
SELECT queue FROM queue_names WHERE tenant = $1;

-- name: ids
-- $1 tenant, $2 queues, $3 below this ID, $4 from this ID, $5 limit of each queue; newest first, by the listing indexes
SELECT i.id
FROM unnest($2::text[]) AS q (queue)
CROSS JOIN LATERAL (
    (SELECT id FROM jobs WHERE tenant = $1 AND queue = q.queue AND id < $3 AND id >= $4 ORDER BY id DESC LIMIT $5)
    UNION ALL
    (SELECT id FROM finished WHERE tenant = $1 AND queue = q.queue AND id < $3 AND id >= $4 ORDER BY id DESC LIMIT $5)
) AS i
ORDER BY i.id DESC
LIMIT $5;

-- name: ids_of_schedule
-- $1 schedule, $2 below this ID, $3 limit; newest first
SELECT job FROM occurrences WHERE schedule = $1 AND job < $2 ORDER BY job DESC LIMIT $3;

-- name: dead_matches
finished_at IS NOT NULL AND tenant = $1 AND queue = $2 AND (finished_at, id) < ($3::bigint, $4::text) AND finished_at >= $5
    AND finished_at < $6 AND ($7::text[] IS NULL OR id = ANY ($7)) AND ($8::text IS NULL OR strpos(last_error, $8) > 0)

-- name: dead
-- $1 tenant, $2 queue, $3 $4 below this death and ID, $5 from this death, $6 before this death, $7 IDs or NULL, $8 text or NULL, $9 limit;
-- by dead_jobs
SELECT {{reads.live}} FROM jobs
WHERE {{reads.dead_matches}}
ORDER BY finished_at DESC, id DESC
LIMIT $9;

-- name: count_dead
-- As `dead`, without $9
SELECT count(*) FROM jobs WHERE {{reads.dead_matches}};

-- name: counts_bound
-- $1 above this ID, $2 rows to pass over
SELECT id FROM jobs WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2;

-- name: counts
-- $1 above this ID, $2 up to this ID
SELECT tenant, queue, status, count(*) FROM jobs WHERE id > $1 AND id <= $2 GROUP BY tenant, queue, status;
