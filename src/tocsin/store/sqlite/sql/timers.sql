-- Timers (timers.py, create.py, finish.py). All are reached by the primary key
-- (partition, kind, bucket, lane, tenant_id, time, job, version). Kinds: 0 fire, 1 watch.

-- name: add_fire
-- ?1 now; each row: partition, lane, tenant_id, time, job. The timer of a new job.
INSERT INTO timers (partition, kind, bucket, lane, tenant_id, time, job, version)
VALUES [[({1}, 0, max({4}, ?1) / 60000, {2}, {3}, {4}, {5}, 1)]]
ON CONFLICT DO NOTHING;

-- name: add_fire_version
-- ?1 now; each row: partition, lane, tenant_id, time, job, version
INSERT INTO timers (partition, kind, bucket, lane, tenant_id, time, job, version)
VALUES [[({1}, 0, max({4}, ?1) / 60000, {2}, {3}, {4}, {5}, {6})]]
ON CONFLICT DO NOTHING;

-- name: add_watch
-- ?1 now; each row: partition, lane, tenant_id, time, job, version
INSERT INTO timers (partition, kind, bucket, lane, tenant_id, time, job, version)
VALUES [[({1}, 1, max({4}, ?1) / 60000, {2}, {3}, {4}, {5}, {6})]]
ON CONFLICT DO NOTHING;

-- name: delete
-- each row: a whole key; see the trigger of this view
INSERT INTO timers_to_delete (partition, kind, bucket, lane, tenant_id, time, job, version)
VALUES [[({1}, {2}, {3}, {4}, {5}, {6}, {7}, {8})]];

-- name: void_bound
-- ?1 partition, ?2 kind, ?3 last bucket, ?4-?9 the key to go on from, ?10 rows to pass over: where this slice ends
SELECT bucket, lane, tenant_id, time, job, version
FROM timers
WHERE partition = ?1 AND kind = ?2 AND bucket <= ?3
    AND (bucket, lane, tenant_id, time, job, version) > (?4, ?5, ?6, ?7, ?8, ?9)
ORDER BY bucket, lane, tenant_id, time, job, version
LIMIT 1 OFFSET ?10;

-- name: sweep_void
-- ?1 partition, ?2 kind, ?3-?8 after this key, ?9-?14 up to this one
DELETE FROM timers
WHERE partition = ?1 AND kind = ?2
    AND (bucket, lane, tenant_id, time, job, version) > (?3, ?4, ?5, ?6, ?7, ?8)
    AND (bucket, lane, tenant_id, time, job, version) <= (?9, ?10, ?11, ?12, ?13, ?14)
    AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = timers.job AND j.version = timers.version);

-- name: raise_floor
-- ?1 partition, ?2 bucket
INSERT INTO floors (partition, bucket) VALUES (?1, ?2)
ON CONFLICT (partition) DO UPDATE SET bucket = max(bucket, excluded.bucket);

-- name: floors
SELECT partition, bucket FROM floors ORDER BY partition;
