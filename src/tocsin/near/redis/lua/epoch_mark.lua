#!lua flags=allow-oom
-- Note how far the present epoch has come.
--
-- KEYS[1]  the epoch's key
-- ARGV[1]  the epoch that is meant
-- ARGV[2]  'open' (the old epoch's tags are dead, the line tags alive) or 'swept' (the old epochs' keys are gone)
-- answers  1, or 0 if another epoch has begun
-- Idempotent.

if redis.call('HGET', KEYS[1], 'name') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[2], '1')
return 1
