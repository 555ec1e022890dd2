"""Claims that wait for a job: in this process each sleeps on an event, in Redis all stand in one order per queue.

    wait    look once more, and join the order if there is nothing (one program, so no push falls in between)
    push    takes as many out of the order as it put jobs in line, and tells their processes, each on its own channel
    leave   a claim that is cancelled leaves the order; if it had been woken it passes the wake-up on

Claims for callbacks wait in one tag for the callbacks of all, and whoever brings some wakes them by a second program. A
wake-up is a hint: a process that died in the order swallows one, and the jobs are seen by whoever looks next, at most a second
later. No entry counts longer than that second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from tocsin.clock import Clock, SystemEntropy
from tocsin.errors import NearUnavailable
from tocsin.near.port import Pop
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.marks import Marks
from tocsin.near.redis.members import SEPARATOR
from tocsin.near.redis.programs import LineScript, Programs
from tocsin.near.redis.wakes import Wakes

LONGEST_WAIT_S = 1.0
_CALLBACKS = ""  # the place of all callbacks
_WAIT = LineScript("lines_wait")
_LEAVE = LineScript("lines_leave")
_WAKE = LineScript("callbacks_wake")
_ANY = LineScript("callbacks_any")


class Waits:
    """The waiting claims of this process."""

    def __init__(self, programs: Programs, keys: Keys, wakes: Wakes, clock: Clock) -> None:
        self._programs, self._keys, self._clock = programs, keys, clock
        self._channel = f"{keys.ready_channel}:{SystemEntropy().bytes(8).hex()}"
        self._marks = Marks(programs, keys)
        self._waiting: dict[int, asyncio.Event] = {}
        self._serial = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._quiet = False
        wakes.hear(self._channel, self._heard)

    async def wait(self, wish: Pop, timeout_s: float) -> bool:
        """Sleep until there may be a job for the wish; False: nobody waits here any more."""
        if self._quiet or timeout_s <= 0:
            return not self._quiet
        if wish.queue is None:
            tag, place = self._keys.line_tags[0], _CALLBACKS
        else:
            tenant = wish.tenant or ""
            tag, place = self._keys.line_tag(tenant, wish.queue), f"{tenant}{SEPARATOR}{wish.queue}"
        self._serial += 1
        serial, event = self._serial, asyncio.Event()
        self._waiting[serial] = event
        waiter = f"{serial:012d} {self._channel}"
        kinds: tuple[str, ...] = ("all",)
        if wish.handlers is not None and wish.queue is not None:
            kinds = ("these", *wish.handlers)
            waiter += SEPARATOR + "".join(f"{handler}{SEPARATOR}" for handler in wish.handlers)
        # A cancelled call would cost its connection: it goes on by itself, and the claim leaves the order behind it.
        joining = asyncio.ensure_future(self._join(tag, place, waiter, kinds))
        leave = partial(self._leave, joining, tag, place, waiter, kinds)
        try:
            if await asyncio.shield(joining):
                return not self._quiet
            if not await self._clock.wait(event, min(timeout_s, LONGEST_WAIT_S)) and timeout_s < LONGEST_WAIT_S:
                # One that waited its full second counts no more by itself.
                leave(pass_on=False)
        except asyncio.CancelledError:
            leave(pass_on=True)
            raise
        except NearUnavailable:
            # Closing cuts off what is just being said.
            if not self._quiet:
                raise
        finally:
            self._waiting.pop(serial, None)
        return not self._quiet

    async def wake_callbacks(self, numbers: Mapping[str, int]) -> None:
        """So many callbacks may be taken now in these tags: mark the tags, and wake claims that wait for callbacks."""
        tags = [tag for tag, number in numbers.items() if number]
        if tags:
            await self._programs.run_one(_WAKE, self._keys.line_tags[0], sum(numbers.values()), *tags)

    def quiesce(self) -> None:
        """Wake everybody; later waits return at once."""
        self._quiet = True
        for event in self._waiting.values():
            event.set()

    async def close(self) -> None:
        """Wait for what is still said to Redis."""
        self.quiesce()
        await asyncio.gather(*self._leaving)

    # inside

    def _heard(self, serials: str) -> None:
        for serial in serials.split():
            event = self._waiting.get(int(serial))
            if event is not None:
                event.set()

    async def _join(self, tag: str, place: str, waiter: str, kinds: Sequence[str]) -> bool:
        """Join the order; True: there is something now, and the claim is not in it."""
        if await self._programs.run_one(_WAIT, tag, place, waiter, *kinds):
            return True
        if place == _CALLBACKS and await self._has_callbacks():
            await self._programs.run_one(_LEAVE, tag, place, waiter, "0")
            return True
        return False

    async def _has_callbacks(self) -> bool:
        marks = await self._marks.read()
        answers = await self._programs.run([self._programs.call(_ANY, tag) for tag in marks.tags])
        found = [tag for tag, some in zip(marks.tags, answers, strict=True) if some]
        if wrong := marks.wrong(found):
            await self._programs.run([self._marks.note(wrong)])
        return bool(found)

    def _leave(
        self, joining: asyncio.Future[bool], tag: str, place: str, waiter: str, kinds: Sequence[str], *, pass_on: bool
    ) -> None:
        """Leave the order, later than now: a claim that is cancelled has no time to wait for Redis."""
        leaving = asyncio.ensure_future(self._left(joining, tag, place, waiter, "1" if pass_on else "0", *kinds))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _left(self, joining: asyncio.Future[bool], tag: str, *args: str) -> None:
        try:
            if not await joining:
                await self._programs.run_one(_LEAVE, tag, *args)
        except NearUnavailable:
            # The entry ends by itself in a second, and a wake-up was a hint.
            return
