"""The near tier in Redis or Valkey: shared by all processes of a fleet, lost with its server, rebuilt from the store.

RedisNearTier (tier)    the port
  DueSets (due)         who waits for its time              LeaseIndex (leases)   whose lease ends when
  Taker (take)          what this process takes, fairly     Heads (heads), Basket (basket)   what it knows and holds of that
  ReadyLines (ready)            its parts:
    Lines (lines)   what comes into lines    Hands (hands)   pop, settle    Callbacks (callbacks)   the executor's pops
    Waits (waits)   claims that wait         Known (known)   what all processes know together
below them
  Scripts (scripts)     the programs of lua/, many tags in one round trip     Epoch (epoch)    what must be filled anew
  Keys (keys)           names and tags      members   a member as text        Wakes (wakes)    hints between processes
  Connection (connection)  the driver, its time-outs and its errors
"""

from tocsin.near.redis.tier import RedisNearTier, open_near

__all__ = ["RedisNearTier", "open_near"]
