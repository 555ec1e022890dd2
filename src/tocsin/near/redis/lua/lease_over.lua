#!lua flags=no-writes,allow-oom
-- The leases that were over before an instant, the longest over first.
--
-- KEYS[1]  the tag's alive key          base..leases (sorted set: job by end), base..attempts (hash: job to attempt)
-- ARGV[1]  the epoch
-- ARGV[2]  the instant in ms
-- ARGV[3]  how many at most
-- answers  {job, end, attempt, job, end, attempt, …}, or 'LOST'
-- Only reads.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local base = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'

local over = redis.call('ZRANGEBYSCORE', base .. 'leases', '-inf', '(' .. ARGV[2], 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local found = {}
for at = 1, #over, 2 do
  found[#found + 1] = over[at]
  found[#found + 1] = over[at + 1]
  found[#found + 1] = redis.call('HGET', base .. 'attempts', over[at])
end
return found
