#!lua
-- Remember or renew leases.
--
-- KEYS[1]  the tag's alive key          base..leases (sorted set: job by end), base..attempts (hash: job to attempt)
-- ARGV[1]  the epoch
-- ARGV[2]… job, attempt, end in ms; again and again
-- answers  1, or 'LOST'
-- Idempotent; an older attempt changes nothing.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local base = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local leases, attempts = base .. 'leases', base .. 'attempts'

for at = 2, #ARGV, 3 do
  local job, attempt = ARGV[at], ARGV[at + 1]
  local held = redis.call('HGET', attempts, job)
  if not held or tonumber(held) <= tonumber(attempt) then
    if held ~= attempt then
      redis.call('HSET', attempts, job, attempt)
    end
    redis.call('ZADD', leases, ARGV[at + 2], job)
  end
end
return 1
