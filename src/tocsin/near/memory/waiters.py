"""Claims that wait for a job, woken one per job, the longest waiting first.

A wake-up is a hint. One that reaches a claim which is being cancelled is passed on to the next, so that a worker that hangs
up never costs another one its job.
"""

from __future__ import annotations

import asyncio

from tocsin.clock import Clock

# Whose jobs a claim waits for: a tenant's queue, or None for callbacks of all tenants.
Place = tuple[str, str] | None


class _Waiter:
    __slots__ = ("event", "handlers")

    def __init__(self, handlers: tuple[str, ...] | None) -> None:
        self.event = asyncio.Event()
        self.handlers = handlers


class Waiters:
    """Waiting claims by the place of their wish, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Place, dict[_Waiter, None]] = {}
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())

    async def wait(self, place: Place, handlers: tuple[str, ...] | None, timeout_s: float) -> None:
        """Sleep until woken, at most `timeout_s` of the clock."""
        if self._closed:
            return
        waiter = _Waiter(handlers)
        self._waiting.setdefault(place, {})[waiter] = None
        try:
            await self._clock.wait(waiter.event, timeout_s)
        except asyncio.CancelledError:
            if waiter.event.is_set() and not self._closed:
                self._leave(place, waiter)
                self._pass_on(place, waiter)
            raise
        finally:
            self._leave(place, waiter)

    def wake(self, place: Place, handler: str, most: int) -> None:
        """Wake up to `most` claims that can take jobs of `handler`."""
        waiting = self._waiting.get(place)
        if waiting is None or most <= 0:
            return
        fit = []
        for waiter in waiting:
            if waiter.handlers is None or place is None or handler in waiter.handlers:
                fit.append(waiter)
                if len(fit) == most:
                    break
        for waiter in fit:
            waiter.event.set()
            self._leave(place, waiter)

    def close(self) -> None:
        """Wake everybody; later waits return at once."""
        self._closed = True
        for waiting in list(self._waiting.values()):
            for waiter in waiting:
                waiter.event.set()
        self._waiting.clear()

    def _pass_on(self, place: Place, cancelled: _Waiter) -> None:
        """Hand a wake-up on to the next claim whose handlers have one in common."""
        for waiter in self._waiting.get(place, ()):
            if waiter.handlers is None or cancelled.handlers is None or set(waiter.handlers) & set(cancelled.handlers):
                waiter.event.set()
                self._leave(place, waiter)
                return

    def _leave(self, place: Place, waiter: _Waiter) -> None:
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._waiting[place]
