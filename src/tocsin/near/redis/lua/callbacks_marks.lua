#!lua flags=allow-oom
-- The tags that have callbacks, as far as was told, and those that a request's callbacks came from.
--
-- KEYS[1]  the alive key of the tag that keeps the marks    ARGV[1]  the epoch
-- ARGV[2]  the request ('': none)
-- answers  {the request's tags separated by spaces, tag, its mark, ...}
-- Reads only.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local at_tag = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local reply = redis.call('ZRANGE', at_tag .. 'marked', 0, -1, 'WITHSCORES')
table.insert(reply, 1, redis.call('HGET', at_tag .. 'requests', ARGV[2]) or '')
return reply
