#!lua flags=allow-oom
-- What callbacks this tag has, for a claim that is about to share them out. What dead processes have in hand goes back first.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the request    ARGV[5]  how many it wants at most
-- answers  {HAND, callbacks that came back, job, member, ...} or {ANSWER, callbacks that came back, what it was given} for a request
--          that has been answered, else
--          {LOOK, callbacks that came back, the places whose settings are not known,
--           {place, kind, its jobs, the first scores in order, ...}, ...}
-- The scores are up to the number wanted where few queues have callbacks, and fewer where many do.

local most = tonumber(ARGV[5])
local came = {}
return_overdue(came)
local reply = {'LOOK', wake_for(came)}
tell()
if before_now(ARGV[4], reply) then
  return reply
end
local unknown, sets = {}, {}
for _, place in ipairs(redis.call('SMEMBERS', CALLING)) do
  local its_gate = gate(place)
  if its_gate ~= 'closed' then
    local some = false
    for _, kind in ipairs(redis.call('SMEMBERS', kinds_key(place))) do
      if is_callback(kind) then
        local number = redis.call('ZCARD', set_key(place, kind))
        if number == 0 then
          redis.call('SREM', kinds_key(place), kind)
        else
          some = true
          if its_gate == 'open' then
            sets[#sets + 1] = {place, kind, number}
          end
        end
      end
    end
    if not some then
      redis.call('SREM', CALLING, place)
    elseif its_gate == 'ask' then
      unknown[#unknown + 1] = place
    end
  end
end
reply[3] = unknown
local each = math.min(most, math.max(1, math.floor(4 * most / math.max(1, #sets))))
for _, set in ipairs(sets) do
  local heads = redis.call('ZRANGE', set_key(set[1], set[2]), 0, each - 1, 'WITHSCORES')
  for at = 2, #heads, 2 do
    set[#set + 1] = heads[at]
  end
  reply[#reply + 1] = set
end
return reply
