#!lua flags=allow-oom
-- Which of some jobs are in this tag, in line or in hand. No ID tells its queue, so all tags are asked.
--
-- KEYS[1]  the alive key of a line tag    ARGV[1]  the epoch
-- from ARGV[2]  the jobs, at most 1,000
-- answers  those that are here
-- Reads only. Asked of all tags at once, so it stands without the shared part.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local jobs = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':jobs'
local found = {}
if redis.call('EXISTS', jobs) == 1 then
  for at, member in ipairs(redis.call('HMGET', jobs, unpack(ARGV, 2))) do
    if member then
      found[#found + 1] = ARGV[at + 1]
    end
  end
end
return found
