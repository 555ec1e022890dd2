#!lua
-- Remember workers, the latest sighting of each.
--
-- KEYS[1]  the alive key of the tag that has them    ARGV[1]  the epoch
-- ARGV[2]  how many are kept
-- from ARGV[3]  name, seen_at (ms), number of claimed jobs, ...
-- answers  1
-- Idempotent.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local at_tag = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local seen, claimed = at_tag .. 'seen', at_tag .. 'claimed'
for at = 3, #ARGV, 3 do
  local name, seen_at = ARGV[at], ARGV[at + 1]
  local before = redis.call('ZSCORE', seen, name)
  if not before or tonumber(before) <= tonumber(seen_at) then
    redis.call('ZADD', seen, seen_at, name)
    redis.call('HSET', claimed, name, ARGV[at + 2])
  end
end
local over = redis.call('ZCARD', seen) - tonumber(ARGV[2])
while over > 0 do
  for _, name in ipairs(redis.call('ZRANGE', seen, 0, math.min(over, 1000) - 1)) do
    redis.call('ZREM', seen, name)
    redis.call('HDEL', claimed, name)
    over = over - 1
  end
end
return 1
