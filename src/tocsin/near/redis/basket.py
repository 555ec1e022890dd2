"""What this process has taken of the due sets and not yet served, and what it knows to be due behind that.

Members of a lane and tenant are kept in order of time, those of all partitions together. `behind` says from which time on a
partition still keeps members of theirs: what is later in the basket has to wait for those.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter

from tocsin.model.partition import partition_of
from tocsin.model.timer import Due
from tocsin.near.redis.heads import NEVER

_TIME = itemgetter(0)


class Basket:
    """Members in hand by lane and tenant."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._members: tuple[dict[str, list[Due]], ...] = ({}, {})
        self._versions: dict[str, int] = {}
        self._behind: tuple[dict[str, dict[int, int]], ...] = ({}, {})

    def put(self, partition: int, dues: Sequence[Due]) -> None:
        """Members that have been taken just now, each set's in order of time."""
        changed = set()
        for due in dues:
            held = self._versions.get(due[1])
            if held is not None:
                if held >= due[2]:
                    # Its deadline was over while it lay here.
                    continue
                # The job was changed while it lay here: what lies here is void.
                self.discard([due[1]])
            self._versions[due[1]] = due[2]
            line = due[3]
            self._members[line[2]].setdefault(line[0], []).append(due)
            changed.add((line[2], line[0]))
        for lane, tenant in changed:
            # By the time alone: those of one instant stay together by partition, in which the store's pages lie.
            self._members[lane][tenant].sort(key=_TIME)

    def learn(self, partition: int, lane: int, times: dict[str, int]) -> None:
        """Of whom the partition has more that is due, and from when on."""
        behind = self._behind[lane]
        for tenant in [tenant for tenant, sources in behind.items() if partition in sources and tenant not in times]:
            del behind[tenant][partition]
            if not behind[tenant]:
                del behind[tenant]
        for tenant, time in times.items():
            behind.setdefault(tenant, {})[partition] = time

    def behind(self, lane: int, tenant: str) -> Collection[int]:
        """The partitions that have more of a tenant's."""
        return self._behind[lane].get(tenant, ())

    def tenants(self, lane: int, now_ms: int) -> list[str]:
        """Who has something due, here or behind."""
        here = [tenant for tenant, members in self._members[lane].items() if members[0][0] <= now_ms]
        return here + [tenant for tenant in self._behind[lane] if tenant not in self._members[lane]]

    def count(self, lane: int, tenant: str) -> int:
        """How many members of a tenant lie here."""
        return len(self._members[lane].get(tenant, ()))

    def serve(self, lane: int, tenant: str, most: int, now_ms: int) -> tuple[list[Due], bool]:
        """Take out a tenant's earliest members, up to what partitions keep back; and whether one does."""
        members = self._members[lane].get(tenant, [])
        sources = self._behind[lane].get(tenant)
        until = min(now_ms, min(sources.values())) if sources else now_ms
        end = min(most, bisect_right(members, until, key=_TIME))
        got = members[:end]
        if got:
            del members[:end]
            for due in got:
                del self._versions[due[1]]
            if not members:
                del self._members[lane][tenant]
        return got, sources is not None

    def first(self, partitions: frozenset[int]) -> int:
        """The earliest time here, of these partitions."""
        earliest = NEVER
        for by_tenant in self._members:
            for members in by_tenant.values():
                for due in members:
                    if due[0] >= earliest:
                        break
                    if partition_of(due[1], self._partitions) in partitions:
                        earliest = due[0]
                        break
        return earliest

    def discard(self, job_ids: Iterable[str]) -> list[Due]:
        """Take out what lies here of these jobs."""
        gone = self._versions.keys() & set(job_ids)
        return self._take_out(lambda due: due[1] in gone) if gone else []

    def forget(self, partitions: Iterable[int]) -> list[Due]:
        """Take out what is of these partitions."""
        gone = frozenset(partitions)
        for lane in range(len(self._behind)):
            for partition in gone:
                self.learn(partition, lane, {})
        return self._take_out(lambda due: partition_of(due[1], self._partitions) in gone)

    def _take_out(self, which: Callable[[Due], bool]) -> list[Due]:
        out: list[Due] = []
        for by_tenant in self._members:
            for tenant, members in list(by_tenant.items()):
                here = [due for due in members if which(due)]
                if len(here) == len(members):
                    del by_tenant[tenant]
                elif here:
                    by_tenant[tenant] = [due for due in members if not which(due)]
                out += here
        for due in out:
            del self._versions[due[1]]
        return out
