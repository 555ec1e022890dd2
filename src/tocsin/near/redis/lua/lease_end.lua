#!lua flags=allow-oom
-- Forget the leases of attempts that have ended.
--
-- KEYS[1]  the tag's alive key          base..leases (sorted set: job by end), base..attempts (hash: job to attempt)
-- ARGV[1]  the epoch
-- ARGV[2]… job, attempt; again and again
-- answers  1, or 'LOST'
-- Idempotent; a newer attempt's lease stays. Only frees memory, so it runs on a full server too.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local base = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local leases, attempts = base .. 'leases', base .. 'attempts'

-- At most 1,000 leases come at once, so that all of them are arguments of one command.
local asked, gone = {}, {}
for at = 2, #ARGV, 2 do
  asked[#asked + 1] = ARGV[at]
end
for number, held in ipairs(redis.call('HMGET', attempts, unpack(asked))) do
  if held and tonumber(held) <= tonumber(ARGV[number * 2 + 1]) then
    gone[#gone + 1] = asked[number]
  end
end
if #gone > 0 then
  redis.call('HDEL', attempts, unpack(gone))
  redis.call('ZREM', leases, unpack(gone))
end
return 1
