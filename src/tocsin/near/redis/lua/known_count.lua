#!lua
-- Change the shared counts of jobs.
--
-- KEYS[1]  the alive key of the tag that has them    ARGV[1]  the epoch
-- ARGV[2]  'add' or 'set' (in place of all there are)
-- from ARGV[3]  name, number, ...
-- answers  1
-- 'set' is idempotent; a repeated 'add' counts twice, and the next 'set' puts it right.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local key = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':counts'
if ARGV[2] == 'set' then
  redis.call('DEL', key)
end
for at = 3, #ARGV, 2 do
  if redis.call('HINCRBY', key, ARGV[at], ARGV[at + 1]) == 0 then
    redis.call('HDEL', key, ARGV[at])
  end
end
return 1
