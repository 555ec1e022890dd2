#!lua flags=no-writes,allow-oom
-- The earliest end of a lease, and how many leases there are.
--
-- KEYS[1]  the tag's alive key          base..leases (sorted set: job by end)
-- ARGV[1]  the epoch
-- answers  {end in ms or '', count}, or 'LOST'
-- Only reads.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local leases = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':leases'
local first = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')
return {first[2] or '', redis.call('ZCARD', leases)}
