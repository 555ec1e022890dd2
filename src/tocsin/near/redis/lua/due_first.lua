#!lua flags=no-writes,allow-oom
-- The earliest waiting time, and how many members there are, taken ones included.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- answers  {first waiting time or '', count}, or 'LOST'
-- Only reads.

--@ sets
return {first_due(), redis.call('HLEN', jobs)}
