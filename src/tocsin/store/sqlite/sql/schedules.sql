-- Schedules (move.py, schedules.py). Statuses: 1 active, 2 paused, 3 finished, 4 broken. A row is found by its number.

-- name: row
json_array(s.id, s.tenant_id, s.name, s.revision, s.serial, s.status, s.look_at, coalesce(p.spec, ''), s.state)

-- name: look
-- ?1 numbers. What the careful path judges by; serial 0: there is none.
SELECT json_group_array(json_array(
    coalesce(s.serial, 0), coalesce(s.id, ''), coalesce(s.revision, 0), coalesce(s.status, 0), coalesce(s.spec_crc, 0),
    coalesce(s.spec_id, 0)))
FROM json_each(?1) AS asked
LEFT JOIN schedules AS s ON s.number = asked.value;

-- name: names
-- each row: tenant_id, name: which of them are taken
WITH asked (tenant_id, name) AS (VALUES [[({1}, {2})]])
SELECT json_group_array(json_array(s.tenant_id, s.name))
FROM asked
CROSS JOIN schedules AS s ON s.tenant_id = asked.tenant_id AND s.name = asked.name;

-- name: step
-- An ordinary step: nothing but the row's serial, look_at and state changes. Each row: number, serial as it was read, revision,
-- status, spec_crc, look_at, state. (Python counts the rows of a statement that begins with UPDATE only, not with WITH.)
UPDATE schedules SET serial = told.serial + 1, look_at = told.look_at, state = told.state
FROM (
    WITH told (number, serial, revision, status, spec_crc, look_at, state) AS (
        VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7})]]
    )
    SELECT number, serial, revision, status, spec_crc, look_at, state FROM told
) AS told
WHERE schedules.number = told.number AND schedules.serial = told.serial AND schedules.revision = told.revision
    AND schedules.status = told.status AND schedules.spec_crc = told.spec_crc;

-- name: put
-- Whole rows that were looked at; each row: number, ID, partition, tenant_id, name, revision, serial, status, look_at,
-- spec_crc, state, spec_id.
INSERT INTO schedules (number, id, partition, tenant_id, name, revision, serial, status, look_at, spec_crc, state, spec_id)
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12})]]
ON CONFLICT (number) DO UPDATE SET revision = excluded.revision, serial = excluded.serial, status = excluded.status,
    look_at = excluded.look_at, spec_crc = excluded.spec_crc, state = excluded.state;

-- name: last_spec
SELECT coalesce(max(spec_id), 0) FROM specs;

-- name: put_specs
INSERT INTO specs (spec_id, spec) VALUES [[({1}, {2})]]
ON CONFLICT (spec_id) DO UPDATE SET spec = excluded.spec;

-- name: delete
-- ?1 numbers
DELETE FROM schedules WHERE number IN (SELECT value FROM json_each(?1));

-- name: delete_specs
-- ?1 spec_ids
DELETE FROM specs WHERE spec_id IN (SELECT value FROM json_each(?1));

-- name: get
-- ?1 separator, ?2 numbers; in their order
SELECT group_concat(iif(s.number IS NULL, '', {{schedules.row}}), ?1)
FROM json_each(?2) AS asked
LEFT JOIN schedules AS s ON s.number = asked.value
LEFT JOIN specs AS p ON p.spec_id = s.spec_id;

-- name: named
-- ?1 separator, ?2 names, ?3 tenant_id; in their order
SELECT group_concat(iif(s.number IS NULL, '', {{schedules.row}}), ?1)
FROM json_each(?2) AS asked
LEFT JOIN schedules AS s ON s.tenant_id = ?3 AND s.name = asked.value
LEFT JOIN specs AS p ON p.spec_id = s.spec_id;

-- name: of_tenant
-- ?1 separator, ?2 tenant_id, ?3 status, ?4 below this ID, ?5 limit; newest first, by schedules_of_tenant
SELECT group_concat({{schedules.row}}, ?1)
FROM (
    SELECT number FROM schedules
    WHERE tenant_id = ?2 AND status = ?3 AND id < ?4
    ORDER BY id DESC
    LIMIT ?5
) AS t
CROSS JOIN schedules AS s ON s.number = t.number
LEFT JOIN specs AS p ON p.spec_id = s.spec_id;

-- name: overdue
-- ?1 separator, ?2 partition, ?3 before this instant, ?4 limit; by schedules_to_look_at
SELECT group_concat({{schedules.row}}, ?1)
FROM (
    SELECT number FROM schedules
    WHERE partition = ?2 AND look_at < ?3
    ORDER BY look_at
    LIMIT ?4
) AS t
CROSS JOIN schedules AS s ON s.number = t.number
LEFT JOIN specs AS p ON p.spec_id = s.spec_id;

-- name: walk
-- ?1 separator, ?2 above this number, ?3 up to this number, ?4 limit
SELECT group_concat({{schedules.row}}, ?1)
FROM (
    SELECT number FROM schedules
    WHERE number > ?2 AND number <= ?3
    ORDER BY number
    LIMIT ?4
) AS t
CROSS JOIN schedules AS s ON s.number = t.number
LEFT JOIN specs AS p ON p.spec_id = s.spec_id;

-- name: counts
-- By schedules_of_tenant alone, in its order: no row is sorted.
SELECT status, sum(n)
FROM (SELECT tenant_id, status, count(*) AS n FROM schedules GROUP BY tenant_id, status) AS t
GROUP BY status;

-- name: crowd
-- ?1 partitions, ?2 first minutes in ms, ?3 the most to be counted in each; by schedules_to_look_at
SELECT json_group_array((
    SELECT count(*) FROM (
        SELECT 1
        FROM json_each(?1) AS asked
        CROSS JOIN schedules AS s ON s.partition = asked.value
        WHERE s.look_at >= t.value AND s.look_at < t.value + 60000
        LIMIT ?3
    )
))
FROM json_each(?2) AS t;
