-- The small tables (settings.py), in the home database; all by their primary keys or the index on the tenant.

-- name: tenants
SELECT name, weight, quotas, created_at FROM tenants ORDER BY name;

-- name: add_tenant
-- $1 name, $2 weight, $3 quotas, $4 created_at
INSERT INTO tenants (name, weight, quotas, created_at)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
RETURNING true;

-- name: set_tenant
-- $1 name, $2 weight, $3 quotas; when it was created stays what it is
UPDATE tenants SET weight = $2, quotas = $3 WHERE name = $1 RETURNING true;

-- name: tokens
-- $1 tenant or NULL for all
SELECT token_id, tenant, name, secret_sha256, scopes, created_at, expires_at
FROM tokens
WHERE $1::text IS NULL OR tenant = $1
ORDER BY tenant, token_id;

-- name: token
-- $1 token_id
SELECT token_id, tenant, name, secret_sha256, scopes, created_at, expires_at FROM tokens WHERE token_id = $1;

-- name: add_token
-- Adding it again gives it another name, where it is the same token.
INSERT INTO tokens (token_id, tenant, name, secret_sha256, scopes, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (token_id) DO UPDATE SET name = excluded.name
WHERE tokens.tenant = excluded.tenant AND tokens.secret_sha256 = excluded.secret_sha256;

-- name: delete_token
-- $1 tenant, $2 token_id
DELETE FROM tokens WHERE token_id = $2 AND tenant = $1 RETURNING true;

-- name: signing_keys
-- $1 tenant; newest first
SELECT key_id, tenant, secret, created_at
FROM signing_keys
WHERE tenant = $1
ORDER BY created_at DESC, key_id DESC;

-- name: add_signing_key
INSERT INTO signing_keys (key_id, tenant, secret, created_at)
VALUES ($1, $2, $3, $4)
ON CONFLICT (key_id) DO NOTHING;

-- name: put_queue
INSERT INTO queues (tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s,
    created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant, queue) DO UPDATE SET paused = excluded.paused, pause_note = excluded.pause_note,
    pause_until = excluded.pause_until, lease_ms = excluded.lease_ms, max_attempts = excluded.max_attempts,
    initial_backoff_s = excluded.initial_backoff_s, max_backoff_s = excluded.max_backoff_s;

-- name: queues
-- $1 tenant or NULL for all
SELECT tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at
FROM queues
WHERE $1::text IS NULL OR tenant = $1
ORDER BY tenant, queue;

-- name: queue_names
-- $1 tenant or NULL for all; asked of every shard: the queues that ever had a job there
SELECT tenant, queue FROM queue_names WHERE $1::text IS NULL OR tenant = $1;

-- name: queue
-- $1 tenant, $2 queue
SELECT tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at
FROM queues
WHERE tenant = $1 AND queue = $2;

-- name: add_secret
-- $1 name, $2 value; whoever comes second reads what the first has written
INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: secret
-- $1 name
SELECT value FROM secrets WHERE name = $1;
