#!lua flags=allow-oom
-- Move callbacks into a request's hand, as they have been shared out.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the request    ARGV[5]  until when (steady clock) it has them
-- from ARGV[6]  lane, suspect, how many at most, the number of places, and these: all of one tenant
-- answers  {TOOK or HAND (again), 0, job, member, ...}
-- Idempotent by request. Somebody else may have taken them, or closed a queue, since they were seen: then fewer.

local reply = {'TOOK', 0}
if before_now(ARGV[4], reply) then
  return reply
end
local wanted, taken, at = {[''] = true}, {}, 6
while at <= #ARGV do
  local lane, suspect, most, places = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local sets = {}
  for which = at + 4, at + 3 + places do
    local place = ARGV[which]
    if gate(place) == 'open' then
      chosen(place, redis.call('SMEMBERS', kinds_key(place)), lane, suspect, wanted, sets)
    end
  end
  if #sets > 0 then
    take(sets, most, taken)
  end
  at = at + 4 + places
end
hand_out(ARGV[4], ARGV[5], taken, reply)
return reply
