"""Health: whether this process can write, fire and claim, and if not, why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tocsin.clock import Clock
from tocsin.errors import PartlyUnavailable, ServerUnavailable
from tocsin.flow.gap import Gap
from tocsin.store.port import Store

SILENT_S = 5.0


class Health:
    """Says what keeps this process from being ready. `dispatched_s` tells when the dispatcher last made a pass (elapsed seconds);
    None in virtual time, where it makes passes only when it is told to. `outdated` tells whether the zone data here is older than
    what schedules were computed with. `checks` are others' reasons, asked one by one."""

    def __init__(
        self,
        store: Store,
        gap: Gap,
        clock: Clock,
        dispatched_s: Callable[[], float | None] | None,
        outdated: Callable[[], bool] = lambda: False,
        checks: Sequence[Callable[[], str | None]] = (),
    ) -> None:
        self._store, self._gap, self._clock, self._dispatched_s = store, gap, clock, dispatched_s
        self._outdated, self._checks = outdated, checks
        self._recovered_s: float | None = None
        self.stopping = False

    def recovered(self) -> None:
        """The near tier has been rebuilt; from now on the dispatcher must make passes."""
        self._recovered_s = self._clock.elapsed_s()

    async def reasons(self) -> list[str]:
        """Empty when ready; a write is tried for it."""
        found: list[str] = []
        if self.stopping:
            found.append("stopping: new work is not taken any more")
        if self._recovered_s is None:
            found.append("starting: the near tier is being rebuilt from the store")
        try:
            await self._store.ping()
            self._gap.wrote()
        except PartlyUnavailable as partly:
            # The others' jobs go on; but without the home database, which has the first partitions, nobody's token is known.
            if 0 in partly.partitions:
                found.append(f"the store cannot write to its home database: {partly}")
        except ServerUnavailable as error:
            found.append(f"the store cannot write: {error}")
        if self._recovered_s is not None and self._dispatched_s is not None:
            silent_s = self._clock.elapsed_s() - max(self._dispatched_s() or 0.0, self._recovered_s)
            if silent_s > SILENT_S:
                found.append(f"the dispatcher has made no pass for {silent_s:.0f} s")
        if self._outdated():
            found.append(
                "the zone data here is older than what schedules were computed with: their next runs are not computed until"
                " this node has the newer release of tocsin"
            )
        found += [reason for check in self._checks if (reason := check()) is not None]
        return found
