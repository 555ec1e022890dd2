-- Which jobs a schedule made (occurrences.py), by the primary key (schedule, job).

-- name: add
INSERT INTO occurrences (schedule, job) VALUES [[({1}, {2})]]
ON CONFLICT DO NOTHING;

-- name: known
-- each row: schedule, ID; which of them are there
WITH asked (schedule, job) AS (VALUES [[({1}, {2})]])
SELECT json_group_array(o.job)
FROM asked
CROSS JOIN occurrences AS o ON o.schedule = asked.schedule AND o.job = asked.job;

-- name: makers
-- ?1 [[queue_id, ID], ...]: which of these jobs a schedule made, and which schedule, from their definitions
SELECT json_group_array(json_array(json_extract(b.doc, '$.schedule_id'), b.id))
FROM json_each(?1) AS asked
CROSS JOIN bodies AS b ON b.queue_id = json_extract(asked.value, '$[0]')
    AND b.id = json_extract(asked.value, '$[1]')
WHERE instr(b.doc, '"schedule_id":') AND json_valid(b.doc) AND json_type(b.doc, '$.schedule_id') = 'text';

-- name: delete
-- each row: a whole key; see the trigger of this view
INSERT INTO occurrences_to_delete (schedule, job) VALUES [[({1}, {2})]];

-- name: skip_expired
-- ?1 now, ?2 IDs of jobs that expire now: what is to be read of them as skips; a longer one stays. A backfill's is none: its
-- occurrence had its turn.
INSERT INTO skips (schedule, first, reason, last, count, recorded_at, detail)
SELECT j.schedule, json_extract(b.doc, '$.occurrence_at'), 'expired', json_extract(b.doc, '$.occurrence_at'), 1, ?1, NULL
FROM json_each(?2) AS asked
CROSS JOIN jobs AS j ON j.id = asked.value
CROSS JOIN bodies AS b ON b.queue_id = j.queue_id AND b.id = j.id
WHERE j.schedule IS NOT NULL
    AND json_type(iif(json_valid(b.doc), b.doc, '{}'), '$.occurrence_at') = 'integer'
    AND json_extract(b.doc, '$.origin') = 'schedule'
    AND EXISTS (SELECT 1 FROM schedules AS s WHERE s.number = j.schedule)
ON CONFLICT (schedule, first, reason) DO UPDATE SET last = excluded.last, count = excluded.count,
    recorded_at = excluded.recorded_at, detail = excluded.detail
    WHERE excluded.last >= last;

-- name: ids
-- ?1 separator, ?2 schedule, ?3 below this ID, ?4 limit; newest first
SELECT group_concat(job, ?1)
FROM (
    SELECT job FROM occurrences
    WHERE schedule = ?2 AND job < ?3
    ORDER BY job DESC
    LIMIT ?4
);

-- name: unfinished
-- ?1 separator, ?2 schedules, ?3 statuses; by jobs_of_schedules
SELECT group_concat(j.id, ?1)
FROM json_each(?2) AS asked
CROSS JOIN jobs AS j ON j.schedule = asked.value
WHERE j.status IN (SELECT value FROM json_each(?3));
