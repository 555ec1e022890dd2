-- Skips (skips.py, schedulereads.py), by the primary key (schedule, first, reason).

-- name: standing
-- $1 schedules. Which of them there are; none is deleted before this transaction ends, so no skip outlives its schedule.
SELECT number FROM schedules WHERE number = ANY ($1::bigint[]) ORDER BY number FOR KEY SHARE;

-- name: put
-- $1 schedules, $2 firsts, $3 reasons, $4 lasts, $5 counts, $6 recorded_at, $7 details; in the order of the key, each once. The
-- same again replaces.
INSERT INTO skips (schedule, first, reason, last, count, recorded_at, detail)
SELECT schedule, first, reason, last, count, recorded_at, detail
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[])
    AS told (schedule, first, reason, last, count, recorded_at, detail)
ON CONFLICT (schedule, first, reason) DO UPDATE SET last = excluded.last, count = excluded.count,
    recorded_at = excluded.recorded_at, detail = excluded.detail;

-- name: page
-- $1 schedule, $2 $3 below this first and reason, $4 limit; newest first
SELECT first, last, count, reason, recorded_at, detail
FROM skips
WHERE schedule = $1 AND (first, reason) < ($2, $3)
ORDER BY first DESC, reason DESC
LIMIT $4;
