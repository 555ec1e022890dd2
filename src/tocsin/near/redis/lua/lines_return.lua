#!lua flags=allow-oom
-- What dead processes have in hand in this tag goes back in line, and claims that wait are woken.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- answers  callbacks that came back
-- Idempotent.

local came = {}
return_overdue(came)
local callbacks = wake_for(came)
tell()
return callbacks
