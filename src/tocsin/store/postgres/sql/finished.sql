-- Moving jobs out of `jobs` into `finished`, each in one statement: a job is in one of them always.

-- name: columns
id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at, expires_at,
    queued_at, started_at, claimed_at, worker, losses, releases, finished_at, outcome, last_error, progress, result, status_code,
    response, schedule, doc

-- name: succeed
-- $1 now, $2 IDs, $3 attempts, $4 results, $5 status codes, $6 responses (urgent)
WITH gone AS (
    DELETE FROM jobs AS j
    USING unnest($2::text[], $3::integer[], $4::bytea[], $5::integer[], $6::bytea[])
        AS told (id, attempt, result, status_code, response)
    WHERE j.id = ANY ($2) AND j.id = told.id AND j.attempt = told.attempt AND j.status IN (3, 4)
    RETURNING j.*, told.result, told.status_code, told.response
)
INSERT INTO finished ({{finished.columns}})
SELECT id, tenant, queue, lane, handler, hold, suspect, priority, 6, version, attempt, tries, due_at, fire_at, expires_at,
    queued_at, started_at, claimed_at, worker, losses, releases, $1::bigint, 1, last_error, progress, result, status_code,
    response, schedule, doc
FROM gone
RETURNING id;

-- name: skip_expired
-- $1 now, $2 IDs, $3 versions or NULL for any, $4 due times or NULL for any, $5 statuses. What a schedule made becomes a skip of
-- it; a longer one stays. A backfill's is none: its occurrence had its turn. A schedule that is held cannot be deleted before this
-- is committed, so no skip outlives it. The definition is read by its end, where nothing of a user's can stand: the functions for
-- JSON refuse a text that has \u0000 anywhere (urgent)
WITH gone AS (
    DELETE FROM jobs AS j
    USING unnest($2::text[], $3::bigint[], $4::bigint[]) AS asked (id, version, due_at)
    WHERE j.id = ANY ($2) AND j.id = asked.id AND j.status = ANY ($5::smallint[]) AND j.attempt = 0 AND j.expires_at <= $1
        AND j.version = coalesce(asked.version, j.version) AND j.due_at <= coalesce(asked.due_at, j.due_at)
    RETURNING j.*
),
skipped AS (
    INSERT INTO skips AS s (schedule, first, reason, last, count, recorded_at)
    SELECT DISTINCT ON (at.schedule, at.occurrence) at.schedule, at.occurrence, 'expired', at.occurrence, 1, $1::bigint
    FROM (
        SELECT schedule, substring(doc FROM
            '"occurrence_at":(-?[0-9]{1,18}),"origin":"schedule"(?:,"made_at":-?[0-9]+)?\}$')::bigint AS occurrence
        FROM gone
        WHERE schedule = ANY (ARRAY (
            SELECT number
            FROM schedules
            WHERE number = ANY (ARRAY (SELECT schedule FROM gone WHERE schedule IS NOT NULL))
            FOR KEY SHARE
        ))
    ) AS at
    WHERE at.occurrence IS NOT NULL
    ON CONFLICT (schedule, first, reason) DO UPDATE SET last = excluded.last, count = excluded.count,
        recorded_at = excluded.recorded_at, detail = excluded.detail
        WHERE excluded.last >= s.last
)
INSERT INTO finished ({{finished.columns}})
SELECT id, tenant, queue, lane, handler, hold, suspect, priority, 9, version, attempt, tries, due_at, fire_at, expires_at,
    queued_at, started_at, claimed_at, worker, losses, releases, $1::bigint, outcome,
    'expired: it could not start before ' || CASE WHEN expires_at BETWEEN 0 AND 253402300799999
        THEN to_char(to_timestamp(expires_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') ELSE '?' END,
    progress, NULL, NULL, NULL, schedule, doc
FROM gone
RETURNING id;

-- name: move
-- Whole rows of jobs that `jobs.lock` holds and `finish.unchanged` has judged, as a change leaves them; a NULL definition stays what it is (urgent)
WITH gone AS (
    DELETE FROM jobs WHERE id = ANY ($1::text[]) RETURNING id, doc
)
INSERT INTO finished ({{finished.columns}})
SELECT n.id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at, expires_at,
    queued_at, started_at, claimed_at, worker, losses, releases, finished_at, outcome, last_error, progress, result, NULL, NULL,
    schedule, coalesce(n.doc, gone.doc)
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::text[], $7::boolean[], $8::integer[],
    $9::smallint[], $10::bigint[], $11::integer[], $12::integer[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::bigint[], $17::bigint[], $18::bigint[], $19::text[], $20::integer[], $21::integer[], $22::bigint[], $23::smallint[],
    $24::text[], $25::bytea[], $26::bytea[], $27::bigint[], $28::text[])
    AS n (id, tenant, queue, lane, handler, hold, suspect, priority, status, version, attempt, tries, due_at, fire_at,
        expires_at, queued_at, started_at, claimed_at, worker, losses, releases, finished_at, outcome, last_error, progress,
        result, schedule, doc)
JOIN gone ON gone.id = n.id;

-- name: add_attempts
INSERT INTO attempts (job, attempt, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response)
SELECT *
FROM unnest($1::text[], $2::integer[], $3::text[], $4::bigint[], $5::bigint[], $6::smallint[], $7::text[], $8::bigint[],
    $9::integer[], $10::bytea[])
ON CONFLICT DO NOTHING;

-- name: known
-- $1 IDs: which of them have finished
SELECT id FROM finished WHERE id = ANY ($1::text[]);
