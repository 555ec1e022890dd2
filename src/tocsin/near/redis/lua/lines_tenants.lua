#!lua flags=allow-oom
-- How many jobs some tenants have in line in this tag.
--
-- KEYS[1]  the alive key of a line tag    ARGV[1]  the epoch
-- from ARGV[2]  the tenants
-- answers  a number for each, nil for none
-- Reads only. Asked of all tags at once, so it stands without the shared part.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
return redis.call('HMGET', string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':tenants', unpack(ARGV, 2))
