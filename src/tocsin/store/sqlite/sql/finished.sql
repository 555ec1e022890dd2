-- Moving jobs out of `jobs` into `finished`. The columns of an INSERT stand in the order of the table.

-- name: columns
id, queue_id, line_id, priority, status, version, attempt, tries, due_at, fire_at, expires_at, queued_at, started_at,
claimed_at, worker, losses, releases, finished_at, outcome, last_error, progress, result, status_code, response

-- name: succeed_plain
-- ?1 now, ?2 IDs, ?3 attempt
INSERT INTO finished ({{finished.columns}})
SELECT j.id, j.queue_id, j.line_id, j.priority, 6, j.version, j.attempt, j.tries, j.due_at, j.fire_at, j.expires_at,
    j.queued_at, j.started_at, j.claimed_at, j.worker, j.losses, j.releases, ?1, 1, j.last_error, j.progress, NULL, NULL, NULL
FROM json_each(?2) AS asked
CROSS JOIN jobs AS j ON j.id = asked.value
WHERE j.attempt = ?3 AND j.status IN (3, 4)
ON CONFLICT DO NOTHING;

-- name: succeed_told
-- ?1 now; each row: ID, attempt, result, status code, response
INSERT INTO finished ({{finished.columns}})
WITH told (id, attempt, result, status_code, response) AS (VALUES [[({1}, {2}, {3}, {4}, {5})]])
SELECT j.id, j.queue_id, j.line_id, j.priority, 6, j.version, j.attempt, j.tries, j.due_at, j.fire_at, j.expires_at,
    j.queued_at, j.started_at, j.claimed_at, j.worker, j.losses, j.releases, ?1, 1, j.last_error, j.progress,
    told.result, told.status_code, told.response
FROM told
CROSS JOIN jobs AS j ON j.id = told.id
WHERE j.attempt = told.attempt AND j.status IN (3, 4)
ON CONFLICT DO NOTHING;

-- name: skip_expired
-- ?1 now, ?2 IDs that were looked at
INSERT INTO finished ({{finished.columns}})
SELECT j.id, j.queue_id, j.line_id, j.priority, 9, j.version, j.attempt, j.tries, j.due_at, j.fire_at, j.expires_at,
    j.queued_at, j.started_at, j.claimed_at, j.worker, j.losses, j.releases, ?1, j.outcome,
    'expired: it could not start before ' || coalesce(strftime('%Y-%m-%dT%H:%M:%SZ', j.expires_at / 1000, 'unixepoch'), '?'),
    j.progress, NULL, NULL, NULL
FROM json_each(?2) AS asked
CROSS JOIN jobs AS j ON j.id = asked.value;

-- name: add
-- Whole rows, as a change leaves them.
INSERT INTO finished ({{finished.columns}})
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13},
    {14}, {15}, {16}, {17}, {18}, {19}, {20}, {21}, {22}, {23}, {24})]]
ON CONFLICT DO NOTHING;

-- name: add_attempts
INSERT OR REPLACE INTO attempts (job, attempt, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response)
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10})]];

-- name: known
-- ?1 IDs: which of them have finished
SELECT json_group_array(f.id)
FROM json_each(?1) AS asked
CROSS JOIN finished AS f ON f.id = asked.value;
