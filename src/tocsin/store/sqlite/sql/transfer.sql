-- Carrying an installation in or out (transfer.py, outgoing.py, incoming.py). Pages go by primary keys and unique indexes, behind a key.

-- name: marks
SELECT installation, moved_to, arriving_from FROM identity WHERE only = 1;

-- name: set_moved_to
UPDATE identity SET moved_to = ?1 WHERE only = 1;

-- name: set_arriving_from
UPDATE identity SET arriving_from = ?1 WHERE only = 1;

-- name: tenants
-- ?1 behind this name, ?2 limit
SELECT name, weight, quotas, created_at FROM tenants WHERE name > ?1 ORDER BY name LIMIT ?2;

-- name: tokens
-- ?1 behind this ID, ?2 limit
SELECT token_id, tenant, name, secret_sha256, scopes, created_at, expires_at
FROM tokens WHERE token_id > ?1 ORDER BY token_id LIMIT ?2;

-- name: signing_keys
-- ?1 behind this ID, ?2 limit
SELECT key_id, tenant, secret, created_at FROM signing_keys WHERE key_id > ?1 ORDER BY key_id LIMIT ?2;

-- name: queues
-- ?1 ?2 behind this tenant and queue, ?3 limit
SELECT tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at
FROM queues WHERE (tenant, queue) > (?1, ?2) ORDER BY tenant, queue LIMIT ?3;

-- name: secrets
-- ?1 behind this name, ?2 limit
SELECT name, value FROM secrets WHERE name > ?1 ORDER BY name LIMIT ?2;

-- name: schedules
-- ?1 behind this number, ?2 limit
SELECT s.id, t.tenant, s.name, s.revision, s.serial, s.status, s.look_at, coalesce(p.spec, ''), s.state
FROM schedules AS s
LEFT JOIN tenant_ids AS t ON t.tenant_id = s.tenant_id
LEFT JOIN specs AS p ON p.spec_id = s.spec_id
WHERE s.number > ?1
ORDER BY s.number LIMIT ?2;

-- name: skips
-- ?1-?3 behind this schedule's number, first and reason, ?4 limit
SELECT s.id, k.first, k.last, k.count, k.reason, k.recorded_at, k.detail
FROM skips AS k
JOIN schedules AS s ON s.number = k.schedule
WHERE (k.schedule, k.first, k.reason) > (?1, ?2, ?3)
ORDER BY k.schedule, k.first, k.reason LIMIT ?4;

-- name: jobs
-- ?1 behind this ID, ?2 limit
SELECT j.id, j.line_id, j.priority, j.status, j.version, j.attempt, j.tries, j.due_at, j.fire_at, j.timeout_ms, j.expires_at,
    j.queued_at, j.started_at, j.claimed_at, j.lease_until, j.lease_ms, j.beaten_at, j.worker, j.losses, j.releases,
    j.finished_at, j.outcome, j.last_error, j.progress, NULL, NULL, NULL, coalesce(b.doc, '')
FROM jobs AS j
LEFT JOIN bodies AS b ON b.queue_id = j.queue_id AND b.id = j.id
WHERE j.id > ?1
ORDER BY j.id LIMIT ?2;

-- name: finished
-- ?1 behind this ID, ?2 limit
SELECT f.id, f.line_id, f.priority, f.status, f.version, f.attempt, f.tries, f.due_at, f.fire_at, 0, f.expires_at,
    f.queued_at, f.started_at, f.claimed_at, NULL, NULL, NULL, f.worker, f.losses, f.releases,
    f.finished_at, f.outcome, f.last_error, f.progress, f.result, f.status_code, f.response, coalesce(b.doc, '')
FROM finished AS f
LEFT JOIN bodies AS b ON b.queue_id = f.queue_id AND b.id = f.id
WHERE f.id > ?1
ORDER BY f.id LIMIT ?2;

-- name: attempts
-- ?1 IDs of jobs
SELECT a.job, a.attempt, a.worker, a.claimed_at, a.finished_at, a.outcome, a.error, a.due_at, a.status_code, a.response
FROM json_each(?1) AS asked
CROSS JOIN attempts AS a ON a.job = asked.value
ORDER BY a.job, a.attempt;

-- name: keys
-- ?1 ?2 behind this tenant's key of that hash, ?3 limit. In the order in which they expire, in which the target's sweep needs
-- them too.
SELECT t.tenant, k.hash, k.body_hash, k.job, k.expires_at
FROM keys AS k
LEFT JOIN tenant_ids AS t ON t.tenant_id = k.tenant_id
WHERE k.number > coalesce((
    SELECT b.number
    FROM tenant_ids AS u
    JOIN keys AS b ON b.tenant_id = u.tenant_id AND b.hash = ?2
    WHERE u.tenant = ?1), 0)
ORDER BY k.number LIMIT ?3;

-- name: put_tenant
INSERT OR REPLACE INTO tenants (name, weight, quotas, created_at) VALUES (?1, ?2, ?3, ?4);

-- name: put_token
INSERT OR REPLACE INTO tokens (token_id, tenant, name, secret_sha256, scopes, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: put_signing_key
INSERT OR REPLACE INTO signing_keys (key_id, tenant, secret, created_at) VALUES (?1, ?2, ?3, ?4);

-- name: put_queue
INSERT OR REPLACE INTO queues (tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s,
    max_backoff_s, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);

-- name: put_secret
INSERT OR REPLACE INTO secrets (name, value) VALUES (?1, ?2);

-- name: put_key
INSERT OR REPLACE INTO keys (tenant_id, hash, body_hash, job, expires_at) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: old_schedules
-- ?1 numbers, ?2 [[tenant_id, name], …]: what stands in the place of rows that come, by number or by name
SELECT s.number, s.spec_id FROM json_each(?1) AS asked CROSS JOIN schedules AS s ON s.number = asked.value
UNION
SELECT s.number, s.spec_id
FROM json_each(?2) AS asked
CROSS JOIN schedules AS s ON s.tenant_id = json_extract(asked.value, '$[0]') AND s.name = json_extract(asked.value, '$[1]');

-- name: old_jobs
-- ?1 IDs: under which queues they are here already
SELECT j.queue_id, j.id FROM json_each(?1) AS asked CROSS JOIN jobs AS j ON j.id = asked.value
UNION
SELECT f.queue_id, f.id FROM json_each(?1) AS asked CROSS JOIN finished AS f ON f.id = asked.value;
