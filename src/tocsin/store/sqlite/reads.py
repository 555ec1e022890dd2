"""The readers: a few read-only connections, each query bounded to two seconds, and what they are asked.

A reader sees whole commits. What must be read in the writer's own order (the recheck's timers) first waits for the writer to
pass: every later commit takes its time after that, so nothing can still arrive in a bucket that is old by then.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import LifoQueue
from sqlite3 import Connection
from typing import TypeVar

import msgspec

from tocsin.clock import Clock
from tocsin.errors import Overloaded, StoreCorrupt, StoreUnavailable
from tocsin.model.job import JobState, Line
from tocsin.store import codes
from tocsin.store.port import AttemptRecord, Due, Parked
from tocsin.store.sqlite.connection import is_damage, open_reader
from tocsin.store.sqlite.lines import LineNames, find_line, queue_name
from tocsin.store.sqlite.rows import DAMAGE, SEPARATOR, Unreadable, job_state, split
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import json_text
from tocsin.wire import Status

READ_S = 2.0
READERS = 3
MOST_WAITING = 1_000
_COUNT_ROWS = 50_000

_STATES = block("reads", "states")
_ATTEMPTS = block("reads", "attempts")
_COUNTS = block("reads", "counts")
_COUNTS_BOUND = block("reads", "counts_bound")
_FLOORS = block("timers", "floors")
_PARKED = block("parking", "of_line")
_PARKED_LINES = block("parking", "lines")
_COUNT = msgspec.json.Decoder(list[tuple[int, int, int]])
_PARKED_ROWS = msgspec.json.Decoder(list[tuple[int, str, int, int, int]])

Result = TypeVar("Result")


class Readers:
    """The pool. `names` and `unreadable` are shared by all readers."""

    def __init__(self, path: Path, clock: Clock, *, readers: int = READERS, read_s: float = READ_S) -> None:
        self._path, self._clock, self._read_s = path, clock, read_s
        self._pool = ThreadPoolExecutor(readers, "tocsin-store-reader")
        self._idle: LifoQueue[Connection] = LifoQueue()
        self._until = threading.local()
        self._all: list[Connection] = []
        self._waiting = 0
        self.names = LineNames()
        self.unreadable = Unreadable()

    async def run(self, read: Callable[[Connection], Result]) -> Result:
        """Run `read` on a connection of the pool, in one snapshot."""
        if self._waiting >= MOST_WAITING:
            raise Overloaded(f"{self._waiting} reads wait already; try again in a second")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, read)
        except RuntimeError as exc:
            raise StoreUnavailable("the store is closed; ask again when the server is back") from exc
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let running reads end and close the connections."""
        self._pool.shutdown(wait=True)
        for conn in self._all:
            conn.close()

    def line(self, conn: Connection) -> Callable[[int], Line]:
        """How this connection finds a line by its number."""
        return lambda line_id: self.names.line(conn, line_id)

    def _read(self, read: Callable[[Connection], Result]) -> Result:
        self._until.at = self._clock.elapsed_s() + self._read_s
        conn: Connection | None = None
        try:
            conn = self._connection()
            conn.execute("BEGIN")
            try:
                return read(conn)
            finally:
                conn.rollback()
        except sqlite3.Error as exc:
            if is_damage(exc):
                raise StoreCorrupt(f"the store is damaged ({exc}); restore the last backup") from exc
            if getattr(exc, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise StoreUnavailable(f"the read took longer than {self._read_s:g} s; ask for less") from exc
            raise StoreUnavailable(f"the store cannot be read now ({exc}); try again") from exc
        finally:
            if conn is not None:
                self._idle.put(conn)

    def _connection(self) -> Connection:
        if self._idle.empty():
            conn = open_reader(self._path, self._expired)
            self._all.append(conn)
            return conn
        return self._idle.get()

    def _expired(self) -> bool:
        return bool(self._clock.elapsed_s() >= self._until.at)


def states(readers: Readers, job_ids: Sequence[str]) -> Callable[[Connection], list[JobState | None]]:
    """The jobs as they are, live or finished."""

    def read(conn: Connection) -> list[JobState | None]:
        return _states(readers, conn, list(job_ids))

    return read


def _states(readers: Readers, conn: Connection, job_ids: list[str]) -> list[JobState | None]:
    if not job_ids:
        return []
    joined, docs = conn.execute(_STATES, (SEPARATOR, json_text(job_ids))).fetchone()
    records, bodies = split(joined), split(docs)
    if len(records) != len(job_ids) or len(bodies) != len(job_ids):
        if len(job_ids) == 1:
            readers.unreadable.note(job_ids[0], ValueError("its definition is no JSON"))
            return [None]
        return [state for job_id in job_ids for state in _states(readers, conn, [job_id])]
    line = readers.line(conn)
    return [job_state(record, doc, line, readers.unreadable) for record, doc in zip(records, bodies, strict=True)]


def reclaim(
    readers: Readers, jobs: Sequence[tuple[str, int]], worker: str
) -> Callable[[Connection], list[JobState | None]]:
    """The jobs that `worker` still holds at these attempts."""

    def read(conn: Connection) -> list[JobState | None]:
        found = _states(readers, conn, [job_id for job_id, _ in jobs])
        return [
            job
            if job is not None
            and job.attempt == attempt
            and job.worker == worker
            and job.status in (Status.RUNNING, Status.CANCEL_REQUESTED)
            else None
            for job, (_, attempt) in zip(found, jobs, strict=True)
        ]

    return read


def attempts(readers: Readers, job_id: str) -> Callable[[Connection], list[AttemptRecord]]:
    """The ended attempts of a job, oldest first."""

    def read(conn: Connection) -> list[AttemptRecord]:
        records: list[AttemptRecord] = []
        for row in conn.execute(_ATTEMPTS, (job_id,)).fetchall():
            number, worker, claimed_at, finished_at, outcome, error, due_at, status_code, response = row
            if outcome not in codes.OUTCOME:
                readers.unreadable.note(job_id, LookupError(f"attempt {number} has outcome {outcome}"))
                continue
            records.append(
                AttemptRecord(
                    attempt=number,
                    worker=worker,
                    claimed_at=claimed_at,
                    finished_at=finished_at,
                    outcome=codes.OUTCOME[outcome],
                    error=error,
                    due_at=due_at,
                    status_code=status_code,
                    response=None if response is None else response.encode(),
                )
            )
        return records

    return read


def floors(conn: Connection) -> dict[int, int]:
    """Per partition the oldest bucket that has not been rechecked."""
    return dict(conn.execute(_FLOORS).fetchall())


def parked_lines(readers: Readers, partition: int) -> Callable[[Connection], dict[Line, int]]:
    """Which lines have parked jobs, and how many."""

    def read(conn: Connection) -> dict[Line, int]:
        return {line: count for line, _, count in _parked_lines(readers, conn, partition)}

    return read


def parked(readers: Readers, partition: int, line: Line | None, limit: int) -> Callable[[Connection], list[Parked]]:
    """The first parked jobs of a line, or of all, by score."""

    def read(conn: Connection) -> list[Parked]:
        if line is None:
            lines = [(name, line_id) for name, line_id, _ in _parked_lines(readers, conn, partition)]
        else:
            known = find_line(conn, line)
            lines = [] if known is None else [(line, known)]
        found: list[Parked] = []
        for name, line_id in lines:
            page = conn.execute(_PARKED, (partition, line_id, limit)).fetchone()[0]
            found += [
                Parked(due=Due(due_at, job_id, version, name, priority), score=score)
                for due_at, job_id, version, priority, score in _PARKED_ROWS.decode(page)
            ]
        found.sort(key=lambda one: (one.score, one.due.job_id, one.due.version))
        return found[:limit]

    return read


def _parked_lines(readers: Readers, conn: Connection, partition: int) -> list[tuple[Line, int, int]]:
    found: list[tuple[Line, int, int]] = []
    for line_id, count in conn.execute(_PARKED_LINES, (partition,)).fetchall():
        try:
            found.append((readers.names.line(conn, line_id), line_id, count))
        except DAMAGE as exc:
            readers.unreadable.note(f"{count} parked jobs", exc)
    return found


def count_slice(
    readers: Readers, after: str
) -> Callable[[Connection], tuple[dict[tuple[str, str, Status], int], str | None]]:
    """Count the next live jobs beyond an ID by tenant, queue and status; and where to go on (None: at the end)."""

    def read(conn: Connection) -> tuple[dict[tuple[str, str, Status], int], str | None]:
        bound = conn.execute(_COUNTS_BOUND, (after, _COUNT_ROWS - 1)).fetchone()
        last = bound[0] if bound is not None else None
        counts: dict[tuple[str, str, Status], int] = {}
        page = conn.execute(_COUNTS, (after, last if last is not None else "~")).fetchone()[0]
        for queue_id, status, count in _COUNT.decode(page):
            try:
                counts[(*queue_name(conn, queue_id), codes.STATUS[status])] = count
            except DAMAGE as exc:
                readers.unreadable.note(f"{count} jobs", exc)
        return counts, last

    return read
