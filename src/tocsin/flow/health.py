"""Health: whether this process can write, fire and claim, and if not, why not."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.clock import Clock
from tocsin.errors import ServerUnavailable
from tocsin.flow.gap import Gap
from tocsin.store.port import Store

SILENT_S = 5.0


class Health:
    """Says what keeps this process from being ready. `dispatched_s` is when the dispatcher last made a pass (elapsed seconds)."""

    def __init__(self, store: Store, gap: Gap, clock: Clock, dispatched_s: Callable[[], float | None]) -> None:
        self._store, self._gap, self._clock, self._dispatched_s = store, gap, clock, dispatched_s
        self.recovered = False
        self.stopping = False

    async def reasons(self) -> list[str]:
        """Empty when ready; a write is tried for it."""
        found: list[str] = []
        if self.stopping:
            found.append("stopping: new work is not taken any more")
        if not self.recovered:
            found.append("starting: the near tier is being rebuilt from the store")
        try:
            await self._store.ping()
            self._gap.wrote()
        except ServerUnavailable as error:
            found.append(f"the store cannot write: {error}")
        passed = self._dispatched_s()
        if self.recovered and passed is not None and self._clock.elapsed_s() - passed > SILENT_S:
            found.append(f"the dispatcher has made no pass for {self._clock.elapsed_s() - passed:.0f} s")
        return found
