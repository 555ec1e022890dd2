-- Deleting what is past its retention (upkeep.py).

-- name: next_finished
-- ?1 above this ID, ?2 below this ID, ?3 limit. A job that finished before an instant was made before it, so its ID is lower.
SELECT json_group_array(json_array(queue_id, id, finished_at))
FROM (SELECT queue_id, id, finished_at FROM finished WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3);

-- name: old_dead
-- ?1 before this instant, ?2 limit; by dead_jobs, queue by queue
SELECT json_group_array(json_array(queue_id, id))
FROM (
    SELECT j.queue_id, j.id
    FROM queue_ids AS q
    CROSS JOIN jobs AS j ON j.queue_id = q.queue_id
    WHERE j.status = 7 AND j.finished_at < ?1
    LIMIT ?2
);

-- name: delete_finished
DELETE FROM finished WHERE id IN (SELECT value FROM json_each(?1));

-- name: delete_attempts
DELETE FROM attempts WHERE job IN (SELECT value FROM json_each(?1));

-- name: delete_bodies
-- ?1 [[queue_id, ID], ...]
DELETE FROM bodies
WHERE rowid IN (
    SELECT b.rowid
    FROM json_each(?1) AS asked
    CROSS JOIN bodies AS b ON b.queue_id = json_extract(asked.value, '$[0]')
        AND b.id = json_extract(asked.value, '$[1]')
);
