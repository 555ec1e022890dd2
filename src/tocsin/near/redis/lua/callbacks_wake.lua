#!lua flags=allow-oom
-- Callbacks may be taken: mark their tags, and wake claims that wait for callbacks, which wait in one tag for those of all.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  how many
-- from ARGV[5]  the tags that have them
-- answers  1
-- A repeat wakes more, which is only a hint.

for at = 5, #ARGV do
  redis.call('ZADD', AT .. 'marked', redis.call('INCR', AT .. 'marks'), ARGV[at])
end
wake('', nil, tonumber(ARGV[4]))
tell()
return 1
