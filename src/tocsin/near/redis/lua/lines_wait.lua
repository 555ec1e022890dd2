#!lua flags=allow-oom
-- A claim finds nothing and wants to wait for a push, unless there is something now.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the place ('': of callbacks)    ARGV[5]  the waiting claim: serial, space, channel, and US handler US handler US
-- ARGV[6]  'all', or 'these': of the handlers named from ARGV[7] on
-- answers  1 if it should look now, 0 if it will be told
-- Idempotent.

local place, waiter = ARGV[4], ARGV[5]
local wanted = nil
if ARGV[6] == 'these' then
  wanted = {}
  for at = 7, #ARGV do
    wanted[ARGV[at]] = true
  end
  wanted[''] = nil
end
if place ~= '' and gate(place) ~= 'closed' then
  local kinds = redis.call('SMEMBERS', kinds_key(place))
  for _, lane in ipairs({'0', '1'}) do
    for _, suspect in ipairs({'0', '1'}) do
      if best(chosen(place, kinds, lane, suspect, wanted)) then
        return 1
      end
    end
  end
end
local key = AT .. 'wait:' .. place
redis.call('ZREMRANGEBYSCORE', key, '-inf', NOW - LONGEST_WAIT_MS)
redis.call('ZADD', key, NOW, waiter)
return 0
