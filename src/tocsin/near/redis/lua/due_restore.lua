#!lua flags=allow-oom
-- Put taken members back among the waiting.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]… jobs
-- answers  the first waiting time, or 'LOST'
-- Idempotent: only what is taken moves. It moves members and adds none, so it runs on a full server too.

--@ sets
for at = 2, #ARGV do
  if redis.call('ZREM', taken, ARGV[at]) == 1 then
    put_back(ARGV[at])
  end
end
return first_due()
