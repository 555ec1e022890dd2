#!lua flags=allow-oom
-- Move the best tasks of a queue into a request's hand. What dead processes have in hand in this tag goes back first.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the request    ARGV[5]  until when (steady clock) it has them    ARGV[6]  how many at most
-- ARGV[7]  the place      ARGV[8]  'all', or 'these': of the handlers named from ARGV[9] on
-- answers  {what, callbacks that came back, job, member, ...}; what: TOOK, HAND (again), ASK (settings not known), or
--          {ANSWER, callbacks that came back, what the request was given}
-- A request that has been answered gets the same; a suspect job is handed out alone, never two in a row while others wait.

local request, until_at, most, place = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
local wanted = nil
if ARGV[8] == 'these' then
  wanted = {}
  for at = 9, #ARGV do
    wanted[ARGV[at]] = true
  end
  wanted[''] = nil
end

local came = {}
return_overdue(came)
local reply = {'TOOK', wake_for(came)}
tell()
if before_now(request, reply) then
  return reply
end
local its_gate = gate(place)
if its_gate == 'closed' then
  return reply
end
local kinds = redis.call('SMEMBERS', kinds_key(place))
if its_gate == 'ask' then
  for _, lane in ipairs({'0', '1'}) do
    for _, suspect in ipairs({'0', '1'}) do
      if best(chosen(place, kinds, lane, suspect, wanted)) then
        reply[1] = 'ASK'
      end
    end
  end
  return reply
end

local taken = {}
for _, lane in ipairs({'0', '1'}) do
  if #taken >= most then
    break
  end
  local ordinary = chosen(place, kinds, lane, '0', wanted)
  local suspects = chosen(place, kinds, lane, '1', wanted)
  if #suspects > 0 and #taken == 0 then
    local turn = AT .. 'suspected:' .. place .. US .. lane
    local score, job = best(suspects)
    local other, other_job = best(ordinary)
    local earlier = score and (not other or score < other or (score == other and job < other_job))
    if earlier and (not other or redis.call('EXISTS', turn) == 0) then
      take(suspects, 1, taken)
      redis.call('SET', turn, '1', 'EX', 3600)
      break
    end
    redis.call('DEL', turn)
  end
  if #ordinary > 0 then
    take(ordinary, most - #taken, taken)
  end
end
hand_out(request, until_at, taken, reply)
return reply
