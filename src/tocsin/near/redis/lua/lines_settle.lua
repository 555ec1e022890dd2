#!lua flags=allow-oom
-- A request's claim is written: its jobs leave this tag, and what was claimed is remembered for a repeat.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the request    ARGV[5]  until when (steady clock) to remember it    ARGV[6]  how many jobs' answers are kept
-- ARGV[7]  whether to remember in this tag: 'yes', 'no', or 'held': if the hand is here
-- from ARGV[8]  job, attempt, ... that were claimed
-- answers  callbacks that came back: newer members of jobs that were in hand
-- Idempotent. Where the hand was emptied meanwhile, the claimed jobs are in line and leave it.

local request, until_at, most, remember = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
local came = {}
local jobs = open_hand(request)
if jobs then
  local newer = redis.call('EXISTS', NEWER) == 1
  local members = newer and look_up(NEWER, jobs) or {}
  local gone, back = {}, {}
  for at, job in ipairs(jobs) do
    local list = members[at] and back or gone
    list[#list + 1] = job
  end
  run('HDEL', JOBS, gone)
  put_back(back, came)
else
  local claimed = {}
  for at = 8, #ARGV, 2 do
    claimed[#claimed + 1] = ARGV[at]
  end
  forget(claimed)
end
if #ARGV > 7 and (remember == 'yes' or (remember == 'held' and jobs)) then
  forget_answer(request)
  local number = (#ARGV - 7) / 2
  redis.call('HSET', ANSWERS, request, number .. ' ' .. table.concat(ARGV, ' ', 8))
  redis.call('ZADD', ANSWERED, until_at, request)
  local kept = redis.call('INCRBY', REMEMBERED, number + 1)
  while kept > most do
    local oldest = redis.call('ZRANGE', ANSWERED, 0, 0)[1]
    if oldest == request then
      break
    end
    forget_answer(oldest)
    kept = tonumber(redis.call('GET', REMEMBERED))
  end
end
local callbacks = wake_for(came)
tell()
return callbacks
