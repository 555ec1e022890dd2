"""The slots: long-lived tasks that work off the attempts which wait in this process.

A handler is awaited directly in its slot, so that an attempt costs no task of its own. To stop one attempt its slot's task
is cancelled while it is inside that handler, and only the handler ends: the slot knows that the cancellation was meant for
the attempt (`Held.stop` says why), takes it back (`Task.uncancel`) and goes on with the next.

This is the handlers' boundary: whatever a handler raises becomes a report and never ends the worker.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tocsin.clock import Clock
from tocsin.errors import AttemptLost, Fatal, Retry
from tocsin.sdk import report as reports
from tocsin.sdk.completions import Completions
from tocsin.sdk.hand import AnyHeld, Hand
from tocsin.sdk.held import Stop
from tocsin.sdk.report import SUCCEEDED, Report

log = logging.getLogger("tocsin.worker")

# Handlers that never wait would keep the event loop for themselves: each slot steps back after so many attempts.
TURNS = 32
# How long the end waits for handlers that swallow their cancellation; their jobs have been handed back by then.
CLOSE_S = 0.5


class Slots:
    """`count` places for attempts to run in, and the line of those that wait for one."""

    def __init__(
        self,
        count: int,
        prefetch: int,
        perform: Callable[[AnyHeld], Awaitable[Report]],
        hand: Hand,
        completions: Completions,
        clock: Clock,
    ) -> None:
        self.count = count
        self._capacity = count + prefetch
        self._perform, self._hand, self._completions, self._clock = perform, hand, completions, clock
        self.waiting: deque[AnyHeld] = deque()
        self.running: set[AnyHeld] = set()
        self.reserved = 0
        self._lingering = 0
        self._idle: deque[asyncio.Future[None]] = deque()
        self._room = asyncio.Event()
        self._still = asyncio.Event()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> list[asyncio.Task[None]]:
        self._tasks = [asyncio.create_task(self._slot(), name=f"tocsin-slot-{n}") for n in range(self.count)]
        return self._tasks

    @property
    def free(self) -> int:
        """How many more attempts may be taken in now."""
        return self._capacity - len(self.waiting) - len(self.running) - self._lingering

    @property
    def room(self) -> int:
        """The same, with those that claims on their way have asked for counted as taken."""
        return self.free - self.reserved

    async def wait_for_room(self) -> None:
        """Return when there may be room again."""
        self._room.clear()
        await self._room.wait()

    async def wait_until_still(self, until: asyncio.Event, timeout_s: float) -> None:
        """Return when nothing runs, when `until` is set, or after `timeout_s`."""
        # One event for both, because a clock waits for one: whoever sets `until` calls `nudge`.
        self._still.clear()
        if self.running and not until.is_set():
            await self._clock.wait(self._still, timeout_s)

    def nudge(self) -> None:
        """Wake `wait_until_still`."""
        self._still.set()

    def offer(self, attempts: Iterable[AnyHeld]) -> None:
        """Put attempts into the line."""
        self.waiting.extend(attempts)
        for _ in range(min(len(self._idle), len(self.waiting))):
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def take_back(self) -> list[AnyHeld]:
        """Empty the line: what has not begun."""
        attempts = list(self.waiting)
        self.waiting.clear()
        return attempts

    def interrupt(self, held: AnyHeld) -> None:
        """Make a running handler stop for the reason in `held.stop`. Does nothing to one that waits or has ended."""
        for waiter in held.waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        task = held.task
        if task is not None and not (held.patient and held.stop is Stop.CANCELLED):
            task.cancel()

    async def close(self) -> int:
        """End all slots; how many are left because their handlers will not end."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        _, stubborn = await asyncio.wait(self._tasks, timeout=CLOSE_S)
        return len(stubborn)

    async def _slot(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        waiting, loop = self.waiting, asyncio.get_running_loop()
        turns = 0
        while not self._closing:
            while not waiting:
                turns = 0
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
            turns += 1
            if turns > TURNS:
                turns = 0
                await asyncio.sleep(0)
                continue
            await self._work(waiting.popleft(), me)

    async def _work(self, held: AnyHeld, me: asyncio.Task[None]) -> None:
        """One attempt from its start to its queued report."""
        now = self._clock.elapsed_s()
        if held.fence_at <= now:
            self._hand.lost(held, "its lease ran out while it waited for a slot")
            return
        if held.stop is Stop.CANCELLED:
            self._end(held, reports.cancelled())
            return
        held.started(now)
        held.task = me
        running = self.running
        running.add(held)
        try:
            report: Report | None = await self._perform(held)
        except asyncio.CancelledError:
            if self._closing or (held.stop is None and me.cancelling()):
                # The slot itself is being ended, not this attempt: hand the job back if there is still time to say so.
                if held.stop is not Stop.LOST:
                    self._end(held, reports.released(0))
                raise
            report = _stopped(held, None)
        except Retry as exc:
            report = (
                reports.failed(str(exc), retry_after_s=exc.after) if held.stop is None else _stopped(held, str(exc))
            )
        except Fatal as exc:
            report = reports.fatal(str(exc))
        except AttemptLost:
            held.mark(Stop.LOST)
            report = None
        except (Exception, SystemExit) as exc:
            text = _describe(exc)
            if held.stop is None:
                log.warning("attempt %d of job %s failed: %s", held.job.attempt, held.job.job_id, _trace(exc))
            report = reports.failed(text) if held.stop is None else _stopped(held, text)
        finally:
            held.task = None
            running.discard(held)
            if held.stop is not None and not self._closing:
                while me.cancelling():
                    me.uncancel()
        self._end(held, report)
        if not running:
            self._still.set()
        if held.lingering is not None:
            await self._linger(held.lingering)
        if not self._room.is_set():
            self._room.set()

    async def _linger(self, thread: asyncio.Future[Any]) -> None:
        """A thread cannot be stopped: the slot is taken until it returns, though its attempt has been reported."""
        self._lingering += 1
        try:
            await asyncio.wait([thread])
        finally:
            self._lingering -= 1

    def _end(self, held: AnyHeld, report: Report | None) -> None:
        if report is None or held.stop is Stop.LOST:
            self._hand.lost(held, Stop.LOST.value)
            return
        tally = self._hand.tally
        if report is SUCCEEDED:
            tally.succeeded += 1
            self._completions.put(held, report)
            return
        match report.outcome:
            case "succeeded":
                tally.succeeded += 1
            case "retryable_failure":
                tally.failed += 1
            case "fatal_failure":
                tally.dead += 1
            case "cancelled":
                tally.cancelled += 1
            case "released":
                tally.released += 1
        self._completions.put(held, report)


def _stopped(held: AnyHeld, text: str | None) -> Report | None:
    """What to report about a handler that was stopped: the reason why, not the exception with which it ended."""
    stop = held.stop
    if stop is Stop.LOST:
        return None
    if held.cancel_requested:
        return reports.cancelled(text)
    if stop is Stop.TIMED_OUT:
        return reports.failed(f"timed out after {held.job.timeout_s:g} s")
    if stop is Stop.HANDED_BACK:
        return reports.released(0)
    return reports.failed("the handler ended with asyncio.CancelledError, though nobody had stopped it")


def _trace(exc: BaseException) -> str:
    """A traceback that any log can take: what a handler puts into its error need not be encodable."""
    text = "".join(traceback.format_exception(exc)).rstrip()
    return text.encode("utf-8", "backslashreplace").decode()


def _describe(exc: BaseException) -> str:
    try:
        text = str(exc)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
