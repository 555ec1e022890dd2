"""What this process takes of the due sets: one round trip for all due partitions, fair between tenants, the earliest first.

    due partitions (Heads) -> due_take.lua in each -> Basket -> served by each lane's ring -> the pass

The tenants' ring and its debts are this process's own, as the partitions are. A tenant's members lie in many partitions, so
each is asked for its share of some passes, and what is not served now lies in the basket for the next one; Redis counts it as
taken. A tenant is served only up to the first time that some partition still keeps back: where that is in the
way, the pass asks those partitions again, for more each time.

A crash: what was taken and what lies in the basket comes back when its deadline is over, or at once when the next owner begins
the partitions. A process that lives puts it back with its next pass where it could not at once, or has let go of a partition that
was its own again before anybody began it (a session that was not certain for a moment).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tocsin.clock import Clock
from tocsin.errors import NearUnavailable
from tocsin.model.fairness import QUANTUM, DeficitRing
from tocsin.model.partition import partition_of
from tocsin.model.timer import Due
from tocsin.near.redis.basket import Basket
from tocsin.near.redis.heads import NEVER, Heads, look
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.members import due_of
from tocsin.near.redis.scripts import Call, Script, Scripts

LANES = (0, 1)
HAND_MS = 90_000
LISTED = 200
_TRIPS = 8
_MOST_DOUBLED = 4
_AHEAD = 4
MOST_BACK = 1_000
_TAKE, _RETURN = Script("due_take"), Script("due_return")

# (lane, tenant): how many to take of that set in each partition that has some.
Wanted = dict[tuple[int, str], int]


class Taker:
    """Takes what is due. `weights` is shared and read at every turn."""

    def __init__(self, scripts: Scripts, keys: Keys, heads: Heads, clock: Clock, weights: dict[str, float]) -> None:
        self._scripts, self._tags, self._heads, self._clock = scripts, keys.partition_tags, heads, clock
        self._weights = weights
        self._rings = (DeficitRing(weights), DeficitRing(weights))
        self._basket = Basket(len(self._tags))
        self._passed_over = 0
        self._unheard: dict[int, int] = {}
        self._asked: frozenset[int] = frozenset()
        # Partitions of which something may be taken that is neither in the basket nor in a pass.
        self._owed: set[int] = set()

    async def take(self, partitions: Sequence[int], now_ms: int, most: int) -> list[Due]:
        """Up to `most` members whose time has come; see the port."""
        self._own(partitions)
        if owed := self._owed.intersection(partitions):
            self._basket.forget(owed)
            await self.return_taken(sorted(owed))
        taken: list[Due] = []
        wanted = self._wish(most, most, 0, LANES)
        asked = self._heads.due(partitions, now_ms, at_once=not wanted)
        for trip in range(_TRIPS):
            if asked:
                try:
                    await self._fetch(asked, wanted, now_ms, 0 if wanted else most)
                except NearUnavailable:
                    if taken:
                        break
                    raise
            for lane in LANES:
                for tenant in self._basket.tenants(lane, now_ms):
                    self._rings[lane].join(tenant)
                if self._serve(lane, now_ms, most, taken):
                    break
            else:
                break
            if len(taken) >= most:
                break
            wanted = self._wish(most, most - len(taken), trip, (lane,))
            asked = sorted({each for set_ in wanted for each in self._basket.behind(*set_)})
        return taken

    async def next_due(self, partitions: Sequence[int]) -> int | None:
        """The earliest waiting time, the basket's included. Asking is no claim to them: who asks for other partitions than passes
        take of here is answered by a look, and what is known and lies ready stays as it is."""
        own = frozenset(partitions) == self._asked
        looked = self._heads.unsure(partitions) if own else list(partitions)
        first = NEVER
        if looked:
            sent = self._heads.sending()
            found = await look(self._scripts, [self._tags[each] for each in looked])
            for partition, (head, _) in zip(looked, found, strict=True):
                if own:
                    self._heads.learn(partition, head, sent)
                elif head is not None:
                    first = min(first, head)
        if own:
            first = self._heads.first_of(partitions)
        first = min(first, self._basket.first(frozenset(partitions)))
        return first if first < NEVER else None

    async def wait(self, timeout_s: float) -> None:
        """Sleep until a new earliest member is offered, at most `timeout_s`."""
        earlier = self._heads.earlier
        await self._clock.wait(earlier, timeout_s)
        earlier.clear()

    def wake(self) -> None:
        """End the wait."""
        self._heads.earlier.set()

    async def return_taken(self, partitions: Sequence[int]) -> None:
        """Whatever anybody has taken of these partitions is due again at once."""
        left = list(partitions)
        while left:
            counts = await self._scripts.run([Call(_RETURN, self._tags[each], (MOST_BACK,)) for each in left])
            left = [each for each, count in zip(left, counts, strict=True) if count]
        self._owed.difference_update(partitions)
        self._heads.forget(partitions)

    def owe(self, partitions: Iterable[int]) -> None:
        """What was taken of these partitions could not be put back: the next pass that asks for them does it."""
        self._owed.update(partitions)

    def forget(self, partitions: Iterable[int]) -> None:
        """Keep nothing of these partitions here; what lies in the basket comes back for their next owner."""
        self.owe(partition_of(due[1], len(self._tags)) for due in self._basket.forget(partitions))
        self._heads.forget(partitions)

    def discard(self, job_ids: Sequence[str]) -> list[Due]:
        """Members that were taken and not yet served are not served any more; the caller drops them."""
        return self._basket.discard(job_ids)

    def clear(self) -> None:
        """What is here is of an epoch that is over."""
        self._basket = Basket(len(self._tags))
        self._owed.clear()
        self._unheard.clear()
        self._heads.clear()

    # inside

    def _own(self, partitions: Sequence[int]) -> None:
        """These are the partitions of this process now."""
        asked = frozenset(partitions)
        if asked != self._asked:
            self.forget(self._asked - asked)
            self._asked = asked
            self._heads.own(asked)

    def _serve(self, lane: int, now_ms: int, most: int, taken: list[Due]) -> bool:
        """Serve the lane's ring from the basket. True: the pass is full, or somebody's members must be fetched first."""
        ring, basket = self._rings[lane], self._basket
        while len(taken) < most:
            turn = ring.turn()
            if turn is None:
                return False
            tenant, allowed = turn
            asked = most - len(taken)
            if len(ring) > 1:
                asked = min(allowed, asked)
            got, more = basket.serve(lane, tenant, asked, now_ms)
            taken += got
            blocked = len(got) < asked and more
            ring.done(tenant, min(len(got), allowed), dry=len(got) < asked and not more)
            if blocked:
                return True
        return True

    def _wish(self, most: int, need: int, trip: int, lanes: Sequence[int]) -> Wanted:
        """What the ring's next turns need beyond the basket, for some passes ahead, as far as it is known who has something.

        Of many sources a tenant's members come in order only as far as the one that is furthest behind has told, so each
        further trip of a pass asks for twice as many."""
        wanted: Wanted = {}
        doubled = min(trip, _MOST_DOUBLED)
        for lane in lanes:
            ring, left = self._rings[lane], most * _AHEAD
            for at, tenant in enumerate(ring):
                if left <= 0:
                    break
                turn = left if len(ring) == 1 else min(left, max(1, int(QUANTUM * self._weights.get(tenant, 1.0))))
                left -= turn
                sources = len(self._basket.behind(lane, tenant))
                if sources == 1 == len(ring):
                    # Nothing to merge: no more than what is served at once.
                    turn = need
                elif sources > 1:
                    turn <<= doubled
                missing = turn - self._basket.count(lane, tenant)
                if sources and (missing > 0 or at == 0):
                    # From each source its share and a quarter; of the first one, at least what it waits for.
                    wanted[lane, tenant] = max(1, missing if sources == 1 else missing * 5 // (4 * sources) + 1)
        return wanted

    async def _fetch(self, partitions: Sequence[int], wanted: Wanted, now_ms: int, whatever: int) -> None:
        """Take what is wanted, or `whatever` is due, of these partitions; learn who has more."""
        share = -(-whatever // len(partitions)) if len(partitions) == 1 else -(-whatever * 5 // (4 * len(partitions)))
        sets = [part for (lane, tenant), count in wanted.items() for part in (lane, tenant, count)]
        deadline = now_ms + HAND_MS
        calls = [
            Call(
                _TAKE,
                self._tags[each],
                (now_ms, deadline, share, LISTED, self._passed_over, self._unheard.get(each, ""), *sets),
            )
            for each in partitions
        ]
        sent = self._heads.sending()
        try:
            answers = await self._scripts.run(calls)
        except NearUnavailable:
            # It may have been carried out: the next call puts back what was taken with that deadline and went unheard.
            self._unheard.update(dict.fromkeys(partitions, deadline))
            raise
        for each in partitions:
            self._unheard.pop(each, None)
        longest = 0
        for partition, (first, members, *lists) in zip(partitions, answers, strict=True):
            self._heads.learn(partition, int(first) if first else None, sent, left=any(lists))
            self._basket.put(partition, _members(members))
            for lane, listed in zip(LANES, lists, strict=True):
                times = {tenant: int(time) for tenant, time in zip(listed[::2], listed[1::2], strict=True)}
                self._basket.learn(partition, lane, times)
                longest = max(longest, len(times))
        # More tenants are due than one list names: the next pass hears of the next ones.
        self._passed_over = self._passed_over + LISTED if longest >= LISTED else 0


def _members(flat: Sequence[Any]) -> list[Due]:
    return [due_of(job_id, text) for job_id, text in zip(flat[::2], flat[1::2], strict=True)]
