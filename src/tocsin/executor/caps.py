"""How many calls may be in flight to one host of one tenant, so that a slow host does not fill the executor.

**The limit.** It starts at 64 and grows by one with every call that ends quickly, so that it doubles per round of them,
up to a quarter of the executor. A *slow* call (ended by its timeout, or took more than half of it) halves the limit. Of
the calls that were in flight together only the first slow one counts: the others say the same thing about the same
moment (as TCP halves its window once per round trip).

**The wait.** A call over the limit waits in order, while it can hope: as long as calls to the host end at all, the line
is not longer than what ends in two seconds, and for two seconds at most. Otherwise its job goes back unharmed
(`released`), and other jobs get its place in the executor. The wait is outside of the call's own timeout, so it has to
stay well under the ten seconds that the server grants on top of that.

All of this is memory: an executor that starts again learns again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from tocsin.clock import Clock

START_LIMIT = 64.0
MIN_LIMIT = 2.0
SLOW_SHARE = 0.5
MAX_WAIT_S = 2.0
STALL_S = 1.0
# A host that nobody called for this long is forgotten, and with it a limit that had shrunk.
FORGET_AFTER_S = 600.0
FORGET_EVERY_S = 60.0


class Pace(Enum):
    """What a call that ended says about its host."""

    QUICK = "quick"
    SLOW = "slow"
    UNKNOWN = "unknown"  # nothing: it never reached the host, or was given up


def pace(took_s: float, timeout_s: float) -> Pace:
    """How a call that took `took_s` of its `timeout_s` counts."""
    return Pace.SLOW if took_s > timeout_s * SLOW_SHARE else Pace.QUICK


@dataclass(slots=True)
class Limit:
    """What is known about one host: the pure part. Times are of the elapsed clock, `typical_s` is how long calls take."""

    most: float
    now: float
    typical_s: float = 0.0
    shrunk_at_s: float = float("-inf")

    def learn(self, observed: Pace, started_s: float, ended_s: float) -> None:
        """Count one ended call."""
        if observed is Pace.UNKNOWN:
            return
        self.typical_s += (ended_s - started_s - self.typical_s) / 8
        if observed is Pace.QUICK:
            self.now = min(self.most, self.now + 1)
        elif started_s >= self.shrunk_at_s:
            self.now = max(min(MIN_LIMIT, self.most), self.now / 2)
            self.shrunk_at_s = ended_s

    def hopeful(self, waiting: int) -> bool:
        """Whether the line of `waiting` calls can be served within the wait. A host not known yet is trusted."""
        return waiting * self.typical_s <= MAX_WAIT_S * self.now


@dataclass(slots=True)
class _Host:
    limit: Limit
    used_at_s: float  # when a call ended last, or the first began
    in_flight: int = 0
    waiting: deque[asyncio.Event] = field(default_factory=deque)


class Caps:
    """The limits of all hosts. `most` is the largest number of calls in flight to one."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock = clock
        self._most = float(max(1, most))
        self._hosts: dict[Hashable, _Host] = {}
        self._forgot_at_s = clock.elapsed_s()

    @property
    def hosts(self) -> int:
        """How many hosts are remembered."""
        return len(self._hosts)

    def limit(self, key: Hashable) -> int:
        """How many calls to the host of `key` may be in flight."""
        host = self._hosts.get(key)
        return int(min(START_LIMIT, self._most) if host is None else host.limit.now)

    async def enter(self, key: Hashable) -> bool:
        """Take a place at the host of `key`, or say that there is none. After True, `leave` must follow."""
        now_s = self._clock.elapsed_s()
        host = self._hosts.get(key)
        if host is None:
            self._forget(now_s)
            host = self._hosts[key] = _Host(Limit(self._most, min(START_LIMIT, self._most)), now_s)
        if host.in_flight < int(host.limit.now) and not host.waiting:
            if host.in_flight == 0:
                host.used_at_s = now_s
            host.in_flight += 1
            return True
        if not host.limit.hopeful(len(host.waiting) + 1):
            return False
        return await self._wait(host, now_s + MAX_WAIT_S)

    def leave(self, key: Hashable, observed: Pace, started_s: float) -> None:
        """Give the place back and tell how the call went; wakes as many waiting calls as there is room for."""
        host = self._hosts[key]
        now_s = self._clock.elapsed_s()
        host.limit.learn(observed, started_s, now_s)
        host.used_at_s = now_s
        host.in_flight -= 1
        _wake(host)

    async def _wait(self, host: _Host, until_s: float) -> bool:
        turn = asyncio.Event()
        host.waiting.append(turn)
        try:
            # Whoever sets the turn has counted us in, also if that coincides with the end of our patience.
            while not turn.is_set():
                left_s = min(until_s, host.used_at_s + STALL_S) - self._clock.elapsed_s()
                if left_s <= 0:
                    host.waiting.remove(turn)
                    return False
                await self._clock.wait(turn, left_s)
        except asyncio.CancelledError:
            if turn.is_set():
                host.in_flight -= 1
                _wake(host)
            else:
                host.waiting.remove(turn)
            raise
        return True

    def _forget(self, now_s: float) -> None:
        """Drop hosts without calls that have nothing worth remembering, or that nobody called for long."""
        if now_s - self._forgot_at_s < FORGET_EVERY_S:
            return
        self._forgot_at_s = now_s
        for key, host in list(self._hosts.items()):
            if host.in_flight or host.waiting:
                continue
            shrunk = host.limit.now < min(START_LIMIT, self._most)
            if now_s - host.used_at_s > (FORGET_AFTER_S if shrunk else FORGET_EVERY_S):
                del self._hosts[key]


def _wake(host: _Host) -> None:
    while host.waiting and host.in_flight < int(host.limit.now):
        host.in_flight += 1
        host.waiting.popleft().set()
