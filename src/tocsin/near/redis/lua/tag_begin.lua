#!lua flags=allow-oom
-- Make a tag alive in this epoch. What it holds of the epoch already stays.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- answers  1, or 0 if the tag holds a later epoch: the caller's is over
-- Idempotent.

local held = redis.call('GET', KEYS[1])
if held and (#held > #ARGV[1] or (#held == #ARGV[1] and held > ARGV[1])) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
return 1
