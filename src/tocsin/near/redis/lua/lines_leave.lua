#!lua flags=allow-oom
-- A claim waits no more. If it was woken and will not look (it was cancelled), the next one is woken in its place.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the place    ARGV[5]  the waiting claim    ARGV[6]  '1': pass a wake-up on
-- ARGV[7]  'all', or 'these': to one that can take jobs of a handler named from ARGV[8] on
-- answers  1 if it was still waiting
-- Not idempotent where it passes on: a repeat wakes one more, which is only a hint.

if redis.call('ZREM', AT .. 'wait:' .. ARGV[4], ARGV[5]) == 1 then
  return 1
end
if ARGV[6] == '1' then
  local wanted = nil
  if ARGV[7] == 'these' then
    wanted = {}
    for at = 8, #ARGV do
      wanted[#wanted + 1] = ARGV[at]
    end
  end
  wake(ARGV[4], wanted, 1)
  tell()
end
return 0
