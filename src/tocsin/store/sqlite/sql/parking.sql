-- Parked jobs (parking.py, reads.py), by the primary key (partition, line_id, score, job, version).

-- name: add
INSERT INTO parked (partition, line_id, score, job, version, due_at, priority)
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7})]]
ON CONFLICT DO NOTHING;

-- name: delete
-- each row: a whole key; see the trigger of this view
INSERT INTO parked_to_delete (partition, line_id, score, job, version)
VALUES [[({1}, {2}, {3}, {4}, {5})]];

-- name: of_line
-- ?1 partition, ?2 line_id, ?3 limit
SELECT json_group_array(json_array(due_at, job, version, priority, score))
FROM (
    SELECT due_at, job, version, priority, score
    FROM parked WHERE partition = ?1 AND line_id = ?2
    ORDER BY score, job, version LIMIT ?3
);

-- name: lines
-- ?1 partition
SELECT line_id, count(*) FROM parked WHERE partition = ?1 GROUP BY line_id;
