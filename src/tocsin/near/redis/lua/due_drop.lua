#!lua flags=allow-oom
-- Forget members up to the version that was taken.
--
-- KEYS[1]  the tag's alive key
-- ARGV[1]  the epoch
-- ARGV[2]… job, version; again and again
-- answers  the first waiting time, or 'LOST'
-- Idempotent; a newer version stays. Only frees memory, so it runs on a full server too.

--@ sets
local asked = {}
for at = 2, #ARGV, 2 do
  asked[#asked + 1] = ARGV[at]
end
local gone, sets = {}, {}
for at, held in ipairs(texts_of(asked)) do
  if held then
    local _, version, tenant, lane = read(held)
    if tonumber(version) <= tonumber(ARGV[at * 2 + 1]) then
      gone[#gone + 1] = asked[at]
      sets[#sets + 1] = {lane, tenant}
    end
  end
end
run('HDEL', jobs, gone)
if run('ZREM', taken, gone) < #gone then
  -- Some wait again: their hand's deadline was over.
  for at, job in ipairs(gone) do
    redis.call('ZREM', due_set(sets[at][1], sets[at][2]), job)
    touch(sets[at][1], sets[at][2])
  end
end
return first_due()
