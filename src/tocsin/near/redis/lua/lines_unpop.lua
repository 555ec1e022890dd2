#!lua flags=allow-oom
-- A request's claim could not be written: its jobs go back in line at once, and claims that wait are woken.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  the request
-- answers  callbacks that came back
-- Idempotent.

local came = {}
put_back(open_hand(ARGV[4]) or {}, came)
local callbacks = wake_for(came)
tell()
return callbacks
