#!lua flags=allow-oom
-- Forget the leases of attempts that have ended.
--
-- KEYS[1]  the tag's alive key          base..leases (sorted set: job by end), base..attempts (hash: job to attempt)
-- ARGV[1]  the epoch
-- ARGV[2]… job, attempt; again and again
-- answers  1, or 'LOST'
-- Idempotent; a newer attempt's lease stays. Only frees memory, so it runs on a full server too.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local base = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local leases, attempts = base .. 'leases', base .. 'attempts'

for at = 2, #ARGV, 2 do
  local job = ARGV[at]
  local held = redis.call('HGET', attempts, job)
  if held and tonumber(held) <= tonumber(ARGV[at + 1]) then
    redis.call('HDEL', attempts, job)
    redis.call('ZREM', leases, job)
  end
end
return 1
