"""Groups: what many requests of this process ask of one database, joined into batches.

    submit ──▶ queue of its kind ──▶ batch (one transaction, or a few) ──▶ answers
               (bounded)             up to two of a kind at once, as many in all as the pool has connections

A batch is whatever queued while the ones before were under way; nobody waits for company. The most urgent kind is served first,
and as no kind may have all connections none is starved. A large request is cut, and what is left of it stands at the end of its
queue again, so that none delays everybody; two parts of one request are never under way at once, so the later sees the earlier.

What goes wrong with an item goes wrong for it alone: the batch is halved until the item stands alone and gets its kind's `refused`.
A deadlock is tried again at once. What goes wrong with the database fails the requests of that batch with `StoreUnavailable`:
nothing is known to have happened, and each may be repeated. A crash leaves whole transactions or nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import asyncpg

from tocsin.clock import Clock
from tocsin.errors import Overloaded, StoreError, StoreUnavailable, TocsinError
from tocsin.store.postgres.connection import Connection, Pool, is_conflict
from tocsin.store.postgres.databases import Database
from tocsin.store.postgres.days import lacks_a_day
from tocsin.store.rounds import rounds_of

log = logging.getLogger("tocsin.store")

PARALLEL = 2
TRIES = 8
FRESH_S = 10.0

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# What a statement raises over the values it was given, as opposed to the state of the database.
_BAD_ITEM = (asyncpg.PostgresError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, AssertionError)


class Raises:
    """Stands for "the request fails" where a kind has no answer for an item that cannot be written."""


RAISES = Raises()


class Again(Exception):
    """Somebody else was first in a way that only a new transaction can see."""


@dataclass(slots=True)
class Work:
    """What a batch works with: a connection of its own, its instant, and how many partitions there are."""

    conn: Connection
    pool: Pool
    database: Database
    partitions: int
    now: int
    clock: Clock

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        """The rows of one statement: a transaction for itself, or a part of the open one."""
        if self.conn.is_in_transaction():
            return list(await self.conn.fetch(sql, *values))
        return await self.pool.ask(self.conn, sql, *values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """One transaction. If it took so long that its instant is old, it is rolled back and tried again with a fresh one."""
        began_s = self.clock.elapsed_s()
        async with self.pool.transaction(self.conn):
            yield
            if self.clock.elapsed_s() - began_s > FRESH_S:
                raise Again


@dataclass(frozen=True, eq=False)
class Kind(Generic[Item, Answer]):
    """A kind of write. `rank` 0 is served first; past `bound` queued items it is refused (None: never); `name_of` names what must
    not stand twice in one call of `run`; `refused` answers for an item that cannot be written."""

    name: str
    rank: int
    run: Callable[[Work, Sequence[Item]], Awaitable[list[Answer]]]
    refused: Any
    bound: int | None
    name_of: Callable[[Item], Hashable] | None = None
    batch: int = 500


@dataclass(eq=False, slots=True)
class _Request:
    """What one caller waits for."""

    items: Sequence[Any]
    done: asyncio.Future[list[Any]]
    answers: list[Any] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Queue:
    """What waits to be written of one kind."""

    kind: Kind[Any, Any]
    requests: deque[_Request] = field(default_factory=deque)
    items: int = 0
    running: int = 0


class Groups:
    """The batches of one pool. `refused_items` counts items that could not be written."""

    def __init__(
        self, pool: Pool, database: Database, clock: Clock, partitions: int, kinds: Sequence[Kind[Any, Any]]
    ) -> None:
        self._pool, self._database, self._clock, self._partitions = pool, database, clock, partitions
        self._queues = {kind: _Queue(kind) for kind in sorted(kinds, key=lambda kind: kind.rank)}
        self._running: set[asyncio.Task[None]] = set()
        self._closing = False
        self.refused_items = 0

    async def submit(self, kind: Kind[Item, Answer], items: Sequence[Item]) -> list[Answer]:
        """Write items durably; their answers, in order."""
        if not items:
            return []
        if self._closing:
            raise StoreUnavailable("the store is closing; ask again when the server is back")
        queue = self._queues[kind]
        if kind.bound is not None and queue.items and queue.items + len(items) > kind.bound:
            raise Overloaded(f"{queue.items} rows wait to be written; try {kind.name} again in a second")
        request = _Request(items, asyncio.get_running_loop().create_future())
        queue.requests.append(request)
        queue.items += len(items)
        self._pump()
        return await request.done

    async def close(self) -> None:
        """Write what is queued, then refuse more."""
        self._closing = True
        while self._running:
            await asyncio.wait(self._running)

    def _pump(self) -> None:
        """Begin as many batches as there is room for, the most urgent first."""
        for queue in self._queues.values():
            while queue.requests and queue.running < PARALLEL and len(self._running) < self._pool.size:
                queue.running += 1
                task = asyncio.create_task(self._serve(queue, self._take(queue)))
                self._running.add(task)
                task.add_done_callback(partial(self._ended, queue))

    def _ended(self, queue: _Queue, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        queue.running -= 1
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed in a way that is no error of ours", queue.kind.name, exc_info=task.exception())
        self._pump()

    def _take(self, queue: _Queue) -> list[tuple[_Request, Sequence[Any]]]:
        parts: list[tuple[_Request, Sequence[Any]]] = []
        room = queue.kind.batch
        while queue.requests and room:
            request = queue.requests.popleft()
            begun = len(request.answers)
            part = request.items[begun : begun + room]
            parts.append((request, part))
            room -= len(part)
        queue.items -= queue.kind.batch - room
        return parts

    async def _serve(self, queue: _Queue, parts: list[tuple[_Request, Sequence[Any]]]) -> None:
        items = [item for _, part in parts for item in part]
        try:
            answers = await self._answers(queue.kind, items)
        except (Exception, asyncio.CancelledError) as exc:
            for request, part in parts:
                queue.items -= len(request.items) - len(request.answers) - len(part)
                _fail(request, exc)
            if not isinstance(exc, TocsinError):
                raise
            return
        at = 0
        for request, part in parts:
            request.answers.extend(answers[at : at + len(part)])
            at += len(part)
            if len(request.answers) < len(request.items):
                queue.requests.append(request)
            else:
                _settle(request)

    async def _answers(self, kind: Kind[Any, Any], items: Sequence[Any]) -> list[Any]:
        """Run items in rounds, so that the later of two that concern the same sees the earlier."""
        rounds = [list(range(len(items)))] if kind.name_of is None else rounds_of(items, kind.name_of)
        if len(rounds) == 1:
            return await self._halved(kind, items)
        answers: dict[int, Any] = {}
        for places in rounds:
            answers.update(zip(places, await self._halved(kind, [items[at] for at in places]), strict=True))
        return [answers[at] for at in range(len(items))]

    async def _halved(self, kind: Kind[Any, Any], items: Sequence[Any]) -> list[Any]:
        """Run items as a batch, halved on error down to the single bad one."""
        try:
            answers = await self._tried(kind, items)
            if len(answers) != len(items):
                raise ValueError(f"{kind.name} gave {len(answers)} answers for {len(items)} items")
            return answers
        except _BAD_ITEM as exc:
            if len(items) == 1:
                self.refused_items += 1
                # No more than its name: the rest may be secret.
                name = getattr(items[0], "job_id", None) or getattr(items[0], "schedule_id", "an item")
                log.error("%s of %a cannot be written and is refused (%s)", kind.name, name, exc)
                return [StoreError(f"the store refused it: {exc}")] if kind.refused is RAISES else [kind.refused]
        half = len(items) // 2
        return await self._halved(kind, items[:half]) + await self._halved(kind, items[half:])

    async def _tried(self, kind: Kind[Any, Any], items: Sequence[Any]) -> list[Any]:
        """Run items; again after a deadlock, and where a day's tables were missing."""
        for _ in range(TRIES):
            try:
                async with self._pool.connection() as conn:
                    work = Work(conn, self._pool, self._database, self._partitions, self._clock.now_ms(), self._clock)
                    return await kind.run(work, items)
            except Again:
                continue
            except asyncpg.PostgresError as exc:
                if lacks_a_day(exc):
                    self._database.days.forget()
                elif not is_conflict(exc):
                    raise
        raise StoreUnavailable(f"{kind.name} met others {TRIES} times over; nothing was done, try again")


class Writers:
    """The writes of one database: the urgent kinds on its urgent connections, the others on those for bulk."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        partitions: int,
        urgent: Sequence[Kind[Any, Any]],
        bulk: Sequence[Kind[Any, Any]],
    ) -> None:
        self.database = database
        self._urgent = Groups(database.urgent, database, clock, partitions, urgent)
        self._bulk = Groups(database.bulk, database, clock, partitions, bulk)
        self._of = dict.fromkeys(urgent, self._urgent) | dict.fromkeys(bulk, self._bulk)

    @property
    def refused_items(self) -> int:
        """How many items could not be written."""
        return self._urgent.refused_items + self._bulk.refused_items

    async def submit(self, kind: Kind[Item, Answer], items: Sequence[Item]) -> list[Answer]:
        """Write items durably; their answers, in order."""
        return await self._of[kind].submit(kind, items)

    async def close(self) -> None:
        """Write what is queued, then refuse more."""
        await asyncio.gather(self._urgent.close(), self._bulk.close())


def _settle(request: _Request) -> None:
    if not request.done.done():
        error = next((answer for answer in request.answers if isinstance(answer, StoreError)), None)
        if error is not None:
            request.done.set_exception(error)
        else:
            request.done.set_result(request.answers)


def _fail(request: _Request, exc: BaseException) -> None:
    if request.done.done():
        return
    if isinstance(exc, TocsinError):
        request.done.set_exception(exc)
    else:
        request.done.set_exception(StoreUnavailable("the store's writer has failed; its log says why"))
