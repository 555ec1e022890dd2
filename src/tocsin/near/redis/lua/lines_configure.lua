#!lua flags=allow-oom
-- Set a queue's gate; an open one wakes claims, one per job.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the place    ARGV[5]  'open', 'paused', or the wall clock's ms at which the pause is over
-- answers  callbacks that may be taken now
-- Idempotent.

local place = ARGV[4]
redis.call('HSET', GATES, place, ARGV[5])
local came = {}
for _, kind in ipairs(redis.call('SMEMBERS', kinds_key(place))) do
  came[#came + 1] = {place, string.sub(kind, 4), redis.call('ZCARD', set_key(place, kind))}
end
local callbacks = wake_for(came)
tell()
return callbacks
