#!lua flags=allow-oom
-- How many jobs of a queue are in line, and the first due time of each kind.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the place
-- answers  {jobs, the first one's due_at, ...} for each kind that has any
-- Reads only.

local place, reply = ARGV[4], {}
for _, kind in ipairs(redis.call('SMEMBERS', kinds_key(place))) do
  local key = set_key(place, kind)
  local head = redis.call('ZRANGE', key, 0, 0)
  if #head > 0 then
    reply[#reply + 1] = redis.call('ZCARD', key)
    reply[#reply + 1] = string.match(redis.call('HGET', JOBS, head[1]), '^[^\31]*')
  end
end
return reply
