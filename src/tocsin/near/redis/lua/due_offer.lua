#!lua
-- Remember members until their time.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]  how many members a set keeps; ARGV[3] how many more it may hold before it is cut back to them
-- ARGV[4]  where to say that the partition has a new first member; ARGV[5] the partition's number
-- ARGV[6]… for each set: lane, tenant, count; then count times: job, due_at, version, text
-- answers  {first waiting time, refused job, refused job, …}, or 'LOST'
-- Idempotent by job and version. An older version gives way; members behind their set's cut are refused.

--@ sets
local limit, slack = tonumber(ARGV[2]), tonumber(ARGV[3])
local before = tonumber(first_due())
local answer = {''}

-- Keep the set's earliest `limit` members; what goes is behind the cut and stays in the store.
local function trim(lane, tenant, set)
  local gone = redis.call('ZRANGE', set, limit, -1, 'WITHSCORES')
  local first = gone[2]
  for at = 1, #gone, 2 do
    redis.call('HDEL', jobs, gone[at])
  end
  redis.call('ZREMRANGEBYRANK', set, limit, -1)
  local name, token = lane .. ':' .. tenant, redis.call('INCR', base .. 'tokens')
  local held = redis.call('HGET', cuts, name)
  local last, from, reading, after
  if held then
    last, from, reading, after = string.match(held, '^(%S+) (%S+) %S+ (%S+) (.*)$')
  end
  if not held or tonumber(first) < tonumber(last) then
    redis.call('HSET', cuts, name, first .. ' ' .. first .. ' ' .. token .. ' 0 ')
  elseif reading == '1' then
    -- What the loader reads just now may have been here and gone again: its answer is void.
    redis.call('HSET', cuts, name, last .. ' ' .. from .. ' ' .. token .. ' 0 ' .. after)
  end
end

-- A hash of few and short fields is a list to the server, which it walks through for each job; one long field makes it a table.
local fresh = redis.call('EXISTS', jobs) == 0
if fresh then
  redis.call('HSET', jobs, '-', string.rep('-', 100))
end

local at = 6
while at <= #ARGV do
  local lane, tenant, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local set = due_set(lane, tenant)
  local held_cut, last = redis.call('HGET', cuts, lane .. ':' .. tenant), nil
  if held_cut then
    local text, reading = string.match(held_cut, '^(%S+) %S+ %S+ (%S+)')
    last = reading == '0' and tonumber(text) or nil
  end
  at = at + 3
  local asked, fields, scores = {}, {}, {}
  for each = at, at + count * 4 - 1, 4 do
    asked[#asked + 1] = ARGV[each]
  end
  for number, held in ipairs(texts_of(asked)) do
    local each = at + (number - 1) * 4
    local job, due_at, version, text = ARGV[each], ARGV[each + 1], ARGV[each + 2], ARGV[each + 3]
    local known = false
    if held then
      local _, held_version, held_tenant, held_lane = read(held)
      known = tonumber(held_version) >= tonumber(version)
      if not known then
        redis.call('HDEL', jobs, job)
        if redis.call('ZREM', taken, job) == 0 then
          redis.call('ZREM', due_set(held_lane, held_tenant), job)
          touch(held_lane, held_tenant)
        end
      end
    end
    if not known then
      if last and tonumber(due_at) >= last then
        answer[#answer + 1] = job
      else
        fields[#fields + 1] = job
        fields[#fields + 1] = text
        scores[#scores + 1] = due_at
        scores[#scores + 1] = job
      end
    end
  end
  run('HSET', jobs, fields)
  run('ZADD', set, scores)
  at = at + count * 4
  touch(lane, tenant)
  if redis.call('ZCARD', set) > limit + slack then
    trim(lane, tenant, set)
  end
end

if fresh then
  redis.call('HDEL', jobs, '-')
end
answer[1] = first_due()
local now = tonumber(answer[1])
if now and (not before or now < before) then
  redis.call('PUBLISH', ARGV[4], ARGV[5] .. ' ' .. answer[1])
end
return answer
