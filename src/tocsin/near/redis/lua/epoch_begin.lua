#!lua flags=allow-oom
-- Begin a new epoch, if the present one is the one that the caller thinks lost.
--
-- KEYS[1]  the epoch's key (a hash: name, servers, open, swept)
-- ARGV[1]  the epoch that the caller found ('' if none)
-- ARGV[2]  the servers as they are now
-- answers  {name, servers, open, swept} of the epoch that now is, whoever began it
-- Idempotent: a repeat finds another epoch than the one it expects.
-- The name is the server's clock in microseconds and never less than its predecessor: names are ordered, so that who comes
-- late with an old one is recognised.

local found = redis.call('HGET', KEYS[1], 'name') or ''
if found == ARGV[1] then
  local time = redis.call('TIME')
  local name = time[1] .. string.format('%06d', time[2])
  if found ~= '' and (#found > #name or (#found == #name and found >= name)) then
    name = string.format('%.0f', tonumber(found) + 1)
  end
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'name', name, 'servers', ARGV[2], 'open', '0', 'swept', '0')
end
return redis.call('HMGET', KEYS[1], 'name', 'servers', 'open', 'swept')
