"""Due sets in Redis: members that wait for their time, by partition, lane and tenant, and where sets are cut.

A set belongs to one partition, so all owners together share a tenant's limit out over the partitions; each set keeps at least
`LEAST_LIMIT` members, twice the loader's page, or reading on from a cut would make no progress.

All of it is written by the programs `due_*.lua` and `cut*.lua`, each of which answers its partition's first waiting time: that is
how `Heads` knows when to look again. What they keep is described in `sets.lua`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tocsin.errors import NearUnavailable
from tocsin.model.partition import partition_of
from tocsin.model.timer import Due, TimerKey
from tocsin.near.port import Cut
from tocsin.near.redis.heads import Heads, look
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.members import text_of
from tocsin.near.redis.scripts import Call, Script, Scripts
from tocsin.near.redis.take import Taker

LEAST_LIMIT = 4_000
MOST_SLACK = 2_000
MOST_PER_CALL = 1_000
# In one round trip: a server on a busy machine must have done them long before the connection's time-out.
MOST_OFFERED = 4_000
_OFFER, _DROP, _RESTORE = Script("due_offer"), Script("due_drop"), Script("due_restore")
_REMOVE = Script("due_remove")
_CUTS, _CUT_MOVE = Script("cuts"), Script("cut_move")


class DueSets:
    """All due sets. `limit` is the most that a tenant keeps per lane, shared out over the partitions."""

    def __init__(self, scripts: Scripts, keys: Keys, heads: Heads, taker: Taker, limit: int) -> None:
        self._scripts, self._tags, self._channel = scripts, keys.partition_tags, keys.due_channel
        self._heads, self._taker = heads, taker
        self._limit = max(limit // len(self._tags), min(limit, LEAST_LIMIT))
        self._slack = max(min(self._limit // 4, MOST_SLACK), 1)

    async def offer(self, dues: Sequence[Due]) -> list[Due]:
        """Remember members; answers those that lie behind a cut."""
        if len({due[1] for due in dues}) < len(dues):
            # A program looks once for all of its members: of a job that is offered twice only the newer version counts.
            newest: dict[str, Due] = {}
            for due in dues:
                if (have := newest.get(due[1])) is None or have[2] <= due[2]:
                    newest[due[1]] = due
            dues = list(newest.values())
        refused: set[str] = set()
        for at in range(0, len(dues), MOST_OFFERED):
            calls = self._offers(dues[at : at + MOST_OFFERED])
            answers = await self._scripts.run([call for _, call in calls])
            for (partition, _), answer in zip(calls, answers, strict=True):
                self._heads.offered(partition, _time(answer[0]))
                refused.update(answer[1:])
        return [due for due in dues if due[1] in refused] if refused else []

    async def drop(self, dues: Sequence[Due]) -> None:
        """Forget members up to the version that was taken."""
        await self._by_partition(_DROP, ((due[1], (due[1], due[2])) for due in dues))

    async def restore(self, dues: Sequence[Due]) -> None:
        """Put members back that are still taken; if that cannot be done now, the next pass does it."""
        try:
            await self._by_partition(_RESTORE, ((due[1], (due[1],)) for due in dues))
        except NearUnavailable:
            self._taker.owe(partition_of(due[1], len(self._tags)) for due in dues)
            raise

    async def remove(self, job_ids: Sequence[str]) -> None:
        """Forget waiting members, also those that this process has taken ahead of their turn."""
        if ahead := self._taker.discard(job_ids):
            await self.drop(ahead)
        await self._by_partition(_REMOVE, ((job_id, (job_id,)) for job_id in job_ids))

    async def count(self, partitions: Sequence[int]) -> int:
        """How many members there are, taken ones included."""
        return sum(count for _, count in await look(self._scripts, [self._tags[each] for each in partitions]))

    # cuts

    async def cuts(self, partitions: Sequence[int]) -> list[Cut]:
        """The cut sets that can take more, the earliest cut first; they accept offers behind it until `move_cut`."""
        answers = await self._scripts.run([Call(_CUTS, self._tags[each], (self._limit,)) for each in partitions])
        found = [
            _cut(partition, *four)
            for partition, answer in zip(partitions, answers, strict=True)
            for four in zip(answer[::4], answer[1::4], answer[2::4], answer[3::4], strict=True)
        ]
        found.sort(key=lambda cut: cut.from_time)
        return found

    async def move_cut(self, cut: Cut, from_time: int | None, after: TimerKey | None) -> None:
        """The loader has read on, unless the set was trimmed meanwhile."""
        name = f"{int(cut.lane)}:{cut.tenant}"
        end = "" if from_time is None else str(from_time + 1)
        behind = "" if after is None else json.dumps(after)
        await self._scripts.run_one(
            _CUT_MOVE, self._tags[cut.partition], name, str(cut.token), end, str(from_time), behind
        )

    # inside

    def _offers(self, dues: Sequence[Due]) -> list[tuple[int, Call]]:
        """(partition, its call) for members of any partitions."""
        partitions = len(self._tags)
        sets: dict[int, dict[tuple[int, str], list[str | int]]] = {}
        for due in dues:
            line = due[3]
            members = sets.setdefault(partition_of(due[1], partitions), {}).setdefault((line[2], line[0]), [])
            members += (due[1], due[0], due[2], text_of(due))
        calls = []
        for partition, by_set in sets.items():
            args: list[str | int] = [self._limit, self._slack, self._channel, partition]
            for (lane, tenant), members in by_set.items():
                args += (int(lane), tenant, len(members) // 4)
                args += members
            calls.append((partition, Call(_OFFER, self._tags[partition], args)))
        return calls

    async def _by_partition(self, script: Script, entries: Iterable[tuple[str, Sequence[str | int]]]) -> None:
        """Run a program for (job, arguments) of each partition, a bounded number at a time; it answers the first waiting time."""
        args: dict[int, list[Sequence[str | int]]] = {}
        for job_id, entry in entries:
            args.setdefault(partition_of(job_id, len(self._tags)), []).append(entry)
        calls = [
            (
                partition,
                Call(
                    script, self._tags[partition], [part for entry in some[at : at + MOST_PER_CALL] for part in entry]
                ),
            )
            for partition, some in args.items()
            for at in range(0, len(some), MOST_PER_CALL)
        ]
        sent = self._heads.sending()
        answers = await self._scripts.run([call for _, call in calls])
        for (partition, _), answer in zip(calls, answers, strict=True):
            self._heads.seen(partition, _time(answer), sent)


def _time(text: str) -> int | None:
    return int(text) if text else None


def _cut(partition: int, name: str, from_time: str, token: Any, after: str) -> Cut:
    lane, tenant = name.split(":", 1)
    key: TimerKey | None = tuple(json.loads(after)) if after else None
    return Cut(
        partition=partition, lane=int(lane), tenant=tenant, from_time=int(from_time), after=key, token=int(token)
    )
