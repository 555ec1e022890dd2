-- Statements on live jobs. Lists of IDs come as one JSON array (or object) through json_each and find their rows by the
-- primary key. Statuses: 1 SCHEDULED, 2 QUEUED, 3 RUNNING, 4 CANCEL_REQUESTED, 5 RETRYING, 7 DEAD.

-- name: look
-- ?1 IDs. Every careful path.
SELECT json_group_array(json_array(
    coalesce(j.status, 0), coalesce(j.version, 0), coalesce(j.attempt, 0), coalesce(j.due_at, 0),
    j.expires_at, j.claimed_at, coalesce(j.timeout_ms, 0), j.lease_ms, j.lease_until, j.beaten_at))
FROM json_each(?1) AS asked
LEFT JOIN jobs AS j ON j.id = asked.value;

-- name: fire_quick
-- ?1 now, ?2 {ID: due}, ?3 version, ?4 the latest due. Those of another due_at are found by due_earlier before.
UPDATE jobs SET status = 2, queued_at = ?1
WHERE id IN (SELECT key FROM json_each(?2)) AND version = ?3 AND status IN (1, 5) AND due_at <= ?4
    AND (expires_at IS NULL OR attempt > 0 OR expires_at > ?1);

-- name: fire_scheduled
-- As `fire_quick`, of jobs that are SCHEDULED, expired or not: whoever moves their schedule has judged that.
UPDATE jobs SET status = 2, queued_at = ?1
WHERE id IN (SELECT key FROM json_each(?2)) AND version = ?3 AND status = 1 AND due_at <= ?4;

-- name: due_earlier
-- ?1 {ID: due}. How many are asked for earlier than their job is due.
SELECT count(*)
FROM json_each(?1) AS asked
CROSS JOIN jobs AS j ON j.id = asked.key
WHERE j.due_at > asked.value;

-- name: fire_these
-- ?1 now, ?2 IDs that were looked at
UPDATE jobs SET status = 2, queued_at = ?1
WHERE id IN (SELECT value FROM json_each(?2));

-- name: claim_quick
-- ?1 now, ?2 IDs, ?3 worker, ?4 lease in ms
UPDATE jobs SET status = 3, attempt = attempt + 1, tries = tries + 1, started_at = coalesce(started_at, ?1),
    claimed_at = ?1, lease_until = ?1 + ?4, lease_ms = ?4, beaten_at = NULL, worker = ?3
WHERE id IN (SELECT value FROM json_each(?2)) AND status = 2
    AND (expires_at IS NULL OR attempt > 0 OR expires_at > ?1);

-- name: claim_these
-- ?1 now, ?2 IDs that were looked at, ?3 worker, ?4 lease in ms
UPDATE jobs SET status = 3, attempt = attempt + 1, tries = tries + 1, started_at = coalesce(started_at, ?1),
    claimed_at = ?1, lease_until = ?1 + ?4, lease_ms = ?4, beaten_at = NULL, worker = ?3
WHERE id IN (SELECT value FROM json_each(?2));

-- name: claimed
-- ?1 IDs. What a claim answers, in the order of the IDs.
SELECT json_group_array(json_array(
    j.version, j.attempt, j.tries, j.due_at, j.lease_until, j.lease_ms, j.fire_at, j.line_id, j.progress))
FROM json_each(?1) AS asked
CROSS JOIN jobs AS j ON j.id = asked.value;

-- name: definitions
-- ?1 IDs, ?2 record separator; in the order of the IDs
SELECT group_concat(b.doc, ?2)
FROM json_each(?1) AS asked
CROSS JOIN jobs AS j ON j.id = asked.value
CROSS JOIN bodies AS b ON b.queue_id = j.queue_id AND b.id = j.id;

-- name: beat_these
-- ?1 now, ?2 IDs that were looked at, ?3 the grace past the timeout in ms
UPDATE jobs SET lease_until = min(?1 + lease_ms, claimed_at + timeout_ms + ?3), beaten_at = ?1
WHERE id IN (SELECT value FROM json_each(?2));

-- name: progress
-- ?1 {ID: progress as text}
UPDATE jobs SET progress = told.value
FROM json_each(?1) AS told
WHERE jobs.id = told.key;

-- name: delete
-- ?1 IDs
DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(?1));

-- name: put
-- Whole rows, as a change leaves them.
INSERT OR REPLACE INTO jobs (id, queue_id, line_id, priority, status, version, attempt, tries, due_at, fire_at, timeout_ms,
    expires_at, queued_at, started_at, claimed_at, lease_until, lease_ms, beaten_at, worker, losses, releases,
    finished_at, outcome, last_error, progress, schedule)
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11},
    {12}, {13}, {14}, {15}, {16}, {17}, {18}, {19}, {20}, {21},
    {22}, {23}, {24}, {25}, {26})]];

-- name: add
-- ?1 now, ?2 SCHEDULED or QUEUED is in {5}
INSERT INTO jobs (id, queue_id, line_id, priority, status, due_at, fire_at, expires_at, timeout_ms, queued_at)
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {6}, {7}, {8}, iif({5} = 2, ?1, NULL))]]
ON CONFLICT DO NOTHING;

-- name: add_of_schedule
-- As `add`; {9} is the schedule's number
INSERT INTO jobs (id, queue_id, line_id, priority, status, due_at, fire_at, expires_at, timeout_ms, queued_at, schedule)
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {6}, {7}, {8}, iif({5} = 2, ?1, NULL), {9})]]
ON CONFLICT DO NOTHING;

-- name: add_bodies
INSERT INTO bodies (queue_id, id, doc) VALUES [[({1}, {2}, {3})]]
ON CONFLICT DO NOTHING;

-- name: known_bodies
-- ?1 [[queue_id, ID], ...]: which of them were written before
SELECT json_group_array(b.id)
FROM json_each(?1) AS asked
CROSS JOIN bodies AS b ON b.queue_id = json_extract(asked.value, '$[0]')
    AND b.id = json_extract(asked.value, '$[1]');

-- name: set_body
-- ?1 the queue_id that it was under, ?2 ID, ?3 the definition, ?4 the queue_id that it is under now
UPDATE bodies SET doc = ?3, queue_id = ?4 WHERE queue_id = ?1 AND id = ?2;
