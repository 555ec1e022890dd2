-- Deleting what is past its retention (upkeep.py).

-- name: old_finished
-- ?1 before this instant, ?2 limit; by finished_by_time
SELECT json_group_array(json_array(queue_id, id))
FROM (SELECT queue_id, id FROM finished WHERE finished_at < ?1 ORDER BY finished_at LIMIT ?2);

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
DELETE FROM bodies WHERE (queue_id, id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1));
