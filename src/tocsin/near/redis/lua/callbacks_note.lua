#!lua flags=allow-oom
-- Note where a request's callbacks come from, so that a repeat finds them from any process; set marks right.
--
-- KEYS[1]  the alive key of the tag that keeps the marks    ARGV[1]  the epoch
-- ARGV[2]  the steady clock in ms    ARGV[3]  the request ('': none)    ARGV[4]  until when    ARGV[5]  its tags separated by spaces
-- from ARGV[6]  tag, the mark that it had when it was found empty, or '' if it was found to have callbacks without a mark
-- answers  1
-- Idempotent. A mark that was renewed meanwhile stays: somebody has just brought callbacks.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local at_tag = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local requested, requests = at_tag .. 'requested', at_tag .. 'requests'
for _, old in ipairs(redis.call('ZRANGEBYSCORE', requested, '-inf', ARGV[2], 'LIMIT', 0, 50)) do
  redis.call('ZREM', requested, old)
  redis.call('HDEL', requests, old)
end
if ARGV[3] ~= '' then
  redis.call('ZADD', requested, ARGV[4], ARGV[3])
  redis.call('HSET', requests, ARGV[3], ARGV[5])
end
local marked = at_tag .. 'marked'
for at = 6, #ARGV, 2 do
  local tag, mark = ARGV[at], ARGV[at + 1]
  if mark == '' then
    redis.call('ZADD', marked, redis.call('INCR', at_tag .. 'marks'), tag)
  elseif redis.call('ZSCORE', marked, tag) == mark then
    redis.call('ZREM', marked, tag)
  end
end
return 1
