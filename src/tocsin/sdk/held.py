"""An attempt in a worker's hands, and how long the worker may believe that it is still its own.

A lease is trusted on the elapsed clock, from the moment its renewal was *sent*: whatever the server answered, its lease
began no earlier. The worker lets go at 0.8 of the lease (the fence), well before the server would hand the job to
somebody else, so that two workers do not run one job only because a message was slow.

A claim that waited on the server (long poll) was sent long before its lease began. Its jobs are believed for a short
while from their arrival, and the first heartbeat is due at once: if the process was paused while the answer lay in the
socket, that heartbeat says so.

Held attempts are read and marked by the heartbeat thread and by the event loop. Every field is written by one of them,
or only ever in one direction (`stop`), so there is no lock. A crash leaves nothing behind: the leases run out and the
server hands the jobs out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from typing import Any, Generic, TypeVar

from msgspec import Struct

from tocsin.wire import ClaimedJob

FENCE = 0.8
RENEW = 0.25
# The server extends no lease past claimed_at + timeout_s + 10 s; we stop a little before.
TIMEOUT_CAP_S = 8.0

JobT = TypeVar("JobT", bound=ClaimedJob)


class Stop(Enum):
    """Why a handler was told to stop before it had ended."""

    CANCELLED = "its cancellation was asked for"
    TIMED_OUT = "it ran out of time"
    HANDED_BACK = "this worker is shutting down"
    LOST = "its lease is lost"


_GRAVITY = {Stop.CANCELLED: 0, Stop.TIMED_OUT: 1, Stop.HANDED_BACK: 1, Stop.LOST: 2}


class Held(Struct, Generic[JobT], eq=False, gc=False):
    """One attempt in hand: waiting for a slot, running, or waiting for its report to be accepted.

    For a `perform` coroutine: `job` is what was claimed, `stop` says why it is being cancelled (None: it is not),
    `patient` may be set to be left alone when the job's cancellation is asked for (a thread cannot be interrupted).
    A msgspec struct, though it never travels, because those are made four times faster than objects with `__slots__` and
    need not be walked by the garbage collector: `task` is cleared when a handler ends, so nothing here is ever a cycle.
    """

    job: JobT
    token: str
    lease_s: float
    received_at: float
    fence_at: float
    renew_at: float
    deadline: float = float("inf")
    stop: Stop | None = None
    cancel_requested: bool = False
    patient: bool = False
    reported: bool = False
    refused: bool = False
    progress: bytes | None = None
    task: asyncio.Task[None] | None = None
    lingering: asyncio.Future[Any] | None = None
    waiters: list[asyncio.Future[None]] | None = None

    def started(self, now: float) -> None:
        """A slot begins to work on it."""
        timeout_s = self.job.timeout_s
        self.deadline = min(now + timeout_s, self.received_at + timeout_s + TIMEOUT_CAP_S)

    def renewed(self, sent_at: float) -> None:
        """A heartbeat sent at `sent_at` was accepted (or the server said that it cannot write now, but lives)."""
        self.fence_at = max(self.fence_at, sent_at + FENCE * self.lease_s)
        self.renew_at = sent_at + RENEW * self.lease_s

    def mark(self, why: Stop) -> bool:
        """Note why it must stop; True if that is news. Only a graver reason replaces one that was noted before."""
        if why is Stop.CANCELLED:
            self.cancel_requested = True
        if self.stop is not None and _GRAVITY[self.stop] >= _GRAVITY[why]:
            return False
        self.stop = why
        return True


def hold(jobs: Iterable[JobT], *, sent_at: float, received_at: float) -> list[Held[JobT]]:
    """The attempts that one claim brought; `sent_at` is when it was first sent."""
    held: list[Held[JobT]] = []
    lease_s = fence_at = renew_at = -1.0
    for job in jobs:
        if job.lease_s != lease_s:
            lease_s = job.lease_s
            fence_at, renew_at = _trust(lease_s, sent_at, received_at)
        held.append(Held(job, job.lease_token, lease_s, received_at, fence_at, renew_at))
    return held


def _trust(lease_s: float, sent_at: float, received_at: float) -> tuple[float, float]:
    """Until when to believe in a lease that is new, and when to renew it first."""
    short_s = beat_timeout_s(lease_s)
    if received_at - sent_at <= short_s:
        return sent_at + FENCE * lease_s, sent_at + RENEW * lease_s
    return max(sent_at + FENCE * lease_s, received_at + 2 * short_s), received_at


def beat_timeout_s(lease_s: float) -> float:
    """How long one heartbeat may take before it is given up and sent again on another connection."""
    return min(2.0, lease_s / 8)
