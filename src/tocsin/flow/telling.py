"""Telling the near tier what was committed: a courtesy that may fail, since the recheck finds what was not told.

Whoever has written something durable must answer so, whatever the near tier does: a client that hears "unavailable" after its
job was stored would send it again. What could not be told is counted and logged.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tocsin import telemetry
from tocsin.errors import ServerUnavailable
from tocsin.telemetry import log


async def told(what: str, telling: Awaitable[object]) -> bool:
    """Wait for a call to the near tier that follows a commit; False, with a record, if it could not be made."""
    try:
        await telling
    except ServerUnavailable as error:
        telemetry.NOT_TOLD.labels(what).inc()
        log.warning("near_tier_not_told", what=what, error=str(error), next="the recheck finds it")
        return False
    return True
