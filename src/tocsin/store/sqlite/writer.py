"""The writer: one thread, one connection, every write of the store in groups that share a commit.

    submit ──▶ queue of its kind ──▶ group: BEGIN ─ batch ─ batch ─ … ─ COMMIT ──▶ answers, all in one call to the loop
               (bounded)                     (each can be undone)

A group is whatever was queued when it began, at most 2,000 rows or 20 ms; nobody waits for company. Kinds are served by
rank, the most urgent first, and upkeep gets at least one batch in ten. Requests of one kind are joined into batches, so that
64 single creates cost little more than one create of 64; large requests are cut, so that none delays everybody.

What goes wrong with an item goes wrong for it alone: the batch is undone and halved until the
item stands alone and gets its kind's `refused`. What goes wrong with the store (disk full, I/O) ends the transaction: each
request's part is tried once more by itself, and those that fail again raise StoreUnavailable; the next group tries afresh, so
the writer recovers by itself. A crash leaves whole groups or nothing: requests answer only after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tocsin.clock import Clock
from tocsin.errors import Overloaded, StoreCorrupt, StoreError, StoreUnavailable, TocsinError
from tocsin.store.sqlite.connection import is_damage, is_outage
from tocsin.store.sqlite.requests import RAISES, Answer, Batch, Item, Kind, Request
from tocsin.store.sqlite.work import Work

log = logging.getLogger("tocsin.store")

GROUP_ROWS = 2_000
GROUP_S = 0.020
UPKEEP_EVERY = 10
MOST_FAILURES = 5

OnStep = Callable[[str], None]

# What a statement raises over the values it was given, as opposed to the state of the store.
_BAD_ITEM = (sqlite3.Error, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, AssertionError)


class Crash(BaseException):
    """Raised by a test's `on_step`: the writer stops as if the process had died there."""


class Writer:
    """The thread that writes. `refused_items` counts items that could not be written."""

    def __init__(
        self,
        work: Work,
        clock: Clock,
        kinds: Sequence[Kind[Any, Any]],
        on_step: OnStep | None = None,
        between: Callable[[sqlite3.Connection, int], None] | None = None,
    ) -> None:
        self._work, self._clock, self._between = work, clock, between
        self._on_step = on_step
        self._loop = asyncio.get_running_loop()
        self._kinds = sorted(kinds, key=lambda kind: kind.rank)
        self._queues: dict[Kind[Any, Any], deque[Request]] = {kind: deque() for kind in self._kinds}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queued = 0
        self._number = 0
        self._stopping = False
        self._dead: TocsinError | None = None
        self._since_upkeep = 0
        self._open: list[Batch] = []
        self.refused_items = 0
        self._thread = threading.Thread(target=self._live, name="tocsin-store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def submit(self, kind: Kind[Item, Answer], items: Sequence[Item]) -> list[Answer]:
        """Write items durably; their answers, in order."""
        if not items:
            return []
        done: asyncio.Future[list[Any]] = self._loop.create_future()
        rows = len(items) * kind.weight
        with self._lock:
            if self._dead is not None:
                raise self._dead
            if self._stopping:
                raise StoreUnavailable("the store is closing; ask again when the server is back")
            if kind.bound is not None and self._queued and self._queued + rows > kind.bound:
                raise Overloaded(f"{self._queued} rows wait to be written; try {kind.name} again in a second")
            self._number += 1
            self._queued += rows
            self._queues[kind].append(Request(kind, items, done, self._number))
            self._wake.notify()
        return await done

    async def stop(self) -> None:
        """Write what is queued, then end the thread."""
        with self._lock:
            self._stopping = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    @property
    def queued(self) -> int:
        """Rows that wait to be written."""
        return self._queued

    # --- the thread

    def _live(self) -> None:
        try:
            while self._wait():
                rows = self._group()
                if self._between is not None:
                    self._between(self._work.conn, rows)
        except Crash:
            self._die(StoreUnavailable("the store's writer has crashed; restart the server"))
        except BaseException:
            self._die(StoreUnavailable("the store's writer has failed; restart the server, its log says why"))
            raise
        finally:
            self._work.conn.close()

    def _wait(self) -> bool:
        with self._wake:
            while not self._queued:
                if self._stopping:
                    return False
                self._wake.wait()
            return True

    def _die(self, error: TocsinError) -> None:
        with self._lock:
            self._dead = error
            waiting = [request for queue in self._queues.values() for request in queue]
            waiting += [request for batch in self._open for request, _ in batch.parts]
        for request in waiting:
            request.error = error
        self._deliver(waiting)

    def _group(self) -> int:
        """Write one group and answer it; how many rows it had."""
        batches = self._open = []
        rows = 0
        error: TocsinError | None = None
        try:
            self._begin()
            started = self._clock.elapsed_s()
            with self._lock:
                last = self._number
            while rows < GROUP_ROWS and (not batches or self._clock.elapsed_s() - started < GROUP_S):
                batch = self._next(last, GROUP_ROWS - rows)
                if batch is None:
                    break
                if batches:
                    self._work.mark()
                batches.append(batch)
                rows += len(batch.items) * batch.kind.weight
                batch.answers = self._answers(batch.kind, batch.items)
                self._step(f"after {batch.kind.name}")
            self._commit()
        except sqlite3.Error as exc:
            error = self._roll_back(exc)
        if error is None:
            self._step("after commit")
            self._deliver([request for batch in batches for request in batch.settle(None)])
        elif not batches:
            self._fail_one_group(error)
        elif isinstance(error, StoreCorrupt):
            self._finish([(batch, error) for batch in batches])
        else:
            self._one_by_one(batches, error)
        self._open = []
        return rows

    def _fail_one_group(self, error: TocsinError) -> None:
        """The transaction did not even begin: whatever would have been in it fails."""
        failed: list[tuple[Batch, TocsinError | None]] = []
        with self._lock:
            last = self._number
        rows = 0
        while rows < GROUP_ROWS:
            batch = self._next(last, GROUP_ROWS - rows)
            if batch is None:
                break
            rows += len(batch.items) * batch.kind.weight
            failed.append((batch, error))
        self._finish(failed)

    def _one_by_one(self, batches: list[Batch], error: TocsinError) -> None:
        """After an error that ended the transaction: each request's part in its own, so that what does not fit holds up
        nothing that does. After a few failures in a row it is the store itself, and the rest fails unasked."""
        results: list[tuple[Batch, TocsinError | None]] = []
        waiting = deque(part for batch in batches for part in batch.split())
        failures = 0
        while waiting:
            part = waiting.popleft()
            if failures < MOST_FAILURES:
                try:
                    self._begin()
                    part.answers = self._answers(part.kind, part.items)
                    self._commit()
                except sqlite3.Error as exc:
                    error = self._roll_back(exc)
                    failures += 1
                else:
                    results.append((part, None))
                    failures = 0
                    continue
            results.append((part, error))
        self._finish(results)

    def _finish(self, results: list[tuple[Batch, TocsinError | None]]) -> None:
        complete = [request for batch, error in results for request in batch.settle(error)]
        with self._lock:
            for request in complete:
                self._withdraw(request)
        self._deliver(complete)

    def _withdraw(self, request: Request) -> None:
        """Take what is left of a failed request out of its queue."""
        left = len(request.items) - request.taken
        if left and request in self._queues[request.kind]:
            self._queues[request.kind].remove(request)
            self._queued -= left * request.kind.weight

    def _next(self, last: int, room: int) -> Batch | None:
        """The next batch in rank order, of requests up to number `last`, of at most `room` rows."""
        with self._lock:
            kinds = self._kinds
            if self._since_upkeep >= UPKEEP_EVERY - 1:
                kinds = [kind for kind in kinds if kind.rank == kinds[-1].rank] + kinds
            for kind in kinds:
                queue = self._queues[kind]
                if not queue or queue[0].number > last:
                    continue
                batch, most = Batch(kind), max(1, min(kind.batch, room // kind.weight))
                while queue and queue[0].number <= last and len(batch.items) < most:
                    request = queue[0]
                    part = request.items[request.taken : request.taken + most - len(batch.items)]
                    batch.items.extend(part)
                    batch.parts.append((request, len(part)))
                    request.taken += len(part)
                    if request.taken == len(request.items):
                        queue.popleft()
                self._queued -= len(batch.items) * kind.weight
                self._since_upkeep = 0 if kind.rank == self._kinds[-1].rank else self._since_upkeep + 1
                return batch
            return None

    def _answers(self, kind: Kind[Any, Any], items: Sequence[Any]) -> list[Any]:
        """Run items as a batch, halved on error down to the single bad one."""
        try:
            answers = kind.run(self._work, items)
            if len(answers) != len(items):
                raise ValueError(f"{kind.name} gave {len(answers)} answers for {len(items)} items")
            return answers
        except _BAD_ITEM as exc:
            if isinstance(exc, sqlite3.Error) and (
                is_outage(exc) or is_damage(exc) or not self._work.conn.in_transaction
            ):
                raise
            self._work.undo()
            if len(items) == 1:
                self.refused_items += 1
                # No more than its name: the rest may be secret.
                name = getattr(items[0], "job_id", None) or getattr(items[0], "schedule_id", "an item")
                log.error("%s of %a cannot be written and is refused (%s)", kind.name, name, exc)
                return [StoreError(f"the store refused it: {exc}")] if kind.refused is RAISES else [kind.refused]
        half = len(items) // 2
        answers = self._answers(kind, items[:half])
        self._work.mark()
        return answers + self._answers(kind, items[half:])

    def _begin(self) -> None:
        self._step("before begin")
        self._work.begin()
        self._work.now = self._clock.now_ms()

    def _commit(self) -> None:
        self._step("before commit")
        self._work.conn.execute("COMMIT")
        self._work.lines.keep()

    def _roll_back(self, exc: sqlite3.Error) -> TocsinError:
        """End what is left of the transaction; how its requests fail."""
        if self._work.conn.in_transaction:
            self._work.conn.rollback()
        self._work.lines.undo()
        if is_damage(exc):
            log.critical("the store is damaged: %s; stop the server and restore the last backup", exc)
            return StoreCorrupt(f"the store is damaged ({exc}); restore the last backup")
        log.error("the store cannot write now: %s; every write is tried again when it is asked for", exc)
        return StoreUnavailable(f"the store cannot write now ({exc}); nothing was done, try again")

    def _step(self, name: str) -> None:
        if self._on_step is not None:
            self._on_step(name)

    def _deliver(self, requests: Sequence[Request]) -> None:
        if not requests:
            return
        try:
            self._loop.call_soon_threadsafe(_settle, requests)
        except RuntimeError:  # the loop is closed: nobody waits any more
            log.warning("%d requests were written after their loop had ended", len(requests))


def _settle(requests: Sequence[Request]) -> None:
    for request in requests:
        if request.done.done():
            continue
        if request.error is not None:
            request.done.set_exception(request.error)
        elif isinstance(request.answers[0], StoreError):
            request.done.set_exception(request.answers[0])
        else:
            request.done.set_result(request.answers)
