#!lua flags=allow-oom
-- Whether there is a callback in this tag that may be taken or whose queue must be asked for.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- answers  1 or 0
-- Reads only.

for _, place in ipairs(redis.call('SMEMBERS', CALLING)) do
  if gate(place) ~= 'closed' then
    for _, kind in ipairs(redis.call('SMEMBERS', kinds_key(place))) do
      if is_callback(kind) and redis.call('EXISTS', set_key(place, kind)) == 1 then
        return 1
      end
    end
  end
end
return 0
