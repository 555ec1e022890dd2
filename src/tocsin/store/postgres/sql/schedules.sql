-- Schedules (move.py, schedulereads.py). Statuses: 1 active, 2 paused, 3 finished, 4 broken. A row is found by its number.

-- name: lock
-- $1 numbers. Each schedule's row is held, in the order of the numbers and before any of its jobs, until its move is written or
-- given up. Who only needs it to stay (skips.put) goes on meanwhile; a deletion waits for those.
SELECT number, id, serial, revision, status, spec_crc
FROM schedules
WHERE number = ANY ($1::bigint[])
ORDER BY number
FOR NO KEY UPDATE;

-- name: step
-- $1 numbers, $2 serials as they were read, $3 revisions, $4 statuses, $5 look_at, $6 spec_crc, $7 state
UPDATE schedules AS s
SET revision = told.revision, serial = s.serial + 1, status = told.status, look_at = told.look_at, spec_crc = told.spec_crc,
    state = told.state
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bytea[])
    AS told (number, serial, revision, status, look_at, spec_crc, state)
WHERE s.number = ANY ($1) AND s.number = told.number AND s.serial = told.serial
RETURNING s.number;

-- name: add
-- New rows: $1 numbers, $2 IDs, $3 partitions, $4 tenants, $5 names, $6 revisions, $7 statuses, $8 look_at, $9 spec_crc, $10 state;
-- in the order of (tenant, name). What is taken, number or name, is missing in the answer.
INSERT INTO schedules (number, id, partition, tenant, name, revision, serial, status, look_at, spec_crc, state)
SELECT number, id, partition, tenant, name, revision, 1, status, look_at, spec_crc, state
FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::smallint[], $8::bigint[],
    $9::bigint[], $10::bytea[])
    AS told (number, id, partition, tenant, name, revision, status, look_at, spec_crc, state)
ON CONFLICT DO NOTHING
RETURNING number;

-- name: put_specs
-- $1 schedules, $2 specs
INSERT INTO specs (schedule, spec)
SELECT schedule, spec FROM unnest($1::bigint[], $2::bytea[]) AS told (schedule, spec)
ON CONFLICT (schedule) DO UPDATE SET spec = excluded.spec;

-- name: delete
-- $1 numbers, $2 serials as they were read (urgent)
DELETE FROM schedules AS s
USING unnest($1::bigint[], $2::bigint[]) AS told (number, serial)
WHERE s.number = ANY ($1) AND s.number = told.number AND s.serial = told.serial
RETURNING s.number;

-- name: delete_rest
-- $1 numbers of schedules that were just deleted. A statement of its own: it sees the skips of those that `delete` has waited for.
WITH specs_gone AS (
    DELETE FROM specs WHERE schedule = ANY ($1::bigint[])
)
DELETE FROM skips WHERE schedule = ANY ($1::bigint[]);

-- name: make_jobs
-- New jobs with their timers, as arrays (see create.sql); $1 is now. A job that its schedule made before, wherever it is by now, is
-- listed in `occurrences`, and then nothing of it is written (urgent).
WITH {{create.rows}},
listed AS (
    INSERT INTO occurrences (schedule, job)
    SELECT schedule, id FROM new
    ON CONFLICT DO NOTHING
    RETURNING job
),
fresh AS MATERIALIZED (
    SELECT new.* FROM new JOIN listed ON listed.job = new.id
),
timed AS (
    INSERT INTO timers (partition, kind, bucket, lane, tenant, time, job, version)
    SELECT partition, 0, greatest(due_at, $1) / 60000, lane, tenant, due_at, id, 1 FROM fresh
    ON CONFLICT DO NOTHING
)
INSERT INTO jobs ({{create.columns}})
SELECT {{create.values}}
FROM fresh;

-- name: row
s.id, s.tenant, s.name, s.revision, s.serial, s.status, s.look_at, p.spec, s.state

-- name: get
-- $1 numbers; those that are there (urgent)
SELECT {{schedules.row}}
FROM schedules AS s
LEFT JOIN specs AS p ON p.schedule = s.number AND p.schedule = ANY ($1)
WHERE s.number = ANY ($1::bigint[]);

-- name: named
-- $1 tenant, $2 names; those that are there, by schedules_names
SELECT {{schedules.row}}
FROM unnest($2::text[]) AS asked (name)
CROSS JOIN LATERAL (SELECT * FROM schedules AS one WHERE one.tenant = $1 AND one.name = asked.name LIMIT 1) AS s
LEFT JOIN specs AS p ON p.schedule = s.number;

-- name: of_tenant
-- $1 tenant, $2 statuses, $3 below this ID, $4 limit; the newest of each status, by schedules_of_tenant
SELECT {{schedules.row}}
FROM unnest($2::smallint[]) AS asked (status)
CROSS JOIN LATERAL (
    SELECT *
    FROM schedules AS one
    WHERE one.tenant = $1 AND one.status = asked.status AND one.id < $3
    ORDER BY one.id DESC
    LIMIT $4
) AS s
LEFT JOIN specs AS p ON p.schedule = s.number
ORDER BY s.id DESC
LIMIT $4;

-- name: overdue
-- $1 partitions, $2 before this instant, $3 limit of each; the oldest of each first, by schedules_to_look_at
SELECT {{schedules.row}}
FROM unnest($1::integer[]) WITH ORDINALITY AS asked (partition, place)
CROSS JOIN LATERAL (
    SELECT *
    FROM schedules AS one
    WHERE one.partition = asked.partition AND one.look_at < $2
    ORDER BY one.look_at
    LIMIT $3
) AS s
LEFT JOIN specs AS p ON p.schedule = s.number
ORDER BY asked.place, s.look_at, s.number;

-- name: walk
-- $1 above this number, $2 up to this one, $3 limit; by the primary key
SELECT {{schedules.row}}
FROM schedules AS s
LEFT JOIN specs AS p ON p.schedule = s.number
WHERE s.number > $1 AND s.number <= $2
ORDER BY s.number
LIMIT $3;

-- name: counts
-- By schedules_of_tenant alone.
SELECT status, count(*) AS count FROM schedules GROUP BY status;

-- name: crowd
-- $1 partitions, $2 first minutes (ms), $3 the most to be counted in each; by schedules_to_look_at alone
SELECT (
    SELECT count(*)
    FROM (
        SELECT
        FROM unnest($1::integer[]) AS asked (partition)
        JOIN schedules AS s ON s.partition = asked.partition
        WHERE s.look_at >= minute.first AND s.look_at < minute.first + 60000
        LIMIT $3
    ) AS counted
)
FROM unnest($2::bigint[]) WITH ORDINALITY AS minute (first, place)
ORDER BY minute.place;

-- name: unfinished
-- $1 schedules, $2 statuses: their jobs in these, by jobs_of_schedules (urgent)
SELECT id
FROM jobs
WHERE schedule = ANY ($1::bigint[]) AND finished_at IS NULL AND status = ANY ($2::smallint[]);
