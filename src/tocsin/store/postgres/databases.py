"""The databases of an installation: one for each shard, each with its four pools, found by partition or by job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tocsin.errors import PartlyUnavailable, ServerUnavailable
from tocsin.model.ids import SLICES, is_job_id, slice_of
from tocsin.store.postgres.connection import HASHED, LOOKED_UP, READING, Address, Connection, Pool
from tocsin.store.postgres.days import Days
from tocsin.store.postgres.migrate import Identity, check_identity
from tocsin.store.postgres.queues import Queues

URGENT, BULK, READS, LISTS = 4, 3, 3, 2  # connections of one process to one database

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Database:
    """One shard: `urgent` for what a worker or the clock waits for, `bulk` for what may wait a moment, `reads` for what the flow looks
    up, `lists` for what people leaf through; and what is known to be in it."""

    def __init__(self, address: Address, identity: Identity) -> None:
        async def check(conn: Connection) -> None:
            await check_identity(conn, address, identity)

        self.address, self.identity, self.shard = address, identity, identity.shard
        self.urgent = Pool(address, "urgent", URGENT, HASHED, check)
        self.bulk = Pool(address, "bulk", BULK, LOOKED_UP, check)
        self.reads = Pool(address, "reads", READS, READING, check)
        self.lists = Pool(address, "lists", LISTS, READING, check)
        for pool in self._pools:
            pool.on_demotion = self._renew
        self.days = Days(self.bulk)
        self.queues = Queues()

    @property
    def _pools(self) -> tuple[Pool, ...]:
        return self.urgent, self.bulk, self.reads, self.lists

    def _renew(self) -> None:
        for pool in self._pools:
            pool.renew()

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(pool.close() for pool in self._pools))


@dataclass(slots=True)
class Databases:
    """All of them, in the order of their partitions. The first is the home database, where the settings live."""

    all: Sequence[Database]
    partitions: int
    _of_slice: list[Database] = field(init=False)

    @property
    def home(self) -> Database:
        """The home database."""
        return self.all[0]

    def __post_init__(self) -> None:
        # Every job of every batch is looked up here.
        self._of_slice = [self.of_partition(part * self.partitions // SLICES) for part in range(SLICES)]

    def of_partition(self, partition: int) -> Database:
        """Where a partition lives."""
        return next(one for one in self.all if one.identity.first <= partition <= one.identity.last)

    def of_job(self, job_id: str) -> Database | None:
        """Where a job lives; None if that is no job's ID."""
        return self._of_slice[slice_of(job_id)] if is_job_id(job_id) else None

    async def spread(
        self,
        items: Sequence[Item],
        where: Callable[[Item], Database | None],
        ask: Callable[[Database, list[Item]], Coroutine[Any, Any, list[Answer]]],
        otherwise: Answer,
    ) -> list[Answer]:
        """Ask each database for its own items, all at once; the answers in the order of the items. `otherwise` answers for what
        lives nowhere. PartlyUnavailable where one cannot be used while another may be."""
        places: dict[int, list[int]] = {}
        for at, item in enumerate(items):
            database = where(item)
            if database is not None:
                places.setdefault(database.shard, []).append(at)
        answers = [otherwise] * len(items)
        asked = [ask(self.all[shard], [items[at] for at in mine]) for shard, mine in places.items()]
        told = await self._told(asked)
        failed: dict[int, ServerUnavailable] = {}
        for (shard, mine), part in zip(places.items(), told, strict=True):
            if isinstance(part, ServerUnavailable):
                failed[shard] = part
                continue
            for at, answer in zip(mine, part, strict=True):
                answers[at] = answer
        if failed:
            raise self._partly(failed, answers, frozenset(at for shard in failed for at in places[shard]))
        return answers

    async def each(self, ask: Callable[[Database], Coroutine[Any, Any, Answer]]) -> list[Answer]:
        """Ask all databases at once. PartlyUnavailable, with the others' answers, where some of several cannot be used."""
        told = await self._told([ask(database) for database in self.all])
        answers = [part for part in told if not isinstance(part, ServerUnavailable)]
        if failed := {shard: part for shard, part in enumerate(told) if isinstance(part, ServerUnavailable)}:
            raise self._partly(failed, answers)
        return answers

    async def _told(self, asked: Sequence[Coroutine[Any, Any, Answer]]) -> list[Answer | ServerUnavailable]:
        """What these answer, or why they cannot now, unless that is all databases' answer; any other error is raised."""
        told = await asyncio.gather(*asked, return_exceptions=True)
        failed = [answer for answer in told if isinstance(answer, BaseException)]
        for error in failed:
            if not isinstance(error, ServerUnavailable) or len(failed) == len(self.all):
                raise error
        return [
            answer for answer in told if isinstance(answer, ServerUnavailable) or not isinstance(answer, BaseException)
        ]

    def _partly(
        self, failed: dict[int, ServerUnavailable], answers: Sequence[Any], unanswered: frozenset[int] = frozenset()
    ) -> PartlyUnavailable:
        """Why these shards did not answer, which partitions are theirs, and what the others answered."""
        held = [self.all[shard].identity for shard in failed]
        partitions = frozenset(part for one in held for part in range(one.first, one.last + 1))
        return PartlyUnavailable("; ".join(map(str, failed.values())), partitions, answers, unanswered)

    async def close(self) -> None:
        """Close all connections to all databases."""
        await asyncio.gather(*(database.close() for database in self.all))


async def gathered(asked: Sequence[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """What these answer, in order. When one fails the others are waited for and its own error is raised, not a group of errors."""
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
