-- Idempotency keys (keys.py). Hashes cross JSON as hexadecimal text.

-- name: add
INSERT INTO keys (tenant_id, hash, body_hash, job, expires_at) VALUES [[({1}, {2}, {3}, {4}, {5})]]
ON CONFLICT DO NOTHING;

-- name: put
INSERT OR REPLACE INTO keys (tenant_id, hash, body_hash, job, expires_at) VALUES [[({1}, {2}, {3}, {4}, {5})]];

-- name: find
-- each row: tenant_id, hash
WITH asked (tenant_id, hash) AS (VALUES [[({1}, {2})]])
SELECT json_group_array(json_array(k.tenant_id, hex(k.hash), hex(k.body_hash), k.job, k.expires_at))
FROM asked
CROSS JOIN keys AS k ON k.tenant_id = asked.tenant_id AND k.hash = asked.hash;

-- name: expired
-- ?1 now, ?2 ?3 ?4 the last one looked at, ?5 limit; by keys_by_expiry
SELECT json_group_array(json_array(tenant_id, hex(hash), job, expires_at))
FROM (
    SELECT tenant_id, hash, job, expires_at
    FROM keys
    WHERE expires_at <= ?1 AND (expires_at, tenant_id, hash) > (?2, ?3, ?4)
    ORDER BY expires_at, tenant_id, hash
    LIMIT ?5
);

-- name: delete
-- each row: tenant_id, hash
DELETE FROM keys WHERE (tenant_id, hash) IN (VALUES [[({1}, {2})]]);
