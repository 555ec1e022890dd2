"""What this process knows of each partition's first waiting time, so that a pass with nothing to do costs next to nothing.

Every program that changes a due set answers the partition's first time; what other processes offer is heard on the installation's
channel when it is earlier than all that waited there. A message may be lost and a removal elsewhere is not told, so
what is known is believed for `BELIEVED_S` only: the dispatcher looks that often anyway. Where more was due already than a look took,
another tenant's offer is no new first time and is not told either: such a partition is looked at again after `AGAIN_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tocsin.clock import Clock
from tocsin.near.redis.scripts import Call, Script, Scripts

NEVER = 1 << 62
BELIEVED_S = 0.4
AGAIN_S = 0.05
_NEVER_SEEN = -1e9
_FIRST = Script("due_first")


async def look(scripts: Scripts, tags: Sequence[str]) -> list[tuple[int | None, int]]:
    """(first waiting time, members with the taken ones) of each partition, by its tag."""
    answers = await scripts.run([Call(_FIRST, tag, ()) for tag in tags])
    return [(int(first) if first else None, int(count)) for first, count in answers]


class Heads:
    """First waiting times of the partitions that this process asks for; `earlier` is set when the first of all moves forward."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Partition: (its first waiting time or NEVER, when a look found it so, whether that look left behind what was due).
        self._known: dict[int, tuple[int, float, bool]] = {}
        # Partition: (the count of offers when one was told, its time): an answer that was on its way meanwhile may be older.
        self._told: dict[int, tuple[int, int]] = {}
        self._offers = 0
        self._own: frozenset[int] | None = None
        self.earlier = asyncio.Event()

    def hear(self, message: str) -> None:
        """A message of another process's offer: "partition time"."""
        partition, _, due_at = message.partition(" ")
        self.offered(int(partition), int(due_at))

    def own(self, partitions: frozenset[int]) -> None:
        """These are the partitions that this process asks for; nothing is kept of others. Before the first call it is all."""
        self._own = partitions

    def offered(self, partition: int, due_at: int | None) -> None:
        """A partition's first time after an offer, or what was heard of one."""
        if due_at is None or (self._own is not None and partition not in self._own):
            return
        self._offers += 1
        self._told[partition] = (self._offers, due_at)
        first, since, _ = self._known.get(partition, (NEVER, _NEVER_SEEN, False))
        if due_at < self.first():
            self.earlier.set()
        self._known[partition] = (min(first, due_at), since, False)

    def sending(self) -> int:
        """Call before a program is sent, and give `learn` or `seen` what this answers."""
        return self._offers

    def seen(self, partition: int, due_at: int | None, sent: int) -> None:
        """What a program has just answered of a partition; of others than its own nothing is kept."""
        if self._own is None or partition in self._own:
            before = self._known.get(partition)
            left = before is not None and before[2] and (NEVER if due_at is None else due_at) >= before[0]
            self.learn(partition, due_at, sent, left=left)

    def learn(self, partition: int, due_at: int | None, sent: int, *, left: bool = False) -> None:
        """A look at a partition has found its first time, and `left` there what is due; what was told of offers since the look was
        sent may be news to it."""
        first = NEVER if due_at is None else due_at
        told = self._told.get(partition)
        if told is not None and told[0] > sent:
            first, left = min(first, told[1]), False
        self._known[partition] = (first, self._clock.elapsed_s(), left)

    def first(self) -> int:
        """The first time of all that are known."""
        return min((due_at for due_at, *_ in self._known.values()), default=NEVER)

    def due(self, partitions: Sequence[int], now_ms: int, *, at_once: bool) -> list[int]:
        """The partitions to look at now: something is due there or too little is known. `at_once`: also where a look has just
        left behind what it did not need."""
        elapsed = self._clock.elapsed_s()
        asked = []
        for partition in partitions:
            known = self._known.get(partition)
            if (
                known is None
                or known[1] < elapsed - BELIEVED_S
                or (known[0] <= now_ms and (at_once or not known[2] or known[1] <= elapsed - AGAIN_S))
            ):
                asked.append(partition)
        return asked

    def unsure(self, partitions: Sequence[int]) -> list[int]:
        """The partitions of which too little is known."""
        since = self._clock.elapsed_s() - BELIEVED_S
        return [each for each in partitions if (known := self._known.get(each)) is None or known[1] < since]

    def first_of(self, partitions: Sequence[int]) -> int:
        """The first time of these partitions, as far as it is known."""
        return min((known[0] for each in partitions if (known := self._known.get(each)) is not None), default=NEVER)

    def forget(self, partitions: Iterable[int]) -> None:
        """Know nothing of these partitions."""
        for partition in partitions:
            self._known.pop(partition, None)
            self._told.pop(partition, None)

    def clear(self) -> None:
        """Know nothing."""
        self._known.clear()
        self._told.clear()
