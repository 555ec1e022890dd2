#!lua flags=allow-oom
-- The lines that have parked jobs in some partitions, and how full they are.
--
-- KEYS[1]  the alive key of a line tag    ARGV[1]  the epoch
-- ARGV[2]  the partitions, with blanks between them: most often no line is parked, and 64 words for each tag cost more than the look
-- answers  {line, jobs in it, jobs of its tenant in this tag, ...}
-- Reads only. Asked of all tags at once, so it stands without the shared part.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end
local at_tag = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local reply = {}
if redis.call('EXISTS', at_tag .. 'parked') == 0 then
  return reply
end
local wanted = {}
for partition in string.gmatch(ARGV[2], '%d+') do
  wanted[partition] = true
end
local parked = redis.call('HGETALL', at_tag .. 'parked')
for at = 1, #parked, 2 do
  local line = parked[at]
  for partition in string.gmatch(parked[at + 1], '%d+') do
    if wanted[partition] then
      reply[#reply + 1] = line
      reply[#reply + 1] = redis.call('HGET', at_tag .. 'lines', line) or '0'
      reply[#reply + 1] = redis.call('HGET', at_tag .. 'tenants', string.match(line, '^[^\31]*')) or '0'
      break
    end
  end
end
return reply
