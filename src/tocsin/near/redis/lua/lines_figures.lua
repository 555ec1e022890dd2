#!lua flags=allow-oom
-- How many jobs are in line and in hand in this tag.
--
-- KEYS[1]  the alive key of a line tag    ARGV[1]  the epoch
-- ARGV[2]  the steady clock in ms
-- answers  {in line, in hand, hands that are over and must go back first}
-- Reads only. Asked of all tags at once, so it stands without the shared part.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local at_tag = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local held = tonumber(redis.call('GET', at_tag .. 'held') or 0)
return {redis.call('HLEN', at_tag .. 'jobs') - held, held, redis.call('ZCOUNT', at_tag .. 'hands', '-inf', ARGV[2])}
