"""The near tier in memory: one process, one event loop, everything lost with it and rebuilt from the store at start.

    MemoryNearTier (tier)   the port
      DueSets (due)     who is due: lanes, tenants, alarms      DueSet (dueset)   one tenant's members in order of time
      ReadyLines (ready)  push, pop, settle                     Queue, Line, Run (lines), Callbacks: the executor's order
        Hands           what claims hold, what they got         Waiters           claims that wait
      LeaseIndex (leases)

No call suspends but the two waits, so each is atomic as the others see it.
"""

from tocsin.near.memory.tier import MemoryNearTier

__all__ = ["MemoryNearTier"]
