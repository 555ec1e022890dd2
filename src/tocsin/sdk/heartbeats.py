"""Keeps the leases of all attempts in hand, and lets go of those that can no longer be trusted.

It runs on a thread and an event loop of its own, with a connection of its own, so that a handler that keeps the worker's
loop busy costs no lease. (A transport that cannot leave its loop, in one process with the server, makes it a task there.)

`step` is one pass, ten times a second while there is anything in hand:

    fence passed            -> lost: the handler is stopped, nothing is reported
    its time-out passed     -> stopped, reported as a retryable failure
    a quarter of the lease  -> renewed, all that are due in one request; those with progress singly
    since the last renewal

    answer "superseded"     -> lost, at once
    answer "timed out"      -> stopped; the report still counts
    cancel_requested        -> the handler is told
    503 of the API          -> the server lives and the lease stands: trusted from when we asked
    silence                 -> asked again, on another connection, until the fence
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tocsin import wire
from tocsin.clock import Clock
from tocsin.errors import Overloaded, Refused, ServerUnavailable
from tocsin.sdk.backoff import Backoff
from tocsin.sdk.hand import AnyHeld, Hand
from tocsin.sdk.held import Stop, beat_timeout_s
from tocsin.sdk.transport import Transport, decode

log = logging.getLogger("tocsin.worker")

TICK_S = 0.1
PROGRESS_AT_ONCE = 20
# After an error of the server's own about one attempt of a batch.
ASK_AGAIN_S = 1.0

StopAttempt = Callable[[AnyHeld, Stop, str], None]


@dataclass(frozen=True, slots=True)
class Beaten:
    """What one pass did."""

    renewed: int = 0
    unanswered: int = 0
    stopped: int = 0


class Heartbeats:
    """The passes over what is in hand. `stop` may be called from this object's thread."""

    def __init__(self, hand: Hand, transport: Transport, clock: Clock, backoff: Backoff, stop: StopAttempt) -> None:
        self._hand, self._transport, self._clock = hand, transport, clock
        self._backoff, self._stop = backoff, stop
        self._again_at = 0.0

    async def run(self, ended: asyncio.Event) -> None:
        """Pass after pass until `ended` is set."""
        try:
            while not ended.is_set():
                await self.step()
                await self._clock.wait(ended, TICK_S)
        finally:
            await self._transport.close()

    async def step(self) -> Beaten:
        """One pass: let go, stop, renew."""
        now = self._clock.elapsed_s()
        stopped = 0
        due: list[AnyHeld] = []
        talking: list[AnyHeld] = []
        for held in self._hand.all():
            if held.fence_at <= now:
                if held.stop is not Stop.LOST:
                    stopped += 1
                    self._stop(held, Stop.LOST, "no heartbeat was accepted for 0.8 of its lease")
                continue
            if held.deadline <= now and held.task is not None and held.stop in (None, Stop.CANCELLED):
                stopped += 1
                self._stop(held, Stop.TIMED_OUT, "its time is up")
            if held.renew_at <= now:
                (due if held.progress is None or held.reported else talking).append(held)
        if (not due and not talking) or now < self._again_at:
            return Beaten(stopped=stopped)
        # At most one batch and a handful of single ones a pass: each has its own send time, and the next pass is near.
        answered = await self._renew_all(due[: wire.MAX_BATCH_ATTEMPTS]) if due else 0
        if talking:
            answered += sum(await asyncio.gather(*(self._renew_one(held) for held in talking[:PROGRESS_AT_ONCE])))
        tried = min(len(due), wire.MAX_BATCH_ATTEMPTS) + min(len(talking), PROGRESS_AT_ONCE)
        if answered < tried:
            self._again_at = self._clock.elapsed_s() + self._backoff.next_s()
        else:
            self._backoff.reset()
        return Beaten(renewed=answered, unanswered=tried - answered, stopped=stopped)

    async def _renew_all(self, due: list[AnyHeld]) -> int:
        """One request for many; how many were answered."""
        sent_at = self._clock.elapsed_s()
        try:
            answer = await self._transport.request(
                "POST",
                "/v1/attempts:heartbeat",
                body=msgspec.json.encode({"tokens": [held.token for held in due]}),
                timeout_s=min(beat_timeout_s(held.lease_s) for held in due),
            )
            beats = decode(answer.body, wire.HeartbeatAnswer).results
            if len(beats) != len(due):
                raise ServerUnavailable(f"{len(beats)} answers to {len(due)} heartbeats")
        except (Refused, ServerUnavailable) as exc:
            return self._unanswered(due, exc, sent_at)
        for held, beat in zip(due, beats, strict=True):
            if beat.error is None:
                self._accepted(held, bool(beat.cancel_requested), sent_at)
            else:
                self._refused(held, beat.error.status, beat.error.type, beat.error.title, sent_at)
        return len(due)

    async def _renew_one(self, held: AnyHeld) -> int:
        """One request for one attempt that has progress to tell."""
        sent_at, progress = self._clock.elapsed_s(), held.progress
        try:
            answer = await self._transport.request(
                "POST",
                f"/v1/attempts/{held.token}:heartbeat",
                body=b'{"progress":' + (progress or b"null") + b"}",
                timeout_s=beat_timeout_s(held.lease_s),
            )
            beat = decode(answer.body, wire.Beat)
        except Refused as exc:
            if exc.status in (404, 409):
                self._refused(held, exc.status, exc.kind, exc.title, sent_at)
                return 1
            if exc.status in (413, 422):
                # The progress was refused, not the attempt: go on without it.
                log.error("progress of job %s was refused: %s; it is not kept", held.job.job_id, exc)
                held.progress = None
                return 1
            return self._unanswered([held], exc, sent_at)
        except ServerUnavailable as exc:
            return self._unanswered([held], exc, sent_at)
        if held.progress is progress:
            held.progress = None
        self._accepted(held, bool(beat.cancel_requested), sent_at)
        return 1

    def _accepted(self, held: AnyHeld, cancel_requested: bool, sent_at: float) -> None:
        held.renewed(sent_at)
        if cancel_requested and not held.cancel_requested:
            self._stop(held, Stop.CANCELLED, "its cancellation was asked for")

    def _refused(self, held: AnyHeld, status: int, kind: str, title: str, sent_at: float) -> None:
        if status in (429, 503):
            held.renewed(sent_at)
        elif status >= 500:
            held.renew_at = sent_at + ASK_AGAIN_S
        elif held.reported:
            # Its report is on its way: the answer to that decides, and may have ended the attempt just now.
            held.renew_at = sent_at + held.lease_s
        elif kind.endswith("attempt-timed-out"):
            held.renew_at = float("inf")
            self._stop(held, Stop.TIMED_OUT, title)
        else:
            self._stop(held, Stop.LOST, title)

    def _unanswered(self, due: list[AnyHeld], exc: Refused | ServerUnavailable, sent_at: float) -> int:
        if isinstance(exc, Overloaded):
            for held in due:
                held.renewed(sent_at)
            return len(due)
        log.warning(
            "heartbeats of %d attempts were not answered (%s); asked again until 0.8 of each lease has passed",
            len(due),
            exc,
        )
        return 0


class HeartbeatThread:
    """Runs `Heartbeats` on a thread with its own event loop."""

    def __init__(self, heartbeats: Heartbeats, died: Callable[[], None]) -> None:
        self._heartbeats, self._died = heartbeats, died
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tocsin-heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """End the thread; blocks for at most one heartbeat's time-out."""
        if self._loop is not None and self._ended is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(3.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        finally:
            if self._ended is None or not self._ended.is_set():
                self._died()

    async def _main(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._heartbeats.run(self._ended)
