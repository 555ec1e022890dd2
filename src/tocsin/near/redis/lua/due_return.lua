#!lua flags=allow-oom
-- Put what an owner before took back among the waiting, a bounded number of it: a new owner begins the partition.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]  how many at most
-- answers  how many it was, or 'LOST'
-- Idempotent. It moves members and adds none, so it runs on a full server too.

--@ sets
local back = redis.call('ZRANGE', taken, 0, ARGV[2] - 1)
for _, job in ipairs(back) do
  redis.call('ZREM', taken, job)
  put_back(job)
end
first_due()
return #back
