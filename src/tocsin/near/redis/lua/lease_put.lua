#!lua
-- Remember or renew leases.
--
-- KEYS[1]  the tag's alive key          base..leases (sorted set: job by end), base..attempts (hash: job to attempt)
-- ARGV[1]  the epoch
-- ARGV[2]… job, attempt, end in ms; again and again
-- answers  1, or 'LOST'
-- Idempotent; an older attempt changes nothing.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local base = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local leases, attempts = base .. 'leases', base .. 'attempts'

-- At most 1,000 leases come at once, so that all of them are arguments of one command.
local asked, fields, ends = {}, {}, {}
for at = 2, #ARGV, 3 do
  asked[#asked + 1] = ARGV[at]
end
for number, held in ipairs(redis.call('HMGET', attempts, unpack(asked))) do
  local at = number * 3 - 1
  local job, attempt = ARGV[at], ARGV[at + 1]
  if not held or tonumber(held) <= tonumber(attempt) then
    fields[#fields + 1] = job
    fields[#fields + 1] = attempt
    ends[#ends + 1] = ARGV[at + 2]
    ends[#ends + 1] = job
  end
end
if #fields > 0 then
  redis.call('HSET', attempts, unpack(fields))
  redis.call('ZADD', leases, unpack(ends))
end
return 1
