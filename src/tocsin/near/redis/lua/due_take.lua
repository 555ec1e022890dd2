#!lua flags=allow-oom
-- Take members whose time has come: they stay as taken until they are dropped or restored, or their deadline is over.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]  now in ms; ARGV[3] the deadline of what is taken now, in ms
-- ARGV[4]  how many to take of whatever is due, shared alike by tenants, precise first; 0: only what is named
-- ARGV[5]  how many tenants to list, ARGV[6] how many to pass over (where more are due than are listed)
-- ARGV[7]  the deadline of an earlier call whose answer was lost: its members are put back first; '' if none
-- ARGV[8]… lane, tenant, how many: take of these sets
-- answers  {first waiting time, {job, text, …}, {tenant, its first time, …} of lane 0, the same of lane 1}, or 'LOST';
--          the lists name the tenants of whom more is due
-- A repeat takes the next ones; it puts the first ones back if it names their deadline. It moves members and adds none, so it runs on a
-- full server too.

--@ sets
local now, deadline, most = ARGV[2], ARGV[3], tonumber(ARGV[4])
local got = {}

for _, job in ipairs(redis.call('ZRANGEBYSCORE', taken, '-inf', now, 'LIMIT', 0, 500)) do
  redis.call('ZREM', taken, job)
  put_back(job)
end

if ARGV[7] ~= '' then
  for _, job in ipairs(redis.call('ZRANGEBYSCORE', taken, ARGV[7], ARGV[7])) do
    redis.call('ZREM', taken, job)
    put_back(job)
  end
end

local function take(lane, tenant, count)
  local set = due_set(lane, tenant)
  local due = redis.call('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', 0, count)
  if #due > 0 then
    -- They are the set's first ones, so they go by their places.
    redis.call('ZREMRANGEBYRANK', set, 0, #due - 1)
    local moved = {}
    for at, text in ipairs(texts_of(due)) do
      if text then
        moved[#moved + 1] = deadline
        moved[#moved + 1] = due[at]
        got[#got + 1] = due[at]
        got[#got + 1] = text
      end
    end
    run('ZADD', taken, moved)
  end
  touch(lane, tenant)
  return #due
end

for at = 8, #ARGV, 3 do
  take(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
if most > 0 then
  first_due()
  for _, lane in ipairs({'0', '1'}) do
    local tenants = redis.call('ZRANGEBYSCORE', base .. 'heads:' .. lane, '-inf', now, 'LIMIT', 0, math.min(most, ARGV[5]))
    local each = math.max(1, math.floor(most / math.max(1, #tenants)))
    for _, tenant in ipairs(tenants) do
      most = most - take(lane, tenant, each)
    end
    if most <= 0 then
      break
    end
  end
end

local first = first_due()
local lists = {}
for _, lane in ipairs({'0', '1'}) do
  local heads = base .. 'heads:' .. lane
  local list = redis.call('ZRANGEBYSCORE', heads, '-inf', now, 'WITHSCORES', 'LIMIT', ARGV[6], ARGV[5])
  -- Those just taken of are always told, also beyond the list's end; twice is once.
  for _, set in pairs(touched) do
    local score = set[1] == lane and redis.call('ZSCORE', heads, set[2])
    if score and tonumber(score) <= tonumber(now) then
      list[#list + 1] = set[2]
      list[#list + 1] = score
    end
  end
  lists[#lists + 1] = list
end
return {first, got, lists[1], lists[2]}
