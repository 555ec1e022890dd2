#!lua flags=allow-oom
-- Forget members up to the version that was taken.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]… job, version; again and again
-- answers  the first waiting time, or 'LOST'
-- Idempotent; a newer version stays. Only frees memory, so it runs on a full server too.

--@ sets
for at = 2, #ARGV, 2 do
  local job = ARGV[at]
  local held = redis.call('HGET', jobs, job)
  if held then
    local _, version, tenant, lane = read(held)
    if tonumber(version) <= tonumber(ARGV[at + 1]) then
      redis.call('HDEL', jobs, job)
      if redis.call('ZREM', taken, job) == 0 then
        redis.call('ZREM', due_set(lane, tenant), job)
        touch(lane, tenant)
      end
    end
  end
end
return first_due()
