"""Time and chance, the two things that a rule must be handed and may never take.

Every process makes one `Clock` and one `Entropy` and passes them down; nothing else in Tocsin reads the time, sleeps or
draws a random number (ruff's banned-api holds that). Tests and `tocsin dev --clock manual` pass `ManualClock`, which only
moves when it is told to.

Which clock decides what: the wall clock (`now_ms`) names instants that are stored and compared between processes; the
elapsed clock (`elapsed_s`) says how long something has been trusted or waited for, and goes on while a machine is
suspended, so that a laptop that slept does not believe in an old lease.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
# No clock reads beyond these; a damaged row may, and must not take down the claim that it is part of.
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MS
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MS
# CLOCK_BOOTTIME counts suspend, CLOCK_MONOTONIC does not (man 2 clock_gettime); only Linux has the former.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The time as one process sees it."""

    def now_ms(self) -> int:
        """The wall clock in milliseconds since 1970 UTC. May step in both directions."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since some fixed moment. Never steps, counts suspend; only differences mean something."""
        ...

    async def wait(self, event: asyncio.Event, timeout_s: float) -> bool:
        """Wait until `event` is set (True) or `timeout_s` of this clock have passed (False)."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        return time.clock_gettime(_ELAPSED)

    async def wait(self, event: asyncio.Event, timeout_s: float) -> bool:
        if event.is_set():
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


class CorrectedClock:
    """A machine's clock set right by what it differs from another one, which the whole installation goes by (its store's).

    `offset_ms` is what that other clock shows more; `flow.timekeeper` measures it. The elapsed clock is the machine's own.
    """

    def __init__(self, own: Clock) -> None:
        self.own = own
        self.offset_ms = 0

    def now_ms(self) -> int:
        return self.own.now_ms() + self.offset_ms

    def elapsed_s(self) -> float:
        return self.own.elapsed_s()

    async def wait(self, event: asyncio.Event, timeout_s: float) -> bool:
        return await self.own.wait(event, timeout_s)


class ManualClock:
    """A clock that stands still until `advance` or `step_wall` moves it. Safe to read from other threads."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now_ms = ms_of(start) if start is not None else SystemClock().now_ms()
        self._elapsed_s = 0.0
        self._moved = asyncio.Event()

    def now_ms(self) -> int:
        return self._now_ms

    def elapsed_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks and wake whoever waits."""
        if seconds < 0:
            raise ValueError("time does not run backwards; step_wall moves the wall clock alone")
        self._now_ms += round(seconds * 1000)
        self._elapsed_s += seconds
        self._wake()

    def advance_to(self, at_ms: int) -> None:
        """Let time pass until the wall clock reads `at_ms`; an instant already reached changes nothing."""
        if at_ms > self._now_ms:
            self._elapsed_s += (at_ms - self._now_ms) / 1000
            self._now_ms = at_ms
            self._wake()

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock (either way) as a wrong NTP answer would; no time passes on the elapsed clock."""
        self._now_ms += round(seconds * 1000)
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def wait(self, event: asyncio.Event, timeout_s: float) -> bool:
        until = self._elapsed_s + timeout_s
        while not event.is_set() and self._elapsed_s < until:
            waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._moved.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        return event.is_set()


class Entropy(Protocol):
    """Where randomness comes from."""

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        ...

    def uniform(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemEntropy:
    """The operating system's randomness: unpredictable, for IDs and secrets."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self) -> float:
        return secrets.randbits(53) / 9007199254740992.0


class SeededEntropy:
    """Repeatable randomness for tests. Never for secrets."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self) -> float:
        return self._random.random()


def ms_of(moment: datetime) -> int:
    """Milliseconds since 1970 UTC of an aware datetime; fractions of a millisecond are cut."""
    return (moment - EPOCH) // _MS


def datetime_of(at_ms: int) -> datetime:
    """The aware UTC datetime of milliseconds since 1970; beyond the years 1 to 9999 the nearest there is."""
    return EPOCH + timedelta(milliseconds=min(max(at_ms, _FIRST_MS), _LAST_MS))


@lru_cache(maxsize=8192)
def rfc3339(at_ms: int) -> str:
    """An instant as answers show it: UTC with `Z`, milliseconds only when they are not zero (RFC 3339)."""
    moment = datetime_of(at_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (f".{at_ms % 1000:03d}Z" if at_ms % 1000 else "Z")
