"""A store of which only the clock is asked: what cannot be done with a real one is to set its clock."""

from __future__ import annotations

from itertools import count

from tocsin.clock import ManualClock
from tocsin.errors import StoreUnavailable


class ClockedStore:
    """Shows `ahead_ms` more than our clock; each answer takes the next of `trips` seconds to come back."""

    def __init__(self, own: ManualClock, ahead_ms: int, trips: tuple[float, ...]) -> None:
        self.own, self.ahead_ms, self.trips = own, ahead_ms, trips
        self.away = False
        self._calls = count()

    async def now_ms(self) -> int:
        if self.away:
            raise StoreUnavailable("the store is away")
        there = self.own.now_ms() + self.ahead_ms
        self.own.advance(self.trips[next(self._calls) % len(self.trips)])
        return there
