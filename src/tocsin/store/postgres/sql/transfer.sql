-- Carrying an installation in or out (transfer.py, outgoing.py, incoming.py), on connections of their own. Pages go by primary
-- keys and unique indexes, behind a key; the last parameter is the limit. What is put replaces what is there.

-- name: has_identity
SELECT to_regclass('identity') IS NOT NULL;

-- name: marks
SELECT installation, moved_to, arriving_from FROM identity WHERE one;

-- name: set_moved_to
UPDATE identity SET moved_to = $1 WHERE one;

-- name: set_arriving_from
UPDATE identity SET arriving_from = $1 WHERE one;

-- name: raise_floors
-- $1 $2 first and last partition, $3 bucket
INSERT INTO floors AS f (partition, bucket)
SELECT partition, $3::bigint FROM generate_series($1::integer, $2::integer) AS partition
ON CONFLICT (partition) DO UPDATE SET bucket = greatest(f.bucket, excluded.bucket);

-- name: tenants
SELECT name, weight, quotas, created_at FROM tenants WHERE name > $1 ORDER BY name LIMIT $2;

-- name: tokens
SELECT token_id, tenant, name, secret_sha256, scopes, created_at, expires_at
FROM tokens WHERE token_id > $1 ORDER BY token_id LIMIT $2;

-- name: signing_keys
SELECT key_id, tenant, secret, created_at FROM signing_keys WHERE key_id > $1 ORDER BY key_id LIMIT $2;

-- name: queues
SELECT tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at
FROM queues WHERE (tenant, queue) > ($1, $2) ORDER BY tenant, queue LIMIT $3;

-- name: secrets
SELECT name, value FROM secrets WHERE name > $1 ORDER BY name LIMIT $2;

-- name: schedules
-- $1 number
SELECT s.id, s.tenant, s.name, s.revision, s.serial, s.status, s.look_at, coalesce(p.spec, '') AS spec, s.state
FROM schedules AS s
LEFT JOIN specs AS p ON p.schedule = s.number
WHERE s.number > $1
ORDER BY s.number LIMIT $2;

-- name: skips
-- $1-$3 schedule's number, first and reason
SELECT s.id, k.first, k.last, k.count, k.reason, k.recorded_at, k.detail
FROM skips AS k
JOIN schedules AS s ON s.number = k.schedule
WHERE (k.schedule, k.first, k.reason) > ($1, $2, $3)
ORDER BY k.schedule, k.first, k.reason LIMIT $4;

-- name: jobs
SELECT id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at, timeout_ms,
    expires_at, queued_at, started_at, claimed_at, lease_until, lease_ms, beaten_at, worker, losses, releases, finished_at, outcome,
    last_error, progress, NULL::bytea AS result, NULL::integer AS status_code, NULL::bytea AS response, doc
FROM jobs WHERE id > $1 ORDER BY id LIMIT $2;

-- name: finished
SELECT id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at,
    0::bigint AS timeout_ms, expires_at, queued_at, started_at, claimed_at, NULL::bigint AS lease_until, NULL::bigint AS lease_ms,
    NULL::bigint AS beaten_at, worker, losses, releases, finished_at, outcome,
    last_error, progress, result, status_code, response, doc
FROM finished WHERE id > $1 ORDER BY id LIMIT $2;

-- name: attempts
-- $1 IDs
SELECT job, attempt, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response
FROM attempts WHERE job = ANY ($1::text[]) ORDER BY job, attempt;

-- name: keys
-- $1-$3 expiry, tenant and hash; by keys_by_expiry: in the order in which they expire, in which a target's sweep may need them
SELECT tenant, hash, body_hash, job, expires_at
FROM keys WHERE (expires_at, tenant, hash) > ($1, $2, $3) ORDER BY expires_at, tenant, hash LIMIT $4;

-- name: put_tenant
INSERT INTO tenants (name, weight, quotas, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, quotas = excluded.quotas, created_at = excluded.created_at;

-- name: put_token
INSERT INTO tokens (token_id, tenant, name, secret_sha256, scopes, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (token_id) DO UPDATE SET tenant = excluded.tenant, name = excluded.name, secret_sha256 = excluded.secret_sha256,
    scopes = excluded.scopes, created_at = excluded.created_at, expires_at = excluded.expires_at;

-- name: put_signing_key
INSERT INTO signing_keys (key_id, tenant, secret, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (key_id) DO UPDATE SET tenant = excluded.tenant, secret = excluded.secret, created_at = excluded.created_at;

-- name: put_queue
INSERT INTO queues (tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s,
    created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant, queue) DO UPDATE SET paused = excluded.paused, pause_note = excluded.pause_note,
    pause_until = excluded.pause_until, lease_ms = excluded.lease_ms, max_attempts = excluded.max_attempts,
    initial_backoff_s = excluded.initial_backoff_s, max_backoff_s = excluded.max_backoff_s, created_at = excluded.created_at;

-- name: put_secret
INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: put_key
INSERT INTO keys (tenant, hash, body_hash, job, expires_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, hash) DO UPDATE SET body_hash = excluded.body_hash, job = excluded.job, expires_at = excluded.expires_at;

-- name: forget_schedules
-- $1 numbers, $2 tenants, $3 names: what stands in the place of rows that come, by number or by name
DELETE FROM schedules AS s
USING unnest($1::bigint[], $2::text[], $3::text[]) AS n (number, tenant, name)
WHERE s.number = n.number OR (s.tenant = n.tenant AND s.name = n.name);

-- name: put_schedule
INSERT INTO schedules (number, id, partition, tenant, name, revision, serial, status, look_at, spec_crc, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: put_spec
INSERT INTO specs (schedule, spec) VALUES ($1, $2) ON CONFLICT (schedule) DO UPDATE SET spec = excluded.spec;

-- name: put_skip
INSERT INTO skips (schedule, first, last, count, reason, recorded_at, detail) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (schedule, first, reason) DO UPDATE SET last = excluded.last, count = excluded.count,
    recorded_at = excluded.recorded_at, detail = excluded.detail;

-- name: forget_jobs
-- $1 IDs; their attempts and finished rows are found day by day
WITH live AS (DELETE FROM jobs WHERE id = ANY ($1::text[])), tries AS (DELETE FROM attempts WHERE job = ANY ($1::text[]))
DELETE FROM finished WHERE id = ANY ($1::text[]);

-- name: put_queue_name
INSERT INTO queue_names (tenant, queue) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: put_occurrence
INSERT INTO occurrences (schedule, job) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: put_timer
-- $1 partition, $2 kind, $3 bucket, $4 lane, $5 tenant, $6 time, $7 job, $8 version
INSERT INTO timers (partition, kind, bucket, lane, tenant, time, job, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING;

-- name: put_attempt
INSERT INTO attempts (job, attempt, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: put_job
INSERT INTO jobs (id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at,
    expires_at, queued_at, started_at, claimed_at, worker, losses, releases, finished_at, outcome, last_error, progress, schedule,
    doc, timeout_ms, lease_until, lease_ms, beaten_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
    $27, $28, $29, $30, $31);

-- name: put_finished
INSERT INTO finished (id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at,
    expires_at, queued_at, started_at, claimed_at, worker, losses, releases, finished_at, outcome, last_error, progress, schedule,
    doc, result, status_code, response)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
    $27, $28, $29, $30);
