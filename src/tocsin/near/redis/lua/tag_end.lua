#!lua flags=allow-oom
-- Make a tag dead unless it holds this epoch or a later one.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- answers  1 if the tag was alive in an older epoch, else 0
-- Idempotent.

local held = redis.call('GET', KEYS[1])
if not held or #held > #ARGV[1] or (#held == #ARGV[1] and held >= ARGV[1]) then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
