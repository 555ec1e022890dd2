"""The machinery that every kind of worker is built on: claim, keep, perform, report.

    Source.claim ──> waiting ──> slot: await perform(held) ──> Report ──> completions (batched) ──> server
                        └──────── heartbeats, from their own thread, for all in hand ────────────────┘

**The seam.** What a worker does is two things that are passed in; everything else (slots, leases, self-fencing, timeouts,
batched completions, reconnecting, draining) is here and the same for all.

- A `Source` claims: one coroutine, `claim(count, wait_s, request_id) -> list of jobs`. It makes one request and lets the
  errors of the transport (`Refused`, `ServerUnavailable`) through; the engine repeats it, with the same `request_id` when
  an answer may have been lost. `QueueSource` is the one for tasks; the executor's claims `wire.ExecutorJob`.
- `perform(held) -> Report` does the work of one attempt: `held.job` is the claimed job as the source decoded it. It runs
  inside a long-lived slot task, awaited directly (no task per job), and
    * returns a `Report` (`report.succeeded(...)`, `failed`, `fatal`, or one built by hand with `status_code` and `response`),
    * or raises: `Retry` and `Fatal` mean what they say, any other exception is a retryable failure,
    * or is cancelled (timeout, the job's cancellation, a lost lease, the end of a drain): let `CancelledError` pass; the
      slot knows why and reports what fits. The timeout is the engine's, from `job.timeout_s`.

    engine = Engine([MySource(...)], perform, transport, concurrency=200, prefetch=400, clock=clock, entropy=entropy)
    await engine.run()        # until stop(); a second stop() (or stop(now=True)) hands the running ones back at once

A crash leaves leases behind that nobody renews; the server rescues their jobs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from tocsin.sdk.held import Held
from tocsin.sdk.report import Report
from tocsin.wire import ClaimedJob

JobT = TypeVar("JobT", bound=ClaimedJob)
JobT_co = TypeVar("JobT_co", bound=ClaimedJob, covariant=True)

Perform = Callable[[Held[JobT]], Awaitable[Report]]


class Source(Protocol[JobT_co]):
    """Where jobs come from."""

    @property
    def name(self) -> str:
        """What log lines call it, such as "queue billing"."""
        ...

    async def claim(self, count: int, wait_s: float, request_id: str) -> Sequence[JobT_co]:
        """Take up to `count` jobs, waiting up to `wait_s` for the first; a repeated `request_id` gets the same ones."""
        ...
