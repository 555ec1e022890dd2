-- The small tables (settings.py), all by their primary keys or the index on the tenant.

-- name: tenants
SELECT name, weight, quotas, created_at FROM tenants ORDER BY name;

-- name: add_tenant
INSERT INTO tenants (name, weight, quotas, created_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING;

-- name: set_tenant
-- ?4, when it was created, stays what it is
UPDATE tenants SET weight = ?2, quotas = ?3 WHERE name = ?1 AND ?4 IS NOT NULL;

-- name: tokens
-- ?1 tenant or NULL for all
SELECT token_id, tenant, name, secret_sha256, scopes, created_at, expires_at
FROM tokens
WHERE ?1 IS NULL OR tenant = ?1
ORDER BY tenant, token_id;

-- name: token
SELECT token_id, tenant, name, secret_sha256, scopes, created_at, expires_at FROM tokens WHERE token_id = ?1;

-- name: add_token
INSERT INTO tokens (token_id, tenant, name, secret_sha256, scopes, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (token_id) DO UPDATE SET name = excluded.name
WHERE tenant = excluded.tenant AND secret_sha256 = excluded.secret_sha256;

-- name: delete_token
DELETE FROM tokens WHERE token_id = ?2 AND tenant = ?1;

-- name: signing_keys
SELECT key_id, tenant, secret, created_at
FROM signing_keys
WHERE tenant = ?1
ORDER BY created_at DESC, key_id DESC;

-- name: add_signing_key
INSERT INTO signing_keys (key_id, tenant, secret, created_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (key_id) DO NOTHING;

-- name: queues
-- ?1 tenant or NULL for all. A queue that never had a setting is known by its jobs.
SELECT tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at
FROM queues
WHERE ?1 IS NULL OR tenant = ?1
UNION ALL
SELECT t.tenant, k.queue, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0
FROM queue_ids AS k
JOIN tenant_ids AS t ON t.tenant_id = k.tenant_id
WHERE (?1 IS NULL OR t.tenant = ?1)
    AND NOT EXISTS (SELECT 1 FROM queues AS q WHERE q.tenant = t.tenant AND q.queue = k.queue)
ORDER BY 1, 2;

-- name: queue
SELECT tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s, created_at
FROM queues
WHERE tenant = ?1 AND queue = ?2;

-- name: put_queue
INSERT INTO queues (tenant, queue, paused, pause_note, pause_until, lease_ms, max_attempts, initial_backoff_s, max_backoff_s,
    created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (tenant, queue) DO UPDATE SET paused = excluded.paused, pause_note = excluded.pause_note,
    pause_until = excluded.pause_until, lease_ms = excluded.lease_ms, max_attempts = excluded.max_attempts,
    initial_backoff_s = excluded.initial_backoff_s, max_backoff_s = excluded.max_backoff_s;

-- name: add_secret
INSERT INTO secrets (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING;

-- name: secret
SELECT value FROM secrets WHERE name = ?1;
