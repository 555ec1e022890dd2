"""What a handler is told about its attempt, and what it can say while it runs."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import msgspec

from tocsin import wire
from tocsin.clock import Clock, datetime_of
from tocsin.errors import UsageError
from tocsin.sdk.held import Held
from tocsin.sdk.transport import json_value


class Context:
    """One attempt, as its handler sees it. The same methods work in async handlers and in threads, unless they say so."""

    __slots__ = ("_clock", "_held", "_loop")

    def __init__(self, held: Held[wire.ClaimedJob], clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._held, self._clock, self._loop = held, clock, loop

    @property
    def job(self) -> wire.ClaimedJob:
        """The job as it was claimed: `job_id`, `queue`, `name`, `tags`, `run_at`, `fire_at`, `tries`, `max_attempts`, …"""
        return self._held.job

    @property
    def attempt(self) -> int:
        """The number of this attempt; it never decreases over a job's life, so it can fence writes elsewhere."""
        return self._held.job.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the job: effects done under it must be done once."""
        return self._held.job.idempotency_key

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the job's cancellation was asked for, the time is up, the lease is lost, the worker ends.

        An async handler is also cancelled (`asyncio.CancelledError`); one in a thread must look here now and then.
        """
        return self._held.stop is not None

    @property
    def time_left_s(self) -> float:
        """Seconds until the job's time-out stops this attempt; negative once it is over."""
        return self._held.deadline - self._clock.elapsed_s()

    @property
    def deadline(self) -> datetime:
        """The same as an instant (UTC)."""
        return datetime_of(self._clock.now_ms() + round(self.time_left_s * 1000))

    @property
    def last_progress(self) -> Any:
        """What the latest attempt that said anything passed to `progress`, or None: where to resume."""
        return json_value(self._held.job.progress)

    def progress(self, value: Any) -> None:
        """Keep `value` (at most 4 KiB as JSON) on the job; it travels with the next heartbeat, the newest value wins.

        The next attempt finds it in `last_progress`. Raises `UsageError` for a value that cannot be kept.
        """
        try:
            encoded = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:
            raise UsageError(f"progress cannot be written as JSON: {exc}") from exc
        if len(encoded) > wire.MAX_PROGRESS_BYTES:
            raise UsageError(
                f"progress has {len(encoded)} bytes of JSON, at most {wire.MAX_PROGRESS_BYTES} are kept; "
                "store the data elsewhere and pass where it is"
            )
        self._held.progress = encoded

    async def wait_cancelled(self) -> None:
        """Return when `cancelled` becomes true. For async handlers that shield a part of their work from cancellation."""
        held = self._held
        if held.stop is not None:
            return
        waiter = self._loop.create_future()
        if held.waiters is None:
            held.waiters = []
        held.waiters.append(waiter)
        await waiter
