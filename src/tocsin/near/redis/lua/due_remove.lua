#!lua flags=allow-oom
-- Forget waiting members, whatever their version; what is taken stays until it is dropped.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]… jobs
-- answers  the first waiting time, or 'LOST'
-- Idempotent. Only frees memory, so it runs on a full server too.

--@ sets
for at = 2, #ARGV do
  local job = ARGV[at]
  local held = redis.call('HGET', jobs, job)
  if held then
    local _, _, tenant, lane = read(held)
    if redis.call('ZREM', due_set(lane, tenant), job) == 1 then
      redis.call('HDEL', jobs, job)
      touch(lane, tenant)
    end
  end
end
return first_due()
