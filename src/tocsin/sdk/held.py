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
from enum import Enum
from typing import Any, Generic, TypeVar

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


class Held(Generic[JobT]):
    """One attempt in hand: waiting for a slot, running, or waiting for its report to be accepted.

    For a `perform` coroutine: `job` is what was claimed, `stop` says why it is being cancelled (None: it is not),
    `patient` may be set to be left alone when the job's cancellation is asked for (a thread cannot be interrupted).
    """

    __slots__ = (
        "allowed_s",
        "cancel_requested",
        "deadline",
        "fence_at",
        "job",
        "lease_s",
        "lingering",
        "patient",
        "progress",
        "received_at",
        "refused",
        "renew_at",
        "reported",
        "stop",
        "task",
        "token",
        "waiters",
    )

    def __init__(self, job: JobT, *, sent_at: float, received_at: float) -> None:
        self.job = job
        self.token = job.lease_token
        self.lease_s = lease_s = job.lease_s
        self.received_at = received_at
        self.fence_at = sent_at + FENCE * lease_s
        self.renew_at = sent_at + RENEW * lease_s
        if received_at > self.renew_at or received_at - sent_at > beat_timeout_s(lease_s):
            self.fence_at = max(self.fence_at, received_at + 2 * beat_timeout_s(lease_s))
            self.renew_at = received_at
        self.deadline = float("inf")
        self.allowed_s = job.timeout_s
        self.stop: Stop | None = None
        self.cancel_requested = False
        self.patient = False
        self.reported = False
        self.refused = False
        self.progress: bytes | None = None
        self.task: asyncio.Task[None] | None = None
        self.lingering: asyncio.Future[Any] | None = None
        self.waiters: list[asyncio.Future[None]] | None = None

    def started(self, now: float) -> None:
        """A slot begins to work on it."""
        timeout_s = self.job.timeout_s
        self.deadline = deadline = min(now + timeout_s, self.received_at + timeout_s + TIMEOUT_CAP_S)
        self.allowed_s = deadline - now

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


def beat_timeout_s(lease_s: float) -> float:
    """How long one heartbeat may take before it is given up and sent again on another connection."""
    return min(2.0, lease_s / 8)
