"""All attempts that one worker holds, by lease token, and the counts of what became of them.

Written by the event loop alone; the heartbeat thread reads a copy of the values, which CPython makes in one step.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any

from tocsin.sdk.held import Held

log = logging.getLogger("tocsin.worker")

AnyHeld = Held[Any]


@dataclass(slots=True)
class Tally:
    """What one worker has done since it started."""

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    timed_out: int = 0
    unknown_handlers: int = 0

    def __str__(self) -> str:
        """For people: `12 claimed, 11 succeeded, 1 failed`; what never happened is left out."""
        counts = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts if n or name == "claimed")


class Hand:
    """What is in hand: waiting for a slot, running, or waiting for its report to be accepted."""

    def __init__(self) -> None:
        self._attempts: dict[str, AnyHeld] = {}
        self.tally = Tally()

    def __len__(self) -> int:
        return len(self._attempts)

    def all(self) -> list[AnyHeld]:
        """A copy; callable from any thread."""
        return list(self._attempts.values())

    def add(self, attempts: list[AnyHeld]) -> list[AnyHeld]:
        """Take attempts in; those that were not here already (the answer to a claim may come twice)."""
        mine = self._attempts
        new = [held for held in attempts if held.token not in mine]
        mine.update((held.token, held) for held in new)
        return new

    def forget(self, held: AnyHeld) -> None:
        """Its report was accepted."""
        self._attempts.pop(held.token, None)

    def lost(self, held: AnyHeld, why: str) -> None:
        """It is not ours any more: nothing is reported about it, another attempt follows or has begun."""
        held.fence_at = float("-inf")
        if self._attempts.pop(held.token, None) is not None:
            self.tally.lost += 1
            log.warning(
                "dropped attempt %d of job %s: %s; nothing is reported, the server attempts the job again",
                held.job.attempt,
                held.job.job_id,
                why,
            )
