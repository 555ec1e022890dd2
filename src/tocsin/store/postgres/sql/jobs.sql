-- Statements on live jobs. Each row is found by the primary key (`id = ANY`) and written only where it is in the state that the
-- write leaves from. Statuses: 1 SCHEDULED, 2 QUEUED, 3 RUNNING, 4 CANCEL_REQUESTED, 5 RETRYING, 7 DEAD.

-- name: fire
-- $1 now, $2 IDs, $3 versions, $4 due times (urgent)
UPDATE jobs AS j SET status = 2, queued_at = $1
FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS asked (id, version, due_at)
WHERE j.id = ANY ($2) AND j.id = asked.id AND j.version = asked.version AND j.due_at <= asked.due_at
    AND j.status IN (1, 5) AND (j.expires_at IS NULL OR j.attempt > 0 OR j.expires_at > $1)
RETURNING j.id;

-- name: fire_scheduled
-- As `fire`, of jobs that are SCHEDULED, expired or not: whoever moves their schedule has judged that.
UPDATE jobs AS j SET status = 2, queued_at = $1
FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS asked (id, version, due_at)
WHERE j.id = ANY ($2) AND j.id = asked.id AND j.version = asked.version AND j.due_at <= asked.due_at AND j.status = 1
RETURNING j.id;

-- name: look
-- $1 IDs. What conditions are about.
SELECT id, status, version, attempt, due_at, expires_at, claimed_at, timeout_ms, lease_ms, lease_until, beaten_at
FROM jobs
WHERE id = ANY ($1::text[]);

-- name: lock
-- As `look`; nobody else writes these rows until the transaction ends.
SELECT id, status, version, attempt, due_at, expires_at, claimed_at, timeout_ms, lease_ms, lease_until, beaten_at
FROM jobs
WHERE id = ANY ($1::text[])
ORDER BY id
FOR UPDATE;

-- name: claim
-- $1 now, $2 IDs, $3 workers, $4 leases in ms (urgent)
UPDATE jobs AS j SET status = 3, attempt = j.attempt + 1, tries = j.tries + 1, started_at = coalesce(j.started_at, $1),
    claimed_at = $1, lease_until = $1 + asked.lease_ms, lease_ms = asked.lease_ms, beaten_at = NULL, worker = asked.worker
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS asked (id, worker, lease_ms)
WHERE j.id = ANY ($2) AND j.id = asked.id AND j.status = 2
    AND (j.expires_at IS NULL OR j.attempt > 0 OR j.expires_at > $1)
RETURNING j.id, j.attempt, j.tries, j.due_at, j.lease_until, j.lease_ms, j.fire_at, j.tenant, j.queue, j.lane, j.handler,
    j.hold, j.suspect, j.doc, j.progress;

-- name: beat
-- $1 now, $2 IDs, $3 attempts, $4 progress or NULL, $5 the grace past the timeout in ms (urgent)
UPDATE jobs AS j SET lease_until = least($1 + j.lease_ms, j.claimed_at + j.timeout_ms + $5), beaten_at = $1,
    progress = coalesce(asked.progress, j.progress)
FROM unnest($2::text[], $3::integer[], $4::bytea[]) AS asked (id, attempt, progress)
WHERE j.id = ANY ($2) AND j.id = asked.id AND j.attempt = asked.attempt AND j.status IN (3, 4)
    AND $1::bigint < j.claimed_at + j.timeout_ms + $5::bigint
RETURNING j.id, j.lease_until, j.lease_ms, j.status;

-- name: put
-- What a change leaves, of rows that `jobs.lock` holds and `finish.unchanged` has judged by state, version and attempt; a NULL definition stays what it is (urgent)
UPDATE jobs AS j SET tenant = n.tenant, queue = n.queue, lane = n.lane, handler = n.handler, hold = n.hold,
    suspect = n.suspect, priority = n.priority, status = n.status, version = n.version, attempt = n.attempt, tries = n.tries,
    due_at = n.due_at, fire_at = n.fire_at, timeout_ms = n.timeout_ms, expires_at = n.expires_at, queued_at = n.queued_at,
    started_at = n.started_at, claimed_at = n.claimed_at, lease_until = n.lease_until, lease_ms = n.lease_ms,
    beaten_at = n.beaten_at, worker = n.worker, losses = n.losses, releases = n.releases, finished_at = n.finished_at,
    outcome = n.outcome, last_error = n.last_error, progress = n.progress, schedule = n.schedule,
    doc = coalesce(n.doc, j.doc)
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::text[], $7::boolean[], $8::integer[],
    $9::smallint[], $10::bigint[], $11::integer[], $12::integer[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::text[],
    $24::integer[], $25::integer[], $26::bigint[], $27::smallint[], $28::text[], $29::bytea[], $30::bigint[], $31::text[])
    AS n (id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at,
        timeout_ms, expires_at, queued_at, started_at, claimed_at, lease_until, lease_ms, beaten_at, worker, losses, releases,
        finished_at, outcome, last_error, progress, schedule, doc)
WHERE j.id = ANY ($1) AND j.id = n.id;
