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

-- name: next
-- ?1 above this number, ?2 limit; the oldest first
SELECT json_group_array(json_array(number, job, expires_at))
FROM (SELECT number, job, expires_at FROM keys WHERE number > ?1 ORDER BY number LIMIT ?2);

-- name: delete
-- ?1 numbers
DELETE FROM keys WHERE number IN (SELECT value FROM json_each(?1));
