#!lua flags=allow-oom
-- What dead processes have in hand in this tag goes back in line, and claims that wait are woken.
--
-- answers  callbacks that came back
-- Idempotent.

local came = {}
return_overdue(came)
local callbacks = wake_for(came)
tell()
return callbacks
