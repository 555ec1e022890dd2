-- What a job's whole state looks like in an answer; the fields stand in the order of rows._Row.

-- name: live
json_array(j.id, j.line_id, j.priority, j.status, j.version, j.attempt, j.tries, j.due_at, j.fire_at, j.queued_at,
    j.started_at, j.claimed_at, j.lease_until, j.lease_ms, j.beaten_at, j.worker, j.losses, j.releases, j.expires_at,
    j.finished_at, j.last_error, j.progress, NULL, j.outcome)

-- name: ended
json_array(f.id, f.line_id, f.priority, f.status, f.version, f.attempt, f.tries, f.due_at, f.fire_at, f.queued_at,
    f.started_at, f.claimed_at, NULL, NULL, NULL, f.worker, f.losses, f.releases, f.expires_at,
    f.finished_at, f.last_error, f.progress, f.result, f.outcome)

-- name: either
CASE WHEN j.id IS NOT NULL THEN {{states.live}} WHEN f.id IS NOT NULL THEN {{states.ended}} ELSE '' END
