-- Names as numbers (lines.py). All of these are reached by a unique index or the primary key.

-- name: tenant_id
SELECT tenant_id FROM tenant_ids WHERE tenant = ?1;

-- name: add_tenant
INSERT INTO tenant_ids (tenant) VALUES (?1);

-- name: tenant
SELECT tenant FROM tenant_ids WHERE tenant_id = ?1;

-- name: queue_id
SELECT queue_id FROM queue_ids WHERE tenant_id = ?1 AND queue = ?2;

-- name: add_queue
INSERT INTO queue_ids (tenant_id, queue) VALUES (?1, ?2);

-- name: queue
SELECT t.tenant, q.queue
FROM queue_ids AS q
JOIN tenant_ids AS t ON t.tenant_id = q.tenant_id
WHERE q.queue_id = ?1;

-- name: queues_of_tenant
-- ?1 tenant, ?2 queue or NULL for all
SELECT q.queue_id
FROM tenant_ids AS t
JOIN queue_ids AS q ON q.tenant_id = t.tenant_id
WHERE t.tenant = ?1 AND (?2 IS NULL OR q.queue = ?2)
ORDER BY q.queue_id;

-- name: line_id
SELECT line_id FROM lines WHERE queue_id = ?1 AND lane = ?2 AND handler = ?3 AND hold = ?4 AND suspect = ?5;

-- name: add_line
INSERT INTO lines (queue_id, lane, handler, hold, suspect) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: line
SELECT t.tenant, q.queue, l.lane, l.handler, l.hold, l.suspect
FROM lines AS l
JOIN queue_ids AS q ON q.queue_id = l.queue_id
JOIN tenant_ids AS t ON t.tenant_id = q.tenant_id
WHERE l.line_id = ?1;
