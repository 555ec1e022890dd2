#!lua flags=allow-oom
-- The loader has read on: the set ends further on, or is whole.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]  '<lane>:<tenant>'
-- ARGV[3]  the cut's token; another one now: the set has been trimmed meanwhile, nothing changes
-- ARGV[4]  '' if the set is whole, else where its new end begins; ARGV[5] where the loader reads on; ARGV[6] behind which key
-- answers  1 if the cut was moved, 0 if not, or 'LOST'
-- A repeat finds another token and changes nothing. Adds next to nothing, so it runs on a full server too.

--@ sets
local held = redis.call('HGET', cuts, ARGV[2])
if not held or string.match(held, '^%S+ %S+ (%S+)') ~= ARGV[3] then
  return 0
end
if ARGV[4] == '' then
  redis.call('HDEL', cuts, ARGV[2])
else
  local token = redis.call('INCR', base .. 'tokens')
  redis.call('HSET', cuts, ARGV[2], ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. token .. ' 0 ' .. ARGV[6])
end
return 1
