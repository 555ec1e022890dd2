-- Skips (move.py, schedulereads.py, upkeep.py), by the primary key (schedule, first, reason).

-- name: put
-- each row: schedule, first, reason, last, count, recorded_at, detail. Of a schedule that is gone nothing is kept.
INSERT OR REPLACE INTO skips (schedule, first, reason, last, count, recorded_at, detail)
WITH told (schedule, first, reason, last, count, recorded_at, detail) AS (
    VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7})]]
)
SELECT told.schedule, told.first, told.reason, told.last, told.count, told.recorded_at, told.detail
FROM told
WHERE EXISTS (SELECT 1 FROM schedules AS s WHERE s.number = told.schedule);

-- name: delete
-- ?1 schedules
DELETE FROM skips WHERE schedule IN (SELECT value FROM json_each(?1));

-- name: page
-- ?1 separator, ?2 schedule, ?3 ?4 below this first and reason, ?5 limit; newest first
SELECT group_concat(json_array(first, last, count, reason, recorded_at, detail), ?1)
FROM (
    SELECT first, last, count, reason, recorded_at, detail
    FROM skips
    WHERE schedule = ?2 AND (first, reason) < (?3, ?4)
    ORDER BY first DESC, reason DESC
    LIMIT ?5
);

-- name: old_bound
-- ?1-?3 the key to go on from, ?4 rows to pass over: where this slice ends
SELECT schedule, first, reason
FROM skips
WHERE (schedule, first, reason) > (?1, ?2, ?3)
ORDER BY schedule, first, reason
LIMIT 1 OFFSET ?4;

-- name: delete_old
-- ?1 recorded before this instant, ?2-?4 after this key, ?5-?7 up to this one
DELETE FROM skips
WHERE (schedule, first, reason) > (?2, ?3, ?4) AND (schedule, first, reason) <= (?5, ?6, ?7) AND recorded_at < ?1;
