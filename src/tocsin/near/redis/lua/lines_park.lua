#!lua flags=allow-oom
-- Say whether a line has parked jobs in a partition.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the line    ARGV[5]  the partition    ARGV[6]  '1': it has
-- answers  1
-- Idempotent.

local line, name = ARGV[4], ' ' .. ARGV[5] .. ' '
local have = redis.call('HGET', PARKED, line) or ' '
local from, to = string.find(have, name, 1, true)
if ARGV[6] == '1' then
  if not from then
    redis.call('HSET', PARKED, line, have .. ARGV[5] .. ' ')
  end
elseif from then
  have = string.sub(have, 1, from) .. string.sub(have, to + 1)
  if have == ' ' then
    redis.call('HDEL', PARKED, line)
  else
    redis.call('HSET', PARKED, line, have)
  end
end
return 1
