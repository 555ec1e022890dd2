-- Idempotency keys (keys.py), by the primary key (tenant, hash). $1 tenants, $2 hashes, in order (bulk)

-- name: find
SELECT k.tenant, k.hash, k.body_hash, k.job, k.expires_at
FROM unnest($1::text[], $2::bytea[]) AS asked (tenant, hash)
JOIN keys AS k ON k.tenant = asked.tenant AND k.hash = asked.hash;

-- name: lock
-- As `find`; nobody else writes these rows until the transaction ends.
SELECT k.tenant, k.hash, k.body_hash, k.job, k.expires_at
FROM unnest($1::text[], $2::bytea[]) AS asked (tenant, hash)
JOIN keys AS k ON k.tenant = asked.tenant AND k.hash = asked.hash
ORDER BY k.tenant, k.hash
FOR UPDATE OF k;

-- name: bind
-- $3 hashes of bodies, $4 jobs, $5 until: which of these keys were not bound before
INSERT INTO keys (tenant, hash, body_hash, job, expires_at)
SELECT tenant, hash, body_hash, job, $5::bigint
FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::text[]) AS n (tenant, hash, body_hash, job)
ON CONFLICT DO NOTHING
RETURNING tenant, hash;

-- name: rebind
-- As `bind`, over what they stood for; locked
UPDATE keys AS k SET body_hash = n.body_hash, job = n.job, expires_at = $5::bigint
FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::text[]) AS n (tenant, hash, body_hash, job)
WHERE k.tenant = n.tenant AND k.hash = n.hash;

-- name: next
-- $1-$3 the expiry, tenant and hash to go on from, $4 now, $5 limit; by keys_by_expiry
SELECT tenant, hash, job, expires_at
FROM keys
WHERE (expires_at, tenant, hash) > ($1::bigint, $2::text, $3::bytea) AND expires_at <= $4
ORDER BY expires_at, tenant, hash
LIMIT $5;

-- name: delete
-- $3 jobs: those that still stand for what was read
DELETE FROM keys AS k
USING unnest($1::text[], $2::bytea[], $3::text[]) AS asked (tenant, hash, job)
WHERE k.tenant = asked.tenant AND k.hash = asked.hash AND k.job = asked.job AND k.expires_at <= $4;
