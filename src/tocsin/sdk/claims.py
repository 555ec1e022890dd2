"""Claims: asks one source for as many jobs as there is room for, and brings them into the line.

One request at a time per claimer; while it is on its way the slots work off what is there. A claim waits on the server
for its first job (long poll). When an answer is lost, the same `request_id` is sent again for as long as the server
remembers it and gets the same jobs, so that a broken connection strands nothing. A crash strands what was claimed until
the leases run out.

An outage of the server is no reason to end: the claimer asks again for ever, with pauses that grow to 15 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tocsin import wire
from tocsin.clock import Clock, Entropy
from tocsin.errors import Overloaded, Refused, ServerUnavailable
from tocsin.sdk import report as reports
from tocsin.sdk.backoff import Backoff
from tocsin.sdk.completions import Completions
from tocsin.sdk.hand import AnyHeld, Hand
from tocsin.sdk.held import hold
from tocsin.sdk.slots import Slots

log = logging.getLogger("tocsin.worker")

# The server gives the same jobs to a repeated request ID for 60 s; a repeat must be there by then.
REPEAT_S = 50.0
RECOVER_TIMEOUT_S = 5.0
# More reports than this wait for an answer: the server cannot keep up, so nothing more is claimed.
MAX_UNREPORTED = 20_000
# Refusals that mending the worker's own configuration would cure; asking again would not.
_FINAL = (400, 401, 403, 404, 405, 413, 415, 422)


@dataclass(slots=True)
class Poll:
    """One claim: its ID, its size, and when it was first sent (on the elapsed clock)."""

    request_id: str
    count: int
    sent_at: float


class Claimer:
    """Claims from one source. `share` is the part of the free room that one claim asks for (1 over the sources)."""

    def __init__(
        self,
        source: Any,
        slots: Slots,
        hand: Hand,
        completions: Completions,
        clock: Clock,
        entropy: Entropy,
        *,
        wait_s: float,
        share: int,
        enough: int,
    ) -> None:
        self.source = source
        self._slots, self._hand, self._completions = slots, hand, completions
        self._clock, self._entropy = clock, entropy
        self._backoff = Backoff(entropy)
        self._wait_s, self._share, self._enough = wait_s, share, enough
        self._poll: Poll | None = None
        self.answered = False
        self.connected = False

    async def run(self) -> None:
        """Claim for ever. Raises `Refused` if the very first claim shows that this worker is not allowed to."""
        never = asyncio.Event()
        while True:
            await self._wait_for_room()
            pause_s = await self.step()
            if pause_s:
                await self._clock.wait(never, pause_s)

    async def step(self) -> float:
        """One claim; the pause in seconds before the next."""
        poll = self._poll or self._new_poll()
        self._poll = poll
        self._slots.reserved += poll.count
        # The first claim, and the first after an outage, is answered at once: it shows that the server is there.
        wait_s = self._wait_s if self.connected else 0.0
        try:
            jobs = await self.source.claim(poll.count, wait_s, poll.request_id)
        except ServerUnavailable as exc:
            return self._failed(poll, str(exc), exc.retry_after_s if isinstance(exc, Overloaded) else 0.0)
        except Refused as exc:
            if exc.status in _FINAL and not self.answered:
                raise
            self._poll = None
            return self._failed(poll, str(exc), exc.retry_after_s or 1.0)
        finally:
            self._slots.reserved -= poll.count
        self._poll = None
        if not self.connected:
            self.connected = True
            if self._backoff.failures:
                log.warning("%s answers again; claiming goes on", self.source.name)
        self.answered = True
        self._backoff.reset()
        self._take(jobs, poll)
        return 0.0

    async def recover(self) -> None:
        """After `run` was cancelled: fetch what the open claim may have got, and hand it back."""
        poll, self._poll = self._poll, None
        if poll is None:
            return
        try:
            async with asyncio.timeout(RECOVER_TIMEOUT_S):
                jobs = await self.source.claim(poll.count, 0.0, poll.request_id)
        except (Refused, ServerUnavailable, TimeoutError) as exc:
            log.warning("%s: the last claim stays without an answer (%s); its leases run out", self.source.name, exc)
            return
        for held in self._held(jobs, poll):
            self._hand.tally.released += 1
            self._completions.put(held, reports.released(0))

    async def _wait_for_room(self) -> None:
        while True:
            if self._completions.waiting > MAX_UNREPORTED:
                await self._completions.answered()
            elif self._may_claim():
                return
            else:
                await self._slots.wait_for_room()

    def _may_claim(self) -> bool:
        """Whether a claim is worth its while: room for a good part of the prefetch, or slots that would stand idle.

        With several sources a claim of one job is always allowed while a slot is free: another source's long poll, which
        has asked for that slot too, may stay empty for long.
        """
        slots = self._slots
        if slots.room >= self._enough:
            return True
        return slots.free > 0 and not slots.waiting and (slots.reserved == 0 or self._share > 1)

    def _new_poll(self) -> Poll:
        room = max(1, self._slots.room)
        count = min(wire.MAX_CLAIM, -(-room // self._share))
        return Poll(self._entropy.bytes(16).hex(), count, self._clock.elapsed_s())

    def _take(self, jobs: Sequence[wire.ClaimedJob], poll: Poll) -> None:
        attempts = self._held(jobs, poll)
        surplus = len(attempts) - max(0, self._slots.free)
        if surplus > 0:
            # Two sources answered at once for the same room: what would have to wait is handed back untouched.
            for held in attempts[-surplus:]:
                self._hand.tally.released += 1
                self._completions.put(held, reports.released(0))
            del attempts[-surplus:]
        self._slots.offer(attempts)

    def _held(self, jobs: Sequence[wire.ClaimedJob], poll: Poll) -> list[AnyHeld]:
        held = hold(jobs, sent_at=poll.sent_at, received_at=self._clock.elapsed_s())
        attempts = self._hand.add(held)
        self._hand.tally.claimed += len(attempts)
        return attempts

    def _failed(self, poll: Poll, why: str, at_least_s: float) -> float:
        if self._clock.elapsed_s() - poll.sent_at > REPEAT_S:
            self._poll = None
        pause_s = self._backoff.next_s(min(at_least_s, 15.0))
        log.warning(
            "%s cannot be claimed from (%s); retrying in %.2g s, until it answers", self.source.name, why, pause_s
        )
        self.connected = False
        return pause_s
