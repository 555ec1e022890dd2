"""Reckon: many processes count jobs, and each knows what all have counted.

Once a second a process adds what it has counted to the shared counts in the near tier and takes over their sum. The count of the
store itself, which is slow, replaces the shared one now and then (`flow.count`, by the coordinator alone) and after the near
tier was lost. A crash between a commit and its count leaves a difference until then; the figures are for people and for quotas
that are approximate.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.clock import Clock
from tocsin.errors import ServerUnavailable
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.near.port import NearTier
from tocsin.service import Alarm

EVERY_S = 1.0
# Taking over may cost a hundredth of the time: with very many queues it is done less often.
SHARE = 100


@dataclass(frozen=True, slots=True)
class Reckoned:
    """How many counts were told, and how many there are in all."""

    told: int = 0
    known: int = 0
    more: bool = False


class Reckoner(Alarm):
    """Keeps a process's figures those of all."""

    name = "reckon"
    rhythmic = True

    def __init__(self, near: NearTier, tally: Tally, clock: Clock) -> None:
        super().__init__(clock)
        self._near, self._tally, self._clock = near, tally, clock
        self._next_s = 0.0
        tally.share()

    async def step(self) -> Reckoned:
        """Tell and take over, if it is time. Raises NearUnavailable; what was to be told is then told later."""
        began_s = self._clock.elapsed_s()
        if began_s < self._next_s:
            return Reckoned()
        untold = self._tally.take_untold()
        try:
            if untold:
                await self._near.add_counts(untold)
        except ServerUnavailable:
            self._tally.put_back(untold)
            raise
        counts = await self._near.counts()
        self._tally.adopt(counts)
        took_s = self._clock.elapsed_s() - began_s
        self._next_s = began_s + max(EVERY_S, took_s * SHARE)
        return Reckoned(len(untold), len(counts))

    async def tell_last(self) -> None:
        """Tell what was counted since the last pass, at the end of the process. What cannot be told is found by the next count."""
        untold = self._tally.take_untold()
        if untold:
            await told("counts", self._near.add_counts(untold))

    async def next_at(self) -> int | None:
        return self._clock.now_ms() + max(round((self._next_s - self._clock.elapsed_s()) * 1000), 0)
