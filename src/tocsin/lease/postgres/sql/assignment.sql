-- The map and the log of its moves (registry.py). Each is one statement.

-- name: read
-- $1 the version that is known, or null; no row if it is still that one
SELECT version, partitions, owners, sessions, nodes
FROM tocsin_lease.assignment
WHERE $1::bigint IS NULL OR version <> $1;

-- name: write
-- $1 the coordinator, $2 the new version, $3 partitions, $4 owners, $5 sessions, $6 nodes; the moves column by column: $7 partition,
-- $8 from_session, $9 from_node, $10 to_session, $11 to_node, $12 at, $13 why; $14 how many older moves are kept. A row if it was written.
WITH chief AS (
    SELECT s.session
    FROM tocsin_lease.office AS o
    JOIN tocsin_lease.sessions AS s USING (session)
    WHERE s.session = $1 AND s.expires_at > tocsin_lease.now_ms()
    FOR SHARE
), written AS (
    UPDATE tocsin_lease.assignment
    SET version = $2, partitions = $3, owners = $4, sessions = $5, nodes = $6
    WHERE version = $2 - 1 AND EXISTS (SELECT FROM chief)
    RETURNING version
), logged AS (
    INSERT INTO tocsin_lease.moves
        (map_version, partition, from_session, from_node, to_session, to_node, at, why)
    SELECT written.version, m.partition, m.from_session, m.from_node, m.to_session, m.to_node, m.at, m.why
    FROM written, unnest($7::integer[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::text[])
        AS m (partition, from_session, from_node, to_session, to_node, at, why)
), trimmed AS (
    DELETE FROM tocsin_lease.moves
    WHERE EXISTS (SELECT FROM written)
        AND number <= (SELECT number FROM tocsin_lease.moves ORDER BY number DESC OFFSET $14 LIMIT 1)
)
SELECT version FROM written;

-- name: moves
-- $1 limit; the log is short (registry.py trims it)
SELECT partition, from_session, from_node, to_session, to_node, at, why
FROM tocsin_lease.moves
ORDER BY map_version DESC, partition
LIMIT $1;
