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
    * returns a `Report` (`report.succeeded(...)`, `failed`, or one built by hand with `status_code` and `response`),
    * or raises: `Retry` and `Fatal` mean what they say, any other exception is a retryable failure,
    * or is cancelled (timeout, the job's cancellation, a lost lease, the end of a drain): let `CancelledError` pass; the
      slot knows why and reports what fits. The timeout is the engine's, from `job.timeout_s`.

    engine = Engine([MySource(...)], perform, transport, concurrency=200, prefetch=400, clock=clock, entropy=entropy)
    await engine.run()        # until stop(); a second stop() (or stop(now=True)) hands the running ones back at once

A crash leaves leases behind that nobody renews; the server rescues their jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from tocsin.clock import Clock, Entropy, SystemClock, SystemEntropy
from tocsin.errors import UsageError
from tocsin.sdk import report as reports
from tocsin.sdk.backoff import Backoff
from tocsin.sdk.claims import Claimer
from tocsin.sdk.completions import Completions
from tocsin.sdk.hand import AnyHeld, Hand, Tally
from tocsin.sdk.heartbeats import Heartbeats, HeartbeatThread
from tocsin.sdk.held import Held, Stop
from tocsin.sdk.report import Report
from tocsin.sdk.slots import Slots
from tocsin.sdk.transport import Transport
from tocsin.wire import MAX_CLAIM, ClaimedJob

log = logging.getLogger("tocsin.worker")

JobT = TypeVar("JobT", bound=ClaimedJob)
JobT_co = TypeVar("JobT_co", bound=ClaimedJob, covariant=True)

Perform = Callable[[Held[JobT]], Awaitable[Report]]

DEFAULT_GRACE_S = 25.0
DEFAULT_WAIT_S = 15.0
# After the grace: so long may cancelled handlers clean up, and so long may the last reports take.
UNWIND_S = 2.0
FLUSH_S = 2.0


class Source(Protocol[JobT_co]):
    """Where jobs come from."""

    @property
    def name(self) -> str:
        """What log lines call it, such as "queue billing"."""
        ...

    async def claim(self, count: int, wait_s: float, request_id: str) -> Sequence[JobT_co]:
        """Take up to `count` jobs, waiting up to `wait_s` for the first; a repeated `request_id` gets the same ones."""
        ...


class Engine:
    """One worker's machinery. Made for one `run`.

    `concurrency` attempts run at once; `prefetch` more may wait in this process (0: none waits). `wait_s` is how long a
    claim may stay open on the server. `grace_s` is how long running handlers may go on after `stop`.
    """

    def __init__(
        self,
        sources: Sequence[Source[JobT]],
        perform: Perform[JobT],
        transport: Transport,
        *,
        concurrency: int = 10,
        prefetch: int = 0,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        wait_s: float = DEFAULT_WAIT_S,
        grace_s: float = DEFAULT_GRACE_S,
        hand: Hand | None = None,
    ) -> None:
        if concurrency < 1 or prefetch < 0 or not sources:
            raise UsageError("an engine needs a source, a concurrency of at least 1 and a prefetch of at least 0")
        self._clock = clock = clock or SystemClock()
        entropy = entropy or SystemEntropy()
        self._transport = transport
        self._grace_s = grace_s
        self.stubborn = 0
        self.hand = Hand() if hand is None else hand
        self._completions = Completions(self.hand, transport, clock, Backoff(entropy, cap_s=5.0))
        self._slots = Slots(concurrency, prefetch, perform, self.hand, self._completions, clock)
        enough = max(1, min(prefetch // 4, MAX_CLAIM // 2))
        # A second claim travels while the first is worked off, where there is room for both.
        claims_at_once = 2 if prefetch >= 2 * MAX_CLAIM else 1
        self._claimers = [
            Claimer(
                source,
                self._slots,
                self.hand,
                self._completions,
                clock,
                entropy,
                wait_s=wait_s,
                share=len(sources),
                enough=enough,
            )
            for source in sources
            for _ in range(claims_at_once)
        ]
        own = transport.fresh()
        self._heartbeats = Heartbeats(
            self.hand, own or transport, clock, Backoff(entropy, cap_s=1.0), self._stop_attempt
        )
        self._heartbeat_thread = HeartbeatThread(self._heartbeats, self._heartbeats_died) if own else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failure: asyncio.Future[None] | None = None

    @property
    def tally(self) -> Tally:
        """What has been done so far."""
        return self.hand.tally

    @property
    def connected(self) -> bool:
        """Whether the latest claim of every source was answered: a worker that is not ready takes no jobs."""
        return all(claimer.connected for claimer in self._claimers) and not self._stopping.is_set()

    def stop(self, *, now: bool = False) -> None:
        """Begin to drain; the second call (or `now`) hands the running ones back at once. For the engine's own loop."""
        if now or self._stopping.is_set():
            self._hurry.set()
            self._slots.nudge()
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`. Raises `Refused` if the server will not let this worker claim."""
        self._loop = asyncio.get_running_loop()
        self._failure = self._loop.create_future()
        ended = asyncio.Event()
        background = [
            asyncio.create_task(self._completions.run(), name="tocsin-completions"),
            *self._slots.start(),
        ]
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.start()
        else:
            background.append(asyncio.create_task(self._heartbeats.run(ended), name="tocsin-heartbeats"))
        claiming = [asyncio.create_task(claimer.run(), name="tocsin-claims") for claimer in self._claimers]
        for task in (*background, *claiming):
            task.add_done_callback(self._task_ended)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((stopping, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also when this coroutine is cancelled or a part has failed: what is in hand is handed back.
            if not stopping.done():
                self.stop(now=True)
            stopping.cancel()
            await self._drain(claiming)
            self.stubborn = await self._slots.close()
            ended.set()
            if self._heartbeat_thread is not None:
                await asyncio.to_thread(self._heartbeat_thread.stop)
            for task in background:
                task.cancel()
            await asyncio.wait(background, timeout=1.0)
        if self._failure.done():
            self._failure.result()

    async def _drain(self, claiming: list[asyncio.Task[None]]) -> None:
        """No new jobs; what has not begun goes back at once; what runs may end until the grace is over, then goes back."""
        for task in claiming:
            task.cancel()
        await asyncio.gather(*claiming, return_exceptions=True)
        recoveries = [asyncio.create_task(claimer.recover()) for claimer in self._claimers]
        for held in self._slots.take_back():
            self._hand_back(held)
        running = len(self._slots.running)
        if running and not self._hurry.is_set():
            log.info("draining: %d attempts may run for %g s more, then they are handed back", running, self._grace_s)
            await self._slots.wait_until_still(self._hurry, self._grace_s)
        for held in list(self._slots.running):
            if held.mark(Stop.HANDED_BACK):
                self._slots.interrupt(held)
        self._slots.nudge()
        await self._slots.wait_until_still(asyncio.Event(), UNWIND_S)
        for held in list(self._slots.running):
            log.warning("the handler of job %s does not end; the job is handed back all the same", held.job.job_id)
            self._hand_back(held)
        await asyncio.gather(*recoveries)
        if not await self._completions.flushed(FLUSH_S):
            log.warning("%d reports were not answered; those leases run out", self._completions.waiting)

    def _hand_back(self, held: AnyHeld) -> None:
        if held.stop is Stop.LOST:
            return
        self.tally.released += 1
        self._completions.put(held, reports.cancelled() if held.cancel_requested else reports.released(0))

    def _stop_attempt(self, held: AnyHeld, why: Stop, detail: str) -> None:
        """Stop one attempt; called from the heartbeats' thread."""
        if why is Stop.CANCELLED:
            held.cancel_requested = True
        if not held.mark(why):
            return
        if why is Stop.LOST:
            # Before anything else: a report that is being queued this instant must not go out.
            held.fence_at = float("-inf")
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopped, held, why, detail)

    def _stopped(self, held: AnyHeld, why: Stop, detail: str) -> None:
        """The same, on the worker's loop."""
        self._slots.interrupt(held)
        if why is Stop.LOST:
            self.hand.lost(held, detail)
        elif why is Stop.TIMED_OUT:
            self.tally.timed_out += 1

    def _heartbeats_died(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._fail, RuntimeError("the heartbeat thread has ended; see its error above"))

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        if self._stopping.is_set():
            if not task.cancelled():
                task.exception()
            return
        error = None if task.cancelled() else task.exception()
        self._fail(error or RuntimeError(f"{task.get_name()} has ended, which it never should"))

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
