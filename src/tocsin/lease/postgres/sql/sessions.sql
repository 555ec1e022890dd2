-- Sessions, the office and what is held (registry.py). Each is one statement and so one transaction: a process that is stopped in
-- the middle leaves no lock behind on the server. All find their rows by primary key; there are as many sessions as processes.

-- name: open
-- $1 session, $2 node, $3 roles, $4 version, $5 address, $6 started_at, $7 clock_offset_ms, $8 time to live (ms)
INSERT INTO tocsin_lease.sessions
    (session, node, roles, version, address, started_at, clock_offset_ms, opened_at, expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, clock.now, clock.now + $8
FROM (SELECT tocsin_lease.now_ms() AS now) AS clock
ON CONFLICT (session) DO NOTHING;

-- name: renew
-- $1 session, $2 clock_offset_ms, $3 time to live (ms); a row if it stands
UPDATE tocsin_lease.sessions
SET expires_at = tocsin_lease.now_ms() + $3, clock_offset_ms = $2
WHERE session = $1 AND expires_at > tocsin_lease.now_ms()
RETURNING session;

-- name: end
-- $1 session; what it held and the office go with it
DELETE FROM tocsin_lease.sessions WHERE session = $1;

-- name: reap
-- In the order of their names, so that two who do it at once wait for each other instead of deadlocking. A renewal that came
-- first is seen after the wait, and its session stays.
DELETE FROM tocsin_lease.sessions
WHERE session IN (
    SELECT session FROM tocsin_lease.sessions
    WHERE expires_at <= tocsin_lease.now_ms()
    ORDER BY session
    FOR UPDATE
);

-- name: members
SELECT session, node, roles, version, address, started_at, clock_offset_ms,
    tocsin_lease.now_ms() - opened_at AS age_ms
FROM tocsin_lease.sessions
WHERE expires_at > tocsin_lease.now_ms()
ORDER BY session;

-- name: coordinator
SELECT o.session
FROM tocsin_lease.office AS o
JOIN tocsin_lease.sessions AS s USING (session)
WHERE s.expires_at > tocsin_lease.now_ms();

-- name: take_office
-- $1 session
INSERT INTO tocsin_lease.office (session)
SELECT session FROM tocsin_lease.sessions
WHERE session = $1 AND expires_at > tocsin_lease.now_ms()
FOR SHARE
ON CONFLICT (one) DO NOTHING;

-- name: revoke
-- $1 the coordinator, $2 whose session ends; whether $1 is the coordinator
WITH chief AS (
    SELECT s.session
    FROM tocsin_lease.office AS o
    JOIN tocsin_lease.sessions AS s USING (session)
    WHERE s.session = $1 AND s.expires_at > tocsin_lease.now_ms()
    FOR SHARE
), revoked AS (
    DELETE FROM tocsin_lease.sessions WHERE session = $2 AND EXISTS (SELECT FROM chief)
)
SELECT EXISTS (SELECT FROM chief);

-- name: claim
-- $1 session, $2 partitions, $3 version of the map. The map's row stays locked against a new version until the claim is
-- written. Rows of expired sessions are in the way: reap comes before. In order, so that two claims cannot deadlock.
WITH current AS (
    SELECT version FROM tocsin_lease.assignment WHERE version = $3 FOR SHARE
), claimant AS (
    SELECT session FROM tocsin_lease.sessions
    WHERE session = $1 AND expires_at > tocsin_lease.now_ms()
    FOR SHARE
), claimed AS (
    INSERT INTO tocsin_lease.holdings (partition, session, since)
    SELECT asked.partition, claimant.session, tocsin_lease.now_ms()
    FROM unnest($2::integer[]) AS asked (partition), claimant, current
    ORDER BY asked.partition
    ON CONFLICT (partition) DO NOTHING
    RETURNING partition
)
SELECT partition FROM claimed
UNION ALL
SELECT held.partition
FROM tocsin_lease.holdings AS held
JOIN claimant USING (session)
WHERE held.partition = ANY ($2::integer[]);

-- name: release
-- $1 session, $2 partitions
DELETE FROM tocsin_lease.holdings WHERE session = $1 AND partition = ANY ($2::integer[]);

-- name: holdings
-- $1 a session, or null for all
SELECT h.partition, h.session, h.since
FROM tocsin_lease.holdings AS h
JOIN tocsin_lease.sessions AS s USING (session)
WHERE s.expires_at > tocsin_lease.now_ms() AND ($1::text IS NULL OR h.session = $1)
ORDER BY h.partition;
