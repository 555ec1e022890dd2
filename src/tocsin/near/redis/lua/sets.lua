-- What all programs about due sets share; they include it with the line `--@ sets`.
--
-- KEYS[1]  the tag's alive key, ARGV[1] the epoch: answers 'LOST' unless the tag holds it
--
-- base..jobs               hash: job to its member's text (members.py); waiting or taken, each job once
-- base..due:<lane>:<tenant>  sorted set: waiting jobs by their time
-- base..heads:<lane>       sorted set: tenants by the time of their first waiting job
-- base..taken              sorted set: jobs that a pass took, by when they are due again if it has died
-- base..cuts               hash: '<lane>:<tenant>' to 'end from token reading after': see cuts.lua
-- base..tokens             the last token of a cut

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local base = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local jobs, taken, cuts = base .. 'jobs', base .. 'taken', base .. 'cuts'

local ONE_CALL = 4000 -- as many arguments as one command is given: Lua's stack holds 8,000

-- Run a command with any number of arguments behind its key; the sum of what it answers.
local function run(command, key, arguments)
  local sum = 0
  for from = 1, #arguments, ONE_CALL do
    sum = sum + redis.call(command, key, unpack(arguments, from, math.min(from + ONE_CALL - 1, #arguments)))
  end
  return sum
end

-- The members' texts of jobs, false where there is none.
local function texts_of(wanted)
  local texts = {}
  for from = 1, #wanted, ONE_CALL do
    for _, text in ipairs(redis.call('HMGET', jobs, unpack(wanted, from, math.min(from + ONE_CALL - 1, #wanted)))) do
      texts[#texts + 1] = text
    end
  end
  return texts
end

local function due_set(lane, tenant)
  return base .. 'due:' .. lane .. ':' .. tenant
end

-- due_at, version, tenant, lane of a member's text
local function read(text)
  return string.match(text, '^(%-?%d+)\31(%d+)\31%-?%d+\31([^\31]*)\31[^\31]*\31(%d+)')
end

-- Sets that have changed: their tenants' heads are corrected once, by `first_due`.
local touched = {}
local function touch(lane, tenant)
  touched[lane .. ':' .. tenant] = {lane, tenant}
end

-- Put a job that is here back among the waiting.
local function put_back(job)
  local text = redis.call('HGET', jobs, job)
  if text then
    local due_at, _, tenant, lane = read(text)
    redis.call('ZADD', due_set(lane, tenant), due_at, job)
    touch(lane, tenant)
  end
end

-- Correct the heads; the earliest waiting time of the partition as text, '' if nothing waits.
local function first_due()
  for _, set in pairs(touched) do
    local first = redis.call('ZRANGE', due_set(set[1], set[2]), 0, 0, 'WITHSCORES')
    if first[2] then
      redis.call('ZADD', base .. 'heads:' .. set[1], first[2], set[2])
    else
      redis.call('ZREM', base .. 'heads:' .. set[1], set[2])
    end
  end
  local precise = redis.call('ZRANGE', base .. 'heads:0', 0, 0, 'WITHSCORES')[2]
  local flexible = redis.call('ZRANGE', base .. 'heads:1', 0, 0, 'WITHSCORES')[2]
  if precise and flexible then
    return tonumber(precise) <= tonumber(flexible) and precise or flexible
  end
  return precise or flexible or ''
end
