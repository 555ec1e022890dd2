"""How many calls may be in flight to one host of one tenant, so that a slow host does not fill the executor.

**The limit.** It starts at a quarter of the executor and grows up to half, by one with every answer that was about
as quick as this host can be; when more calls only make each one slower, it stays. A *slow* call (ended by its timeout, or
took more than half of it) halves the limit. Of the calls that were in flight together only the first slow one counts: the
others say the same thing about the same moment (as TCP halves its window once per round trip).

**The wait.** A call over the limit waits in order, while it can hope: as long as calls to the host end at all, and for
five seconds at most; where calls usually take more than two seconds, only as many wait as can be served in two. Otherwise
its job goes back unharmed (`released`), and other jobs get its place in the executor. The wait is outside of the call's
own timeout, so it has to stay well under the ten seconds that the server grants on top of that.

All of this is memory: an executor that starts again learns again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from tocsin.clock import Clock

MIN_LIMIT = 2.0
SLOW_SHARE = 0.5
# How much longer than the quickest a call may take and still count as undisturbed by the others.
SLACK_S = 0.1
MAX_WAIT_S = 5.0
STALL_S = 2.0
# Generous, because a call also seems slow when it is the executor that is busy.
PROMPT_S = 2.0
SLOW_LINE_S = 2.0
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
    """What is known about one host: the pure part. Times are of the elapsed clock.

    `typical_s` is how long calls take, `best_s` how long the quick ones do.
    """

    most: float
    now: float
    typical_s: float = 0.0
    best_s: float = float("inf")
    shrunk_at_s: float = float("-inf")

    def learn(self, observed: Pace, started_s: float, ended_s: float) -> None:
        """Count one ended call."""
        if observed is Pace.UNKNOWN:
            return
        took_s = ended_s - started_s
        self.typical_s += (took_s - self.typical_s) / 8
        # It drifts upwards, so that one lucky answer is not the measure for ever.
        self.best_s = took_s if took_s < self.best_s else self.best_s + (took_s - self.best_s) / 64
        if observed is Pace.QUICK:
            if took_s <= 2 * self.best_s + SLACK_S:
                self.now = min(self.most, self.now + 1)
        elif started_s >= self.shrunk_at_s:
            self.now = max(min(MIN_LIMIT, self.most), self.now / 2)
            self.shrunk_at_s = ended_s

    def hopeful(self, waiting: int) -> bool:
        """Whether a line of `waiting` calls will be served before long. A host not known yet is trusted."""
        return self.typical_s <= PROMPT_S or waiting * self.typical_s <= SLOW_LINE_S * self.now


@dataclass(slots=True)
class _Host:
    limit: Limit
    used_at_s: float  # when a call ended last, or the first began
    in_flight: int = 0
    waiting: deque[_Turn] = field(default_factory=deque)
    watch: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Turn:
    """One waiting call. Whoever gives it its turn (True) has counted it in."""

    given: asyncio.Future[bool]
    until_s: float


class Caps:
    """The limits of all hosts. `most` is the largest number of calls in flight to one; they start at half of it."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock = clock
        self._most = float(max(1, most))
        self._start = float(max(1, most // 2))
        self._hosts: dict[Hashable, _Host] = {}
        self._forgot_at_s = clock.elapsed_s()

    @property
    def hosts(self) -> int:
        """How many hosts are remembered."""
        return len(self._hosts)

    def limit(self, key: Hashable) -> int:
        """How many calls to the host of `key` may be in flight."""
        host = self._hosts.get(key)
        return int(self._start if host is None else host.limit.now)

    async def enter(self, key: Hashable) -> bool:
        """Take a place at the host of `key`, or say that there is none. After True, `leave` must follow."""
        now_s = self._clock.elapsed_s()
        host = self._hosts.get(key)
        if host is None:
            self._forget(now_s)
            host = self._hosts[key] = _Host(Limit(self._most, self._start), now_s)
        if host.in_flight < int(host.limit.now) and not host.waiting:
            if host.in_flight == 0:
                host.used_at_s = now_s
            host.in_flight += 1
            return True
        if now_s - host.used_at_s >= STALL_S or not host.limit.hopeful(len(host.waiting) + 1):
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

    async def close(self) -> None:
        """Stop watching the lines; nobody may wait any more."""
        watches = [host.watch for host in self._hosts.values() if host.watch is not None]
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def _wait(self, host: _Host, until_s: float) -> bool:
        turn = _Turn(asyncio.get_running_loop().create_future(), until_s)
        host.waiting.append(turn)
        if host.watch is None:
            host.watch = asyncio.create_task(self._watch(host), name="tocsin-executor-line")
        try:
            return await turn.given
        except asyncio.CancelledError:
            # A turn that has not come is cancelled with us, and passed over; one that had come goes to the next.
            if not turn.given.cancelled() and turn.given.result():
                host.in_flight -= 1
                _wake(host)
            raise

    async def _watch(self, host: _Host) -> None:
        """Send waiting calls away: the first ones when they have waited too long, all when no call ends any more."""
        never = asyncio.Event()
        while host.waiting:
            first = host.waiting[0]
            stalled_at_s = host.used_at_s + STALL_S
            left_s = min(first.until_s, stalled_at_s) - self._clock.elapsed_s()
            if first.given.done():
                host.waiting.popleft()
            elif left_s <= 0:
                host.waiting.popleft()
                first.given.set_result(False)
            else:
                await self._clock.wait(never, left_s)
        host.watch = None

    def _forget(self, now_s: float) -> None:
        """Drop hosts without calls that have nothing worth remembering, or that nobody called for long."""
        if now_s - self._forgot_at_s < FORGET_EVERY_S:
            return
        self._forgot_at_s = now_s
        for key, host in list(self._hosts.items()):
            if host.in_flight or host.watch is not None:
                continue
            shrunk = host.limit.now < self._start
            if now_s - host.used_at_s > (FORGET_AFTER_S if shrunk else FORGET_EVERY_S):
                del self._hosts[key]


def _wake(host: _Host) -> None:
    while host.waiting and host.in_flight < int(host.limit.now):
        turn = host.waiting.popleft()
        if not turn.given.done():
            host.in_flight += 1
            turn.given.set_result(True)
