"""Callbacks as the executor takes them: of all tenants, in fair order, out of 64 tags in three round trips.

    mark    which tags have callbacks at all (marks.py)
    look    each of these tells which queues have callbacks, how many, and the scores of the first ones
    share   here: tenants by deficit round robin, each tenant's best first over all its queues
    take    each tag hands out what was shared, if it is still there

Two processes may share out the same callbacks at once; then the later one gets the next ones, or fewer, and looks again a few
times if it got none. Where very many queues have callbacks at once, a tag tells only the first few scores of each: a tenant
with queues in several tags then gets its best ones only about in order.

Suspect jobs are handed out alone. Scores of different tenants cannot be compared without giving up fairness, so where a
lane has both kinds, pops take turns between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any

from tocsin.model.fairness import DeficitRing
from tocsin.model.job import ready_score
from tocsin.model.timer import Due
from tocsin.near.port import IN_HAND_MS, REMEMBER_REQUEST_MS, Pop, Popped
from tocsin.near.redis.hands import Hands, attempts_of, dues_of
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.marks import Marked, Marks
from tocsin.near.redis.members import SEPARATOR
from tocsin.near.redis.programs import LineScript, Programs
from tocsin.near.redis.waits import Waits

LANES = (0, 1)
_ASK_MOST = 100
_LOOKS = 3
_LOOK = LineScript("callbacks_look")
_TAKE = LineScript("callbacks_take")


@dataclass(slots=True)
class _Waiting:
    """A tenant's callbacks of one lane, suspect or not, as the tags told: by tag the places, the number, the first scores."""

    number: int = 0
    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    numbers: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    scores: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, tag: str, place: str, number: int, scores: list[int]) -> None:
        if place not in self.places[tag]:
            self.places[tag].append(place)
        self.numbers[tag] += number
        self.scores[tag].append(scores)
        self.number += number

    def first(self) -> int:
        """The best score."""
        return min(scores[0] for lists in self.scores.values() for scores in lists)

    def split(self, wanted: int) -> dict[str, int]:
        """How many of the best `wanted` each tag has; behind the scores that were told, the first tag with more gives them."""
        if len(self.numbers) == 1:
            return dict.fromkeys(self.numbers, wanted)
        shares: dict[str, int] = defaultdict(int)
        told = merge(*([(score, tag) for score in merge(*scores)] for tag, scores in self.scores.items()))
        for _, tag in islice(told, wanted):
            shares[tag] += 1
        for tag, number in self.numbers.items():
            more = min(number - shares[tag], wanted - sum(shares.values()))
            shares[tag] += more
        return shares


@dataclass(frozen=True, slots=True)
class _Share:
    """So many of a tenant's callbacks for this pop."""

    tenant: str
    lane: int
    suspect: bool
    number: int


@dataclass(slots=True)
class _Seen:
    """What all tags told together; `dues` and `attempts` if the request had been answered before."""

    marks: Marked
    busy: list[str] = field(default_factory=list)
    waiting: dict[tuple[int, bool], dict[str, _Waiting]] = field(default_factory=lambda: defaultdict(dict))
    ask: list[tuple[str, str]] = field(default_factory=list)
    dues: list[Due] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    attempts: tuple[tuple[str, int], ...] | None = None


class Callbacks:
    """The executor's pops. Whose turn it is, is this process's own knowledge."""

    def __init__(self, programs: Programs, keys: Keys, hands: Hands, waits: Waits, weights: dict[str, float]) -> None:
        self._programs, self._keys, self._hands, self._waits = programs, keys, hands, waits
        self._marks = Marks(programs, keys)
        self._rings = (DeficitRing(weights), DeficitRing(weights))
        self._suspect_rings = (DeficitRing(weights, 1), DeficitRing(weights, 1))
        self._just_suspect = [False, False]

    async def pop(self, wish: Pop) -> Popped:
        """Take callbacks of all tenants for a request; see the port."""
        ask: tuple[tuple[str, str], ...] = ()
        for _ in range(_LOOKS):
            seen = await self._look(wish)
            if seen.dues:
                self._hands.note(wish.request_id, tuple(seen.held))
                return Popped(dues=seen.dues, again=True)
            if seen.attempts is not None:
                return Popped(dues=[], repeated=True, attempts=tuple(dict.fromkeys(seen.attempts)))
            ask = tuple(seen.ask[:_ASK_MOST])
            shares = self._share(wish.most, seen)
            if not shares:
                if wrong := seen.marks.wrong(seen.busy):
                    await self._programs.run([self._marks.note(wrong)])
                break
            if dues := await self._take(wish, seen, shares):
                return Popped(dues=dues, ask=ask)
        return Popped(dues=[], ask=ask)

    # looking

    async def _look(self, wish: Pop) -> _Seen:
        marks = await self._marks.read(wish.request_id)
        tags = marks.tags
        answers = await self._programs.run(
            [self._programs.call(_LOOK, tag, wish.request_id, wish.most, now_ms=wish.now_ms) for tag in tags]
        )
        await self._waits.wake_callbacks({tag: answer[1] for tag, answer in zip(tags, answers, strict=True)})
        seen = _Seen(marks)
        for tag, (what, _, *rest) in zip(tags, answers, strict=True):
            if what == "HAND":
                seen.dues += dues_of(rest)
                seen.held.append(tag)
            elif what == "ANSWER":
                seen.attempts = (seen.attempts or ()) + attempts_of(rest[0])
            else:
                unknown, *sets = rest
                seen.ask += [_queue_of(place) for place in unknown]
                self._note(seen, tag, sets)
                if unknown or sets:
                    seen.busy.append(tag)
        return seen

    def _note(self, seen: _Seen, tag: str, sets: Sequence[Sequence[Any]]) -> None:
        for place, kind, number, *scores in sets:
            tenants = seen.waiting[int(kind[0]), kind[1] == "1"]
            tenant = _queue_of(place)[0]
            waiting = tenants.get(tenant) or tenants.setdefault(tenant, _Waiting())
            waiting.add(tag, place, number, [int(score) for score in scores])

    # sharing

    def _share(self, most: int, seen: _Seen) -> list[_Share]:
        shares: list[_Share] = []
        for lane in LANES:
            left = most - sum(share.number for share in shares)
            if left <= 0:
                break
            if not shares and not self._just_suspect[lane] and self._share_suspect(lane, seen, shares):
                break
            self._share_ordinary(lane, left, seen, shares)
            self._just_suspect[lane] = False
            if not shares and self._share_suspect(lane, seen, shares):
                break
        return shares

    def _share_ordinary(self, lane: int, most: int, seen: _Seen, shares: list[_Share]) -> None:
        ring = self._rings[lane]
        left = {tenant: waiting.number for tenant, waiting in seen.waiting[lane, False].items()}
        _fit(ring, seen.waiting[lane, False])
        given: dict[str, int] = defaultdict(int)
        while most > 0 and (turn := ring.turn()) is not None:
            tenant, allowed = turn
            asked = min(allowed, most)
            found = min(asked, left[tenant])
            left[tenant] -= found
            given[tenant] += found
            most -= found
            ring.done(tenant, found, dry=found < asked)
        shares += [_Share(tenant, lane, False, number) for tenant, number in given.items() if number]

    def _share_suspect(self, lane: int, seen: _Seen, shares: list[_Share]) -> bool:
        ring = self._suspect_rings[lane]
        _fit(ring, seen.waiting[lane, True])
        turn = ring.turn()
        if turn is None:
            return False
        ring.done(turn[0], 1, dry=False)
        shares.append(_Share(turn[0], lane, True, 1))
        self._just_suspect[lane] = True
        return True

    # taking

    async def _take(self, wish: Pop, seen: _Seen, shares: Sequence[_Share]) -> list[Due]:
        args: dict[str, list[str | int]] = defaultdict(list)
        for share in shares:
            waiting = seen.waiting[share.lane, share.suspect][share.tenant]
            for tag, number in waiting.split(share.number).items():
                if number:
                    places = waiting.places[tag]
                    args[tag] += (share.lane, "1" if share.suspect else "0", number, len(places), *places)
        until = self._programs.steady.now_ms() + IN_HAND_MS
        calls = [
            self._programs.call(_TAKE, tag, wish.request_id, until, *its, now_ms=wish.now_ms)
            for tag, its in args.items()
        ]
        self._hands.note(wish.request_id, tuple(args))
        note = self._marks.note(seen.marks.wrong(seen.busy), wish.request_id, until + REMEMBER_REQUEST_MS, tuple(args))
        _, *answers = await self._programs.run([note, *calls])
        dues = [due for _, _, *flat in answers for due in dues_of(flat)]
        order = {(share.tenant, share.lane): at for at, share in enumerate(shares)}
        return sorted(
            dues,
            key=lambda due: (order[due.line.tenant, due.line.lane], ready_score(due.due_at, due.priority), due.job_id),
        )


def _fit(ring: DeficitRing, waiting: dict[str, _Waiting]) -> None:
    """Only tenants that have something are in the ring; new ones come in the order of their first jobs."""
    for tenant in [tenant for tenant in ring if tenant not in waiting]:
        ring.leave(tenant)
    new = [tenant for tenant in waiting if tenant not in ring]
    for tenant in sorted(new, key=lambda tenant: waiting[tenant].first()):
        ring.join(tenant)


def _queue_of(place: str) -> tuple[str, str]:
    tenant, queue = place.split(SEPARATOR)
    return tenant, queue
