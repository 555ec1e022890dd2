#!lua flags=allow-oom
-- The cut sets that can take more; they accept offers behind their cut until it is moved.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]  how many members a set keeps
-- answers  {'<lane>:<tenant>', from time, token, after, …}, or 'LOST'
-- Idempotent. A cut is a text of five words: times from `end` on are refused unless it is being read (1); the loader reads on at
-- `from`, or behind `after` (the store's key, the rest of the text); `token` tells this cut from a later one.

--@ sets
local found = {}
local held = redis.call('HGETALL', cuts)
for at = 1, #held, 2 do
  local lane, tenant = string.match(held[at], '^(%d+):(.*)$')
  local last, from, token, reading, after = string.match(held[at + 1], '^(%S+) (%S+) (%S+) (%S+) (.*)$')
  local set = due_set(lane, tenant)
  local head = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
  if redis.call('ZCARD', set) * 2 < tonumber(ARGV[2]) or not head or tonumber(from) < tonumber(head) then
    if reading == '0' then
      redis.call('HSET', cuts, held[at], last .. ' ' .. from .. ' ' .. token .. ' 1 ' .. after)
    end
    found[#found + 1] = held[at]
    found[#found + 1] = from
    found[#found + 1] = token
    found[#found + 1] = after
  end
end
return found
