"""Due sets in memory: the members that wait for their time, by lane and tenant, and who is served first.

This process owns all partitions, so a set holds a tenant's members of all of them in one order; only cuts are kept per
partition, because that is how the loader reads on. Two dicts know every member: `_held` those that wait, `_hand` those that
`take` gave out. An entry of a set counts only while `_held` names that very object, so a newer version or a removal costs a
dict write and the old entry is passed over when its time comes.

Which tenants are due is known from a heap of alarms (each set's earliest time): a tenant whose alarm has rung joins its
lane's ring and leaves it when nothing more of it is due. So a pass costs what it takes, however many members and idle
tenants there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from tocsin.clock import Clock
from tocsin.model.fairness import DeficitRing
from tocsin.model.job import Line
from tocsin.model.partition import partition_of
from tocsin.model.timer import Due, TimerKey
from tocsin.near.memory.dueset import NEVER, SLOT_SHIFT, DueSet
from tocsin.near.port import Cut

LANES = (0, 1)
# A pass that died between take and drop gives its members back after one to two such spans.
HAND_S = 60.0
_ALARM_SLACK = 1_000
_NO_SET = DueSet(0, "")


class DueSets:
    """All due sets of this process. `limit` is the most that a tenant keeps per lane."""

    def __init__(self, clock: Clock, partitions: int, weights: dict[str, float], limit: int) -> None:
        self._clock = clock
        self._partitions = partitions
        self._limit = limit
        self._most = limit + max(limit // 4, 1)
        self._held: dict[str, Due] = {}
        self._hand: dict[str, Due] = {}
        self._old_hand: dict[str, Due] = {}
        self._hand_since = clock.elapsed_s()
        self._sets: tuple[dict[str, DueSet], ...] = ({}, {})
        self._rings = (DeficitRing(weights), DeficitRing(weights))
        self._alarms: tuple[list[tuple[int, str]], ...] = ([], [])
        self._tokens = 0
        self.earlier = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held) + len(self._hand) + len(self._old_hand)

    # coming and going

    def offer(self, dues: Sequence[Due]) -> list[Due]:
        """Remember members; answers those that lie behind a cut. One loop without calls: a million pass here a minute."""
        refused: list[Due] = []
        held, in_hand = self._held, bool(self._hand or self._old_hand)
        last: Line | None = None
        chosen, came = _NO_SET, 0
        for due in dues:
            due_at, job_id, version, line, _ = due
            have = held.get(job_id)
            if have is not None:
                if have[2] >= version:
                    continue
                # Counted first and looked up anew after: a set whose last member goes is discarded.
                chosen.count += came
                self._forget_held(have)
                last, chosen, came = None, _NO_SET, 0
            elif in_hand and self._in_hand(job_id, version):
                continue
            if line is not last:
                self._came(chosen, came)
                last, chosen, came = line, self._set(line[2], line[0]), 0
            if chosen.cuts and not chosen.accepts(due_at, partition_of(job_id, self._partitions)):
                refused.append(due)
                continue
            held[job_id] = due
            came += 1
            slot = due_at >> SLOT_SHIFT
            if slot <= chosen.opened:
                heappush(chosen.late, due)
            else:
                members = chosen.slots.get(slot)
                if members is None:
                    chosen.slots[slot] = [due]
                    heappush(chosen.order, slot)
                elif due_at < members[0][0]:
                    members.append(members[0])
                    members[0] = due
                else:
                    members.append(due)
            if due_at < chosen.alarm:
                self._set_alarm(chosen, due_at)
        self._came(chosen, came)
        return refused

    def take(self, partitions: Sequence[int], now_ms: int, most: int) -> list[Due]:
        """Up to `most` members whose time has come; see the port."""
        self._age_hand()
        taken: list[Due] = []
        wanted = frozenset(partitions)
        others: frozenset[int] = frozenset(range(self._partitions)) - wanted
        if not wanted:
            return taken
        for lane in LANES:
            if len(taken) >= most:
                break
            self._ring_alarms(lane, now_ms)
            passed = self._take_lane(lane, now_ms, most, taken, others)
            if passed:
                self._place_all(passed)
        return taken

    def drop(self, dues: Sequence[Due]) -> None:
        """Forget members up to the version that was taken."""
        pop = self._hand.pop
        for due in dues:
            have = pop(due[1], None)
            if have is not due:
                self._drop_other(due, have)

    def restore(self, dues: Sequence[Due]) -> None:
        """Put members back that are still in hand."""
        back = []
        for due in dues:
            have = self._hand.pop(due[1], None) or self._old_hand.pop(due[1], None)
            if have is not None and due[1] not in self._held:
                back.append(have)
        self._place_all(back)

    def remove(self, job_id: str) -> None:
        """Forget a waiting member."""
        have = self._held.get(job_id)
        if have is not None:
            self._forget_held(have)

    def forget(self, partitions: Sequence[int]) -> None:
        """Drop members and cuts of partitions that this process no longer owns."""
        gone = frozenset(partitions)
        for have in [due for due in self._held.values() if partition_of(due[1], self._partitions) in gone]:
            self._forget_held(have)
        for hand in (self._hand, self._old_hand):
            for job_id in [job_id for job_id in hand if partition_of(job_id, self._partitions) in gone]:
                del hand[job_id]
        for lane in LANES:
            for chosen in list(self._sets[lane].values()):
                for partition in gone:
                    chosen.cuts.pop(partition, None)
                self._discard_if_empty(lane, chosen)

    # times

    def next_due(self, partitions: Sequence[int]) -> int | None:
        """The earliest time of a waiting member."""
        wanted = frozenset(partitions)
        if not wanted:
            return None
        if len(wanted) < self._partitions:
            # Not the embedded shape's own way: it asks for all or for none.
            times = [due[0] for due in self._held.values() if partition_of(due[1], self._partitions) in wanted]
            return min(times, default=None)
        earliest = NEVER
        for lane in LANES:
            sets = self._sets[lane]
            for tenant in self._rings[lane]:
                earliest = min(earliest, sets[tenant].head(self._held))
            earliest = min(earliest, self._next_alarm(lane))
        return earliest if earliest < NEVER else None

    # cuts

    def cuts(self, partitions: Sequence[int]) -> list[Cut]:
        """The cut sets that can take more, the earliest cut first; they accept offers behind it until `move_cut`."""
        wanted = frozenset(partitions)
        found = []
        for lane in LANES:
            for chosen in self._sets[lane].values():
                if not chosen.cuts:
                    continue
                has_room, head = chosen.count * 2 < self._limit, chosen.head(self._held)
                for partition, end in chosen.cuts.items():
                    if partition in wanted and (has_room or end.from_time < head):
                        end.reading = True
                        found.append(
                            Cut(
                                partition=partition,
                                lane=lane,
                                tenant=chosen.tenant,
                                from_time=end.from_time,
                                after=end.after,
                                token=end.token,
                            )
                        )
        found.sort(key=lambda cut: cut.from_time)
        return found

    def move_cut(self, cut: Cut, from_time: int | None, after: TimerKey | None) -> None:
        """The loader has read on, unless the set was trimmed meanwhile."""
        chosen = self._sets[cut.lane].get(cut.tenant)
        end = chosen.cuts.get(cut.partition) if chosen is not None else None
        if chosen is None or end is None or end.token != cut.token:
            return
        if from_time is None:
            del chosen.cuts[cut.partition]
            self._discard_if_empty(cut.lane, chosen)
        else:
            chosen.cut_behind(cut.partition, from_time, after, self._token())

    # inside

    def _take_lane(self, lane: int, now_ms: int, most: int, taken: list[Due], others: frozenset[int]) -> list[Due]:
        """Serve the lane's ring until the pass is full; answers members of `others`, which were passed over."""
        ring, sets, held = self._rings[lane], self._sets[lane], self._held
        passed: list[Due] = []
        while len(taken) < most and (turn := ring.turn()) is not None:
            tenant, allowed = turn
            chosen = sets[tenant]
            asked = most - len(taken)
            if len(ring) > 1:
                asked = min(allowed, asked)
            if others:
                hand: dict[str, Due] = {}
                both = chosen.take(now_ms, asked, held, hand)
                dry = len(both) < asked
                passed += [due for due in both if partition_of(due[1], self._partitions) in others]
                got = [due for due in both if partition_of(due[1], self._partitions) not in others]
                self._hand.update({due[1]: due for due in got})
            else:
                got = chosen.take(now_ms, asked, held, self._hand)
                dry = len(got) < asked
            taken += got
            ring.done(tenant, min(len(got), allowed), dry=dry)
            if dry:
                chosen.alarm = NEVER
                head = chosen.head(held)
                if head < NEVER:
                    self._set_alarm(chosen, head, wake=False)
                else:
                    self._discard_if_empty(lane, chosen)
        return passed

    def _came(self, chosen: DueSet, came: int) -> None:
        chosen.count += came
        if came and chosen.alarm < 0:
            # Its tenant is in the ring, so no alarm told the dispatcher, which may be asleep until what was the head then.
            self.earlier.set()
        if chosen.count > self._most:
            self._trim(chosen)

    def _in_hand(self, job_id: str, version: int) -> bool:
        have = self._hand.get(job_id) or self._old_hand.get(job_id)
        return have is not None and have[2] >= version

    def _drop_other(self, due: Due, have: Due | None) -> None:
        """What was in hand (`have`) is not the dropped member itself."""
        job_id, version = due[1], due[2]
        if have is not None and have[2] > version:
            self._hand[job_id] = have
        self._old_hand.pop(job_id, None)
        waiting = self._held.get(job_id)
        if waiting is not None and waiting[2] <= version:
            self._forget_held(waiting)

    def _place_all(self, dues: Sequence[Due]) -> None:
        """Members that were here before go back, whatever the cuts say."""
        for due in dues:
            chosen = self._set(due[3][2], due[3][0])
            self._held[due[1]] = due
            chosen.count += 1
            chosen.place(due)
            if due[0] < chosen.alarm:
                self._set_alarm(chosen, due[0])

    def _forget_held(self, have: Due) -> None:
        del self._held[have[1]]
        lane, tenant = have[3][2], have[3][0]
        chosen = self._sets[lane][tenant]
        chosen.lost_one(self._held)
        if not chosen.count:
            self._discard_if_empty(lane, chosen)

    def _set(self, lane: int, tenant: str) -> DueSet:
        chosen = self._sets[lane].get(tenant)
        if chosen is None:
            chosen = self._sets[lane][tenant] = DueSet(lane, tenant)
        return chosen

    def _discard_if_empty(self, lane: int, chosen: DueSet) -> None:
        if not chosen.count and not chosen.cuts:
            self._sets[lane].pop(chosen.tenant, None)
            self._rings[lane].leave(chosen.tenant)

    def _set_alarm(self, chosen: DueSet, at_ms: int, *, wake: bool = True) -> None:
        """The set's earliest time is now `at_ms`; the alarm set before is void. A tenant in the ring needs none."""
        chosen.alarm = at_ms
        alarms = self._alarms[chosen.lane]
        entry = (at_ms, chosen.tenant)
        heappush(alarms, entry)
        if len(alarms) > 2 * len(self._sets[chosen.lane]) + _ALARM_SLACK:
            alarms[:] = [
                (each.alarm, each.tenant) for each in self._sets[chosen.lane].values() if 0 <= each.alarm < NEVER
            ]
            heapify(alarms)
        if wake and alarms[0] == entry:
            self.earlier.set()

    def _ring_alarms(self, lane: int, now_ms: int) -> None:
        alarms, sets, ring = self._alarms[lane], self._sets[lane], self._rings[lane]
        while alarms and alarms[0][0] <= now_ms:
            at_ms, tenant = heappop(alarms)
            chosen = sets.get(tenant)
            if chosen is not None and chosen.alarm == at_ms:
                # No offer sets an alarm while the tenant is in the ring.
                chosen.alarm = -1
                ring.join(tenant)

    def _next_alarm(self, lane: int) -> int:
        """The first time in the alarms that is true: an alarm may have been for a member that is gone."""
        alarms, sets = self._alarms[lane], self._sets[lane]
        while alarms:
            at_ms, tenant = alarms[0]
            chosen = sets.get(tenant)
            if chosen is None or chosen.alarm != at_ms:
                heappop(alarms)
                continue
            head = chosen.head(self._held)
            if head == at_ms:
                return at_ms
            chosen.alarm = head
            if head == NEVER:
                heappop(alarms)
            else:
                heapreplace(alarms, (head, tenant))
        return NEVER

    def _trim(self, chosen: DueSet) -> None:
        """Keep the set's earliest `limit` members; what goes is behind its partition's cut and stays in its bucket."""
        firsts: dict[int, int] = {}
        for due_at, job_id, *_ in chosen.trim(self._limit, self._held):
            del self._held[job_id]
            partition = partition_of(job_id, self._partitions)
            if due_at < firsts.get(partition, NEVER):
                firsts[partition] = due_at
        for partition, first in firsts.items():
            chosen.cut_before(partition, first, self._token())

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _age_hand(self) -> None:
        elapsed = self._clock.elapsed_s()
        if elapsed - self._hand_since < HAND_S:
            return
        self._hand_since = elapsed
        lost, self._old_hand, self._hand = self._old_hand, self._hand, {}
        self._place_all([due for job_id, due in lost.items() if job_id not in self._held])
