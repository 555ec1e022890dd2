-- Deleting what is past its retention (upkeep.py).

-- name: old_finished
-- $1 finished before this instant, $2 limit
SELECT id, schedule FROM finished WHERE finished_at < $1 ORDER BY id LIMIT $2;

-- name: count_day
-- $1 from this instant, $2 before this one, $3 the most to be counted
SELECT count(*) FROM (SELECT 1 FROM finished WHERE finished_at >= $1 AND finished_at < $2 LIMIT $3) AS t;

-- name: occurrences_of_day
-- $1 from this instant, $2 before this one, $3 above this ID, $4 limit
SELECT id, schedule
FROM finished
WHERE finished_at >= $1 AND finished_at < $2 AND schedule IS NOT NULL AND id > $3
ORDER BY id
LIMIT $4;

-- name: size
-- $1 name of a table
SELECT coalesce(pg_total_relation_size(to_regclass($1)), 0);

-- name: old_dead
-- $1 dead before this instant, $2 limit; queue by queue, by dead_jobs
SELECT j.id, j.schedule
FROM queue_names AS q
CROSS JOIN LATERAL (
    SELECT id, schedule FROM jobs
    WHERE tenant = q.tenant AND queue = q.queue AND finished_at IS NOT NULL AND finished_at < $1
    ORDER BY finished_at, id
    LIMIT $2
) AS j
LIMIT $2;

-- name: delete_finished
-- $1 IDs, $2 finished before
DELETE FROM finished WHERE id = ANY ($1::text[]) AND finished_at < $2 RETURNING id, schedule;

-- name: delete_dead
-- $1 IDs, $2 dead before
DELETE FROM jobs WHERE id = ANY ($1::text[]) AND finished_at < $2 RETURNING id, schedule;

-- name: delete_attempts
-- $1 IDs
DELETE FROM attempts WHERE job = ANY ($1::text[]);

-- name: delete_occurrences
-- $1 schedules, $2 jobs (bulk)
DELETE FROM occurrences AS o
USING unnest($1::bigint[], $2::text[]) AS k (schedule, job)
WHERE o.schedule = k.schedule AND o.job = k.job;

-- name: delete_old_skips
-- $1 recorded before this instant, $2-$4 the key to go on from, $5 how many to look at: the key up to which was looked, and how many
-- were looked at
WITH page AS MATERIALIZED (
    SELECT ctid AS place, schedule, first, reason, recorded_at
    FROM skips
    WHERE (schedule, first, reason) > ($2::bigint, $3::bigint, $4::text)
    ORDER BY schedule, first, reason
    LIMIT $5
),
gone AS (
    DELETE FROM skips
    WHERE ctid = ANY (ARRAY (SELECT place FROM page WHERE recorded_at < $1)) AND recorded_at < $1
)
SELECT schedule, first, reason, (SELECT count(*) FROM page)
FROM page
ORDER BY schedule DESC, first DESC, reason DESC
LIMIT 1;
