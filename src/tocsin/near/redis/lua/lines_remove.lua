#!lua flags=allow-oom
-- Forget jobs, in line or in hand.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- from ARGV[4]  the jobs
-- answers  1
-- Idempotent.

local jobs = {}
for at = 4, #ARGV do
  jobs[#jobs + 1] = ARGV[at]
end
forget(jobs)
return 1
