-- Queries of the read-only connections. Each answers with one row of joined records (rows.py); Where records are joined,
-- ?1 is the separator.

-- name: states
-- ?2 IDs
SELECT group_concat({{states.either}}, ?1), group_concat(coalesce(b.doc, ''), ?1)
FROM json_each(?2) AS asked
LEFT JOIN jobs AS j ON j.id = asked.value
LEFT JOIN finished AS f ON f.id = asked.value
LEFT JOIN bodies AS b ON b.queue_id = coalesce(j.queue_id, f.queue_id) AND b.id = asked.value;

-- name: attempts
-- ?1 ID; at most 1 + one per attempt. The finished row stands for a success that has no record of its own.
SELECT attempt, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response
FROM attempts
WHERE job = ?1
UNION ALL
SELECT f.attempt, f.worker, f.claimed_at, f.finished_at, f.outcome, NULL, f.due_at, f.status_code, f.response
FROM finished AS f
WHERE f.id = ?1 AND f.status = 6 AND f.claimed_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.job = f.id AND a.attempt = f.attempt)
ORDER BY 1;

-- name: due
-- ?1 partition, ?2 last bucket, ?3-?8 the key to go on from, ?9 limit. Due, lane and time are judged by the caller.
SELECT json_group_array(json_array(t.bucket, t.lane, t.tenant_id, t.time, t.job, t.version,
    iif(j.status IN (1, 5), j.line_id, NULL), j.priority))
FROM (
    SELECT bucket, lane, tenant_id, time, job, version
    FROM timers
    WHERE partition = ?1 AND kind = 0 AND bucket <= ?2
        AND (bucket, lane, tenant_id, time, job, version) > (?3, ?4, ?5, ?6, ?7, ?8)
    ORDER BY bucket, lane, tenant_id, time, job, version
    LIMIT ?9
) AS t
LEFT JOIN jobs AS j ON j.id = t.job AND j.version = t.version;

-- name: due_of_tenant
-- ?1 partition, ?2 bucket, ?3 lane, ?4 tenant_id, ?5 ?6 ?7 the time, job and version to go on from, ?8 limit
SELECT json_group_array(json_array(t.bucket, t.lane, t.tenant_id, t.time, t.job, t.version,
    iif(j.status IN (1, 5), j.line_id, NULL), j.priority))
FROM (
    SELECT bucket, lane, tenant_id, time, job, version
    FROM timers
    WHERE partition = ?1 AND kind = 0 AND bucket = ?2 AND lane = ?3 AND tenant_id = ?4
        AND (time, job, version) > (?5, ?6, ?7)
    ORDER BY time, job, version
    LIMIT ?8
) AS t
LEFT JOIN jobs AS j ON j.id = t.job AND j.version = t.version;

-- name: due_of_lane
-- ?1 partition, ?2 bucket, ?3 lane, ?4-?7 the tenant_id, time, job and version to go on from, ?8 limit
SELECT json_group_array(json_array(t.bucket, t.lane, t.tenant_id, t.time, t.job, t.version,
    iif(j.status IN (1, 5), j.line_id, NULL), j.priority))
FROM (
    SELECT bucket, lane, tenant_id, time, job, version
    FROM timers
    WHERE partition = ?1 AND kind = 0 AND bucket = ?2 AND lane = ?3
        AND (tenant_id, time, job, version) > (?4, ?5, ?6, ?7)
    ORDER BY tenant_id, time, job, version
    LIMIT ?8
) AS t
LEFT JOIN jobs AS j ON j.id = t.job AND j.version = t.version;

-- name: next_bucket
-- ?1 partition, ?2 kind, ?3 bucket: the first bucket from there on
SELECT min(bucket) FROM timers WHERE partition = ?1 AND kind = ?2 AND bucket >= ?3;

-- name: timers
-- ?2 partition, ?3 kind, ?4 last bucket, ?5-?10 the key to go on from, ?11 limit
SELECT json_group_array(json_array(t.bucket, t.lane, t.tenant_id, t.time, t.job, t.version)),
    group_concat(iif(j.id IS NULL, '', {{states.live}}), ?1), group_concat(coalesce(b.doc, ''), ?1)
FROM (
    SELECT bucket, lane, tenant_id, time, job, version
    FROM timers
    WHERE partition = ?2 AND kind = ?3 AND bucket <= ?4
        AND (bucket, lane, tenant_id, time, job, version) > (?5, ?6, ?7, ?8, ?9, ?10)
    ORDER BY bucket, lane, tenant_id, time, job, version
    LIMIT ?11
) AS t
LEFT JOIN jobs AS j ON j.id = t.job AND j.version = t.version
LEFT JOIN bodies AS b ON b.queue_id = j.queue_id AND b.id = j.id;

-- name: ids_of_queue
-- ?2 queue_id, ?3 below this ID, ?4 from this ID, ?5 limit; newest first, from the listing index alone
SELECT group_concat(id, ?1)
FROM (
    SELECT id FROM bodies
    WHERE queue_id = ?2 AND id < ?3 AND id >= ?4
    ORDER BY id DESC
    LIMIT ?5
);

-- name: dead
-- ?2 queue_id, ?3 ?4 below this death and ID, ?5 from this death, ?6 before this death, ?7 IDs or NULL, ?8 text or NULL,
-- ?9 ?10 tag or NULL, ?11 limit; by dead_jobs
SELECT group_concat(id, ?1)
FROM (
    SELECT j.id
    FROM jobs AS j
    LEFT JOIN bodies AS b ON b.queue_id = j.queue_id AND b.id = j.id
    WHERE {{reads.dead_matches}}
    ORDER BY j.finished_at DESC, j.id DESC
    LIMIT ?11
);

-- name: count_dead
-- As `dead`, without ?11
SELECT count(*)
FROM jobs AS j
LEFT JOIN bodies AS b ON b.queue_id = j.queue_id AND b.id = j.id
WHERE {{reads.dead_matches}};

-- name: dead_matches
j.status = 7 AND j.queue_id = ?2 AND (j.finished_at, j.id) < (?3, ?4) AND j.finished_at >= ?5 AND j.finished_at < ?6
    AND (?7 IS NULL OR j.id IN (SELECT value FROM json_each(?7)))
    AND (?8 IS NULL OR instr(j.last_error, ?8))
    AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM json_each(iif(json_valid(b.doc), b.doc, '{}'), '$.tags') AS tag
        WHERE tag.key = ?9 AND tag.value = ?10))

-- name: counts
-- ?1 above this ID, ?2 up to this ID
SELECT json_group_array(json_array(queue_id, status, n))
FROM (
    SELECT queue_id, status, count(*) AS n
    FROM jobs WHERE id > ?1 AND id <= ?2
    GROUP BY queue_id, status
);

-- name: counts_bound
-- ?1 above this ID, ?2 rows to pass over
SELECT id FROM jobs WHERE id > ?1 ORDER BY id LIMIT 1 OFFSET ?2;
