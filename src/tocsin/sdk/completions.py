"""Tells the server how attempts ended: group commit, like a database's log.

Whatever was queued while the previous request was on its way goes out together, at most 5,000 reports or 4 MiB. A report
is repeated, with pauses, for as long as the attempt's lease is trusted (the heartbeats go on meanwhile); the server gives
the same answer to a repeat. An attempt that is somebody else's by now is dropped: nothing is reported about it.

A crash before the answer: the server has the report or it has not; if not, the lease runs out and the job is attempted
again under the same idempotency key.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from tocsin import wire
from tocsin.clock import Clock
from tocsin.errors import Refused, ServerUnavailable
from tocsin.sdk import report as reports
from tocsin.sdk.backoff import Backoff
from tocsin.sdk.hand import AnyHeld, Hand
from tocsin.sdk.report import Report
from tocsin.sdk.transport import Transport, decode

log = logging.getLogger("tocsin.worker")

Item = tuple[AnyHeld, bytes]
# How long one request may take before its connection counts as dead: a quarter of the shortest lease in it, in bounds.
SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S = 1.0, 10.0
MAX_BATCH_BYTES = 4 * 1024 * 1024
SINGLE_PROGRESS_AT_ONCE = 20


class Completions:
    """The queue of reports and the one request that carries them."""

    def __init__(self, hand: Hand, transport: Transport, clock: Clock, backoff: Backoff) -> None:
        self._hand, self._transport, self._clock, self._backoff = hand, transport, clock, backoff
        self._queue: deque[Item] = deque()
        self._queued = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._answered = asyncio.Event()
        self._batch_limit = wire.MAX_BATCH_ATTEMPTS
        self._on_the_way = 0

    def put(self, held: AnyHeld, report: Report) -> None:
        """Queue the report about an attempt; a second one about the same attempt is passed over."""
        if held.reported:
            return
        held.reported = True
        self._queue.append((held, report.body(held.token)))
        if not self._queued.is_set():
            self._queued.set()
            self._emptied.clear()

    @property
    def waiting(self) -> int:
        """Reports that no answer has confirmed yet."""
        return len(self._queue) + self._on_the_way

    async def run(self) -> None:
        """Report for ever."""
        never = asyncio.Event()
        while True:
            await self._queued.wait()
            pause_s = await self.step()
            if pause_s:
                await self._clock.wait(never, pause_s)

    async def flushed(self, timeout_s: float) -> bool:
        """Wait until every report has its answer, at most `timeout_s`."""
        return await self._clock.wait(self._emptied, timeout_s)

    async def answered(self) -> None:
        """Wait for the next answer to a batch."""
        self._answered.clear()
        await self._answered.wait()

    async def step(self) -> float:
        """One request with what is queued; the pause in seconds before the next."""
        batch = self._take()
        if not batch:
            self._settle()
            return 0.0
        self._on_the_way = len(batch)
        try:
            await self._send_progress(batch)
            answer = await self._transport.request(
                "POST",
                "/v1/attempts:complete",
                body=b'{"items":[' + b",".join([body for _, body in batch]) + b"]}",
                timeout_s=_timeout_s(batch),
            )
            results = decode(answer.body, wire.CompletionAnswer).results
            if len(results) != len(batch):
                raise ServerUnavailable(f"{len(results)} answers to {len(batch)} reports")
        except ServerUnavailable as exc:
            return self._again(batch, str(exc), exc.retry_after_s)
        except Refused as exc:
            if exc.status == 413 and len(batch) > 1:
                self._batch_limit = max(1, len(batch) // 2)
                self._queue.extendleft(reversed(batch))
                return 0.0
            return self._again(batch, str(exc), exc.retry_after_s or 0.0)
        finally:
            self._on_the_way = 0
        turned_away = self._note(batch, results)
        if turned_away:
            return self._again(turned_away, "the server cannot write now", 0.0)
        self._backoff.reset()
        self._settle()
        return 0.0

    def _take(self) -> list[Item]:
        """The next batch, without the attempts that are no longer ours."""
        queue, now = self._queue, self._clock.elapsed_s()
        batch: list[Item] = []
        size = 0
        while queue and len(batch) < self._batch_limit and size < MAX_BATCH_BYTES:
            item = queue.popleft()
            if item[0].fence_at > now:
                batch.append(item)
                size += len(item[1])
            else:
                self._hand.lost(item[0], "its lease ran out before it could be reported")
        return batch

    async def _send_progress(self, batch: list[Item]) -> None:
        """Bring the last progress of attempts that will be followed by another one to the server first.

        A failure here is not repeated: the report matters more than where to resume.
        """
        unsent = [held for held, body in batch if held.progress is not None and not _is_success(body)]
        for start in range(0, len(unsent), SINGLE_PROGRESS_AT_ONCE):
            some = unsent[start : start + SINGLE_PROGRESS_AT_ONCE]
            await asyncio.gather(*(self._send_one_progress(held) for held in some))

    async def _send_one_progress(self, held: AnyHeld) -> None:
        progress, held.progress = held.progress, None
        try:
            await self._transport.request(
                "POST",
                f"/v1/attempts/{held.token}:heartbeat",
                body=b'{"progress":' + (progress or b"null") + b"}",
                timeout_s=2.0,
            )
        except (Refused, ServerUnavailable) as exc:
            log.warning("the last progress of job %s was not kept: %s", held.job.job_id, exc)

    def _again(self, batch: list[Item], why: str, at_least_s: float) -> float:
        self._queue.extendleft(reversed(batch))
        pause_s = self._backoff.next_s(at_least_s)
        log.warning(
            "%d reports did not get through (%s); they are sent again in %.1f s and for as long as their leases are trusted",
            len(batch),
            why,
            pause_s,
        )
        return pause_s

    def _note(self, batch: list[Item], results: list[wire.Completed]) -> list[Item]:
        """Act on the answers; the reports that are to be sent once more."""
        forget, again = self._hand.forget, list[Item]()
        for (held, body), result in zip(batch, results, strict=True):
            problem = result.error
            if problem is None:
                forget(held)
            elif problem.status == 429 or problem.status >= 500:
                again.append((held, body))
            elif problem.status in (404, 409):
                self._hand.lost(held, f"its report was refused: {problem.title}")
            else:
                self._refused(held, problem)
        return again

    def _refused(self, held: AnyHeld, problem: wire.Problem) -> None:
        """The report itself is wrong (a result too large for this server): say so once, as the job's last error."""
        if held.refused:
            self._hand.lost(held, f"its report was refused twice: {problem.title}: {problem.detail}")
            return
        held.refused = True
        text = f"the worker's report was refused: {problem.title}: {problem.detail}"
        log.error("job %s: %s; it becomes a dead letter", held.job.job_id, text)
        self._queue.append((held, reports.fatal(text).body(held.token)))

    def _settle(self) -> None:
        self._answered.set()
        if not self._queue:
            self._queued.clear()
            self._emptied.set()


def _timeout_s(batch: list[Item]) -> float:
    return min(LONGEST_TIMEOUT_S, max(SHORTEST_TIMEOUT_S, min(held.lease_s for held, _ in batch) / 4))


def _is_success(body: bytes) -> bool:
    return body.startswith(b'{"outcome":"succeeded"')
