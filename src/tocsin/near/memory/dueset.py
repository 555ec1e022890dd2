"""One tenant's due set in one lane: a calendar of short slots, sorted only when their time comes.

    slots   members further on, by slot, unsorted but for their first, which is the slot's earliest
    front   the members of the slots that have been opened, sorted; `at` is how far it has been taken
    late    a heap of members that came for a slot that was open already

A heap alone would compare each member some fifteen times on its way out; here a slot is sorted once, in C, and taken in
slices. Entries whose member is gone (see `DueSets`) are passed over, and swept out when they outnumber the others.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from operator import itemgetter

from tocsin.model.ids import is_schedules
from tocsin.model.timer import Due, TimerKey

SLOT_SHIFT = 7  # slots of 128 ms
NEVER = 1 << 62
_SWEEP_AT = 1_000
# Sorting by the time alone is five times as fast as comparing members, and keeps those of one instant in their order of coming.
_TIME = itemgetter(0)
_TIME_AND_ID = itemgetter(0, 1)


class CutEnd:
    """Where a partition's part of the set ends: it accepts times under `end`, or anything while it is `reading`.

    `from_time` and `after` are where the loader reads on. Of the millisecond `from_time` some members may be here and others
    not, so it is read again; offers are idempotent.
    """

    __slots__ = ("after", "end", "from_time", "reading", "token")

    def __init__(self, end: int, from_time: int, after: TimerKey | None, token: int) -> None:
        self.end = end
        self.from_time = from_time
        self.after = after
        self.token = token
        self.reading = False


class DueSet:
    """Members in order of their time. `alarm` is when `DueSets` looks here next; -1 while the tenant is in the ring."""

    __slots__ = ("alarm", "at", "count", "cuts", "front", "gone", "lane", "late", "opened", "order", "slots", "tenant")

    def __init__(self, lane: int, tenant: str) -> None:
        self.lane = lane
        self.tenant = tenant
        self.count = 0
        self.gone = 0
        self.alarm = NEVER
        self.slots: dict[int, list[Due]] = {}
        self.order: list[int] = []
        self.opened = -1
        self.front: list[Due] = []
        self.at = 0
        self.late: list[Due] = []
        self.cuts: dict[int, CutEnd] = {}

    def place(self, due: Due) -> None:
        """Put a member at its time (`DueSets.offer` has the same steps inline)."""
        slot = due[0] >> SLOT_SHIFT
        if slot <= self.opened:
            heappush(self.late, due)
            return
        members = self.slots.get(slot)
        if members is None:
            self.slots[slot] = [due]
            heappush(self.order, slot)
        else:
            members.append(due)
            if due < members[0]:
                members[0], members[-1] = due, members[0]

    def take(self, now_ms: int, most: int, held: dict[str, Due], hand: dict[str, Due]) -> list[Due]:
        """The earliest members due by `now_ms`, moved from `held` to `hand`. Fewer than `most`: no more are due."""
        taken: list[Due] = []
        while len(taken) < most:
            chunk = self._next(now_ms, most - len(taken))
            if not chunk:
                break
            if self.gone:
                chunk = self._living(chunk, held)
            for due in chunk:
                job_id = due[1]
                held.pop(job_id, None)
                hand[job_id] = due
            taken += chunk
        self.count -= len(taken)
        return taken

    def head(self, held: dict[str, Due]) -> int:
        """The earliest member's time, NEVER if there is none."""
        front, late = self.front, self.late
        at, end = self.at, len(front)
        while at < end and held.get(front[at][1]) is not front[at]:
            at += 1
            self.gone -= 1
        self.at = at
        while late and held.get(late[0][1]) is not late[0]:
            heappop(late)
            self.gone -= 1
        if at < end:
            return min(front[at], late[0])[0] if late else front[at][0]
        if late:
            return late[0][0]
        while self.order:
            members = self.slots[self.order[0]]
            if held.get(members[0][1]) is members[0]:
                return members[0][0]
            living = [due for due in members if held.get(due[1]) is due]
            self.gone -= len(members) - len(living)
            if living:
                first = min(range(len(living)), key=living.__getitem__)
                living[0], living[first] = living[first], living[0]
                self.slots[self.order[0]] = living
            else:
                del self.slots[heappop(self.order)]
        return NEVER

    def lost_one(self, held: dict[str, Due]) -> None:
        """A member has left `held`; its entry stays until it is passed over or swept out."""
        self.count -= 1
        self.gone += 1
        if self.gone > self.count + _SWEEP_AT:
            self._sweep(held)

    def trim(self, limit: int, held: dict[str, Due]) -> list[Due]:
        """Keep the earliest `limit` members; answers the others."""
        if self.gone:
            self._sweep(held)
        near = sorted(self.front[self.at :] + self.late, key=_TIME)
        cut_off = near[limit:]
        self.front, self.at, self.late = near[:limit], 0, []
        room = limit - len(self.front)
        for slot in sorted(self.slots):
            members = self.slots[slot]
            if len(members) <= room:
                room -= len(members)
                continue
            members.sort(key=_TIME)
            cut_off += members[room:]
            if room:
                self.slots[slot] = members[:room]
                room = 0
            else:
                del self.slots[slot]
        self.order = sorted(self.slots)
        self.count -= len(cut_off)
        return cut_off

    # cuts

    def accepts(self, due_at: int, partition: int) -> bool:
        """Whether an offer is before the partition's cut, or the loader is reading on there just now."""
        cut = self.cuts.get(partition)
        return cut is None or cut.reading or due_at < cut.end

    def cut_before(self, partition: int, time: int, token: int) -> None:
        """Members from `time` on are not all here any more. A reading of the loader's that is under way is void."""
        cut = self.cuts.get(partition)
        if cut is None or time < cut.end:
            self.cuts[partition] = CutEnd(time, time, None, token)
        elif cut.reading:
            self.cuts[partition] = CutEnd(cut.end, cut.from_time, cut.after, token)

    def cut_behind(self, partition: int, time: int, after: TimerKey | None, token: int) -> None:
        """The partition's members are all here up to and including `time`, but for those behind the store's key `after`."""
        self.cuts[partition] = CutEnd(time + 1, time, after, token)

    # inside

    def _next(self, now_ms: int, most: int) -> list[Due]:
        """The next entries in order that are due by `now_ms`, at most `most`, gone ones among them."""
        front, at, late = self.front, self.at, self.late
        if at == len(front) and not (late and late[0][0] <= now_ms):
            if not self._open(now_ms):
                return []
            front, at = self.front, 0
        end = min(at + most, len(front))
        if end > at and front[end - 1][0] > now_ms:
            end = bisect_left(front, (now_ms + 1,), at, end)
        # Each late member that is earlier than the chunk's last takes that one's place.
        came: list[Due] = []
        while late and late[0][0] <= now_ms:
            if end - at + len(came) >= most:
                if end == at or not late[0] < front[end - 1]:
                    break
                end -= 1
            came.append(heappop(late))
        self.at = end
        chunk = front[at:end]
        return sorted(chunk + came, key=_TIME) if came else chunk

    def _living(self, chunk: list[Due], held: dict[str, Due]) -> list[Due]:
        """The entries of a chunk whose member is still here, each member once."""
        living: dict[str, Due] = {due[1]: due for due in chunk if held.get(due[1]) is due}
        self.gone -= len(chunk) - len(living)
        return list(living.values())

    def _open(self, now_ms: int) -> bool:
        """Sort the first slot into `front` if something in it is due; `front` has been taken to its end."""
        if not self.order or self.slots[self.order[0]][0][0] > now_ms:
            return False
        self.opened = heappop(self.order)
        self.front, self.at = self.slots.pop(self.opened), 0
        # Occurrences of one instant are neighbours in the store in the order of their IDs, in which their slices are: taken in that
        # order a batch touches few pages. Other jobs come in the order of their IDs already.
        self.front.sort(key=_TIME_AND_ID if is_schedules(self.front[0][1]) else _TIME)
        return True

    def _sweep(self, held: dict[str, Due]) -> None:
        """Drop the entries whose member is gone, also a member's second entry (it left and came back)."""
        seen: set[str] = set()

        def living(dues: list[Due]) -> list[Due]:
            kept = []
            for due in dues:
                if held.get(due[1]) is due and due[1] not in seen:
                    seen.add(due[1])
                    kept.append(due)
            return kept

        self.front, self.at = living(self.front[self.at :]), 0
        self.late = living(self.late)
        heapify(self.late)
        for slot in list(self.slots):
            kept = living(self.slots[slot])
            if kept:
                first = min(range(len(kept)), key=kept.__getitem__)
                kept[0], kept[first] = kept[first], kept[0]
                self.slots[slot] = kept
            else:
                del self.slots[slot]
        self.order = sorted(self.slots)
        self.gone = 0
