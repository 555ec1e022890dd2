#!lua flags=allow-oom
-- Forget jobs, in line or in hand.
--
-- from ARGV[4]  the jobs
-- answers  1
-- Idempotent.

local jobs = {}
for at = 4, #ARGV do
  jobs[#jobs + 1] = ARGV[at]
end
forget(jobs)
return 1
