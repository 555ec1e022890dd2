#!lua flags=allow-oom
-- The shared counts, or the workers seen.
--
-- KEYS[1]  the alive key of the tag that has them    ARGV[1]  the epoch
-- ARGV[2]  'counts', or 'workers'    ARGV[3]  of workers: not seen since this time (ms) means forgotten
-- answers  {name, value, ...}; of workers {name, number of claimed jobs, seen_at, ...}, the latest first
-- Idempotent.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local at_tag = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
if ARGV[2] == 'counts' then
  return redis.call('HGETALL', at_tag .. 'counts')
end
local seen, claimed = at_tag .. 'seen', at_tag .. 'claimed'
for _, name in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', '(' .. ARGV[3], 'LIMIT', 0, 1000)) do
  redis.call('ZREM', seen, name)
  redis.call('HDEL', claimed, name)
end
local reply = {}
local found = redis.call('ZREVRANGEBYSCORE', seen, '+inf', ARGV[3], 'WITHSCORES')
for at = 1, #found, 2 do
  reply[#reply + 1] = found[at]
  reply[#reply + 1] = redis.call('HGET', claimed, found[at]) or '0'
  reply[#reply + 1] = found[at + 1]
end
return reply
