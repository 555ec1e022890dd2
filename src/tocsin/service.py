"""How a process lives: background stages run in loops, and stop in an orderly way.

A stage is one bounded pass (`step`) that knows when it wants to look again (`next_at`). It has no loop, no sleep and no
catch-all of its own. `Loop` owns waking, backing off and draining, and is the only place that survives any exception: a pass
that failed is logged, counted and tried again, because every stage can be repeated.

With a virtual clock no loop runs. `Conductor.advance` steps the same stages in turn, moving the clock from one instant at
which a stage wants to look to the next, so that a day passes in a second and in the same order every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tocsin.clock import Clock, Entropy, ManualClock
from tocsin.errors import ServerUnavailable
from tocsin.telemetry import PASS_FAILURES, PASSES, log

LONGEST_REST_S = 0.5
LONGEST_BACKOFF_S = 5.0
# What workers do at one instant may make more due at that instant; a job that goes on so for ever must not stop time.
MOST_ROUNDS = 10_000
BEAT_MS = 4 * 60_000


class Step(Protocol):
    """What a pass did. `more`: there is more to do at once."""

    @property
    def more(self) -> bool: ...


class Stage(Protocol):
    """One background duty.

    `rhythmic`: it looks at the store every so often, for timers that others have written. Where there are none, nothing is
    lost by not looking: virtual time passes over such stretches at once.
    """

    name: str

    @property
    def rhythmic(self) -> bool: ...

    async def step(self) -> Step:
        """One bounded pass. May raise: the pass is repeated."""
        ...

    async def next_at(self) -> int | None:
        """When this stage next has something to do (ms since 1970 UTC); None: nothing known."""
        ...

    async def rest(self, timeout_s: float) -> None:
        """Sleep until there may be work, at most `timeout_s`."""
        ...


class Alarm:
    """The `rest` of a stage that nobody wakes, or that others wake by `ring`."""

    rhythmic = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the stage."""
        self._event.set()

    async def rest(self, timeout_s: float) -> None:
        """Sleep until rung, at most `timeout_s`."""
        await self._clock.wait(self._event, timeout_s)
        self._event.clear()


class Loop:
    """Runs one stage until it is stopped. Failures back off with full jitter and never end the loop."""

    def __init__(self, stage: Stage, clock: Clock, entropy: Entropy) -> None:
        self._stage, self._clock, self._entropy = stage, clock, entropy
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.failures = 0
        self.passed_at_s: float | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name=f"stage {self._stage.name}")

    async def stop(self) -> None:
        """Let the current pass end, then end. A resting stage is woken."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                step = await self._stage.step()
                self.passed_at_s = self._clock.elapsed_s()
                self.failures = 0
                PASSES.labels(self._stage.name).inc()
                if step.more:
                    await asyncio.sleep(0)
                    continue
                rest_s = await self._rest_s()
            except Exception as error:
                rest_s = self._failed(error)
                await self._clock.wait(self._stopping, rest_s)
                continue
            await self._rest(rest_s)

    async def _rest_s(self) -> float:
        # The stage's wish is a difference of wall-clock times and may be absurd after a step of that clock; the bound
        # makes sure that no loop ever sleeps for the size of the jump.
        wish = await self._stage.next_at()
        if wish is None:
            return LONGEST_REST_S
        return min(max((wish - self._clock.now_ms()) / 1000, 0.0), LONGEST_REST_S)

    async def _rest(self, rest_s: float) -> None:
        if rest_s <= 0:
            await asyncio.sleep(0)
            return
        resting = asyncio.ensure_future(self._stage.rest(rest_s))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({resting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not resting.done():
                resting.cancel()
            await asyncio.gather(resting, stopped, return_exceptions=True)

    def _failed(self, error: Exception) -> float:
        self.failures += 1
        PASS_FAILURES.labels(self._stage.name).inc()
        wait_s = self._entropy.uniform() * min(LONGEST_BACKOFF_S, 0.05 * 2.0 ** min(self.failures, 10))
        if isinstance(error, ServerUnavailable):
            log.warning("pass_failed", stage=self._stage.name, error=str(error), again_in_s=round(wait_s, 3))
        else:
            log.error("pass_failed", stage=self._stage.name, again_in_s=round(wait_s, 3), exc_info=error)
        return wait_s


class Conductor:
    """Runs stages in virtual time: every pass that is due, in the stages' order, at the instant it is due.

    `quiet_until` tells until when (ms) there is no timer for the rhythmic stages to find, None if there is none at all: so
    long they are passed over, and a year with one job in it costs little more than a minute. With it the rhythmic stages also look
    only every four minutes, which is often enough for who reads five minutes ahead.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        clock: ManualClock,
        quiet_until: Callable[[], Awaitable[int | None]] | None = None,
    ) -> None:
        self._stages, self._clock, self._quiet_until = stages, clock, quiet_until
        self._lock = asyncio.Lock()
        self._beat_at = 0
        self._now: Sequence[Stage] = stages
        # What else must come to rest before time moves on: a test's workers.
        self.between: Callable[[], Awaitable[None]] | None = None

    async def settle(self) -> None:
        """Do everything that is due now."""
        async with self._lock:
            await self._settle()

    async def advance(self, seconds: float) -> None:
        """Let time pass; returns when all that fell due has fired and been pushed."""
        async with self._lock:
            until = self._clock.now_ms() + round(seconds * 1000)
            self._beat_at = 0
            await self._settle()
            while (upcoming := await self._upcoming(until)) < until:
                self._clock.advance_to(upcoming)
                await self._settle()
            self._clock.advance_to(until)
            self._beat_at = 0
            await self._settle()

    async def _upcoming(self, until: int) -> int:
        """When a stage wants to look next, at most `until`."""
        now, due, rhythm = self._clock.now_ms(), until, until
        for stage in self._stages:
            wish = await stage.next_at()
            if wish is None or wish <= now:
                continue
            if stage.rhythmic:
                rhythm = min(rhythm, wish)
            else:
                due = min(due, wish)
        if self._quiet_until is None:
            return min(rhythm, due)
        rhythm = max(rhythm, self._beat_at)
        if rhythm >= due:
            return due
        quiet = await self._quiet_until()
        return min(due, until if quiet is None else max(rhythm, quiet))

    async def _settle(self) -> None:
        now = self._clock.now_ms()
        beating = self._quiet_until is None or not now < self._beat_at <= now + BEAT_MS
        if beating:
            self._beat_at = now + BEAT_MS
        self._now = [stage for stage in self._stages if beating or not stage.rhythmic]
        await self._step_all()
        if self.between is None:
            return
        for _ in range(MOST_ROUNDS):
            await self.between()
            if not await self._step_all():
                return

    async def _step_all(self) -> bool:
        """Let every stage do what is due; whether there was anything."""
        busy, any_busy = True, False
        while busy:
            busy = False
            for stage in self._now:
                while (await stage.step()).more:
                    busy = any_busy = True
        return any_busy
