"""Upkeep of one database: void timers, finished jobs and skips past their retention, expired idempotency keys, days ahead.

A day of history that is past its retention as a whole is dropped as a table. Of the day that the retention has reached, jobs are
deleted one by one in small slices, but only while its table is small: a large one goes whole, at most a day later, as deleting
its rows would cost as much as writing them did. Every walk goes on from where it was, so that what must stay is not read again at
every call; a restart walks anew. A crash leaves the slices that were committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.clock import Clock
from tocsin.store.port import TimerKind
from tocsin.store.postgres import keys, timers
from tocsin.store.postgres.days import DAY_MS, DayTable, name_of_day
from tocsin.store.postgres.group import RAISES, Kind, Work, Writers
from tocsin.store.postgres.rows import columns
from tocsin.store.postgres.statements import block

SLICE_ROWS = 500
MOST_SLICES = 40
LARGE_BYTES = 32 * 1024 * 1024
# An attempt may have ended days before its job did.
ATTEMPTS_LONGER_MS = 7 * DAY_MS
MOST_COUNTED = 1_000_000

_OLD_FINISHED = block("upkeep", "old_finished")
_COUNT_DAY = block("upkeep", "count_day")
_OCCURRENCES = block("upkeep", "occurrences_of_day")
_OLD_DEAD = block("upkeep", "old_dead")
_DELETE_FINISHED = block("upkeep", "delete_finished")
_DELETE_DEAD = block("upkeep", "delete_dead")
_DELETE_ATTEMPTS = block("upkeep", "delete_attempts")
_DELETE_OCCURRENCES = block("upkeep", "delete_occurrences")
_DELETE_SKIPS = block("upkeep", "delete_old_skips")
_SIZE = block("upkeep", "size")

_SkipKey = tuple[int, int, str]
_FIRST_SKIP: _SkipKey = (-(2**63), -(2**63), "")
_FIRST_KEY = (-(2**63), "", b"")


async def _run(work: Work, slices: Sequence[Any]) -> list[Any]:
    return [await one(work) for one in slices]


SLICE: Kind[Any, Any] = Kind("upkeep", 6, _run, RAISES, 100_000, batch=1)


class Upkeep:
    """The sweeps of one database."""

    def __init__(self, writers: Writers, clock: Clock) -> None:
        self._writers, self._clock = writers, clock
        self._days, self._pool = writers.database.days, writers.database.bulk
        self._keys_after = _FIRST_KEY
        self._skips_after = _FIRST_SKIP
        self._void_after: dict[tuple[int, TimerKind], tuple[int, timers.Key]] = {}

    async def sweep_void(self, partition: int, kind: TimerKind, last_bucket: int, limit: int) -> int:
        """Delete up to `limit` void timers; how many went. Looks at 20,000 timers at most; the next call goes on from there."""
        reached, after = self._void_after.pop((partition, kind), (last_bucket, timers.FIRST))
        if reached != last_bucket:
            after = timers.FIRST
        deleted, slices = 0, 0
        while deleted < limit and slices < MOST_SLICES:
            rows, slices = min(SLICE_ROWS, limit - deleted), slices + 1
            swept: timers.Swept = await self._slice(timers.sweep_void, partition, kind, last_bucket, after, rows)
            deleted += swept.deleted
            if swept.after is None:
                return deleted
            after = swept.after
        self._void_after[(partition, kind)] = (last_bucket, after)
        return deleted

    async def sweep_keys(self, limit: int) -> int:
        """Delete up to `limit` expired idempotency records whose job has ended; looks at 20,000."""
        deleted, slices = 0, 0
        while deleted < limit and slices < MOST_SLICES:
            rows, slices = min(SLICE_ROWS, limit - deleted), slices + 1
            gone, after = await self._slice(keys.sweep, self._keys_after, rows)
            deleted += gone
            self._keys_after = after or _FIRST_KEY
            if after is None:
                break
        return deleted

    async def archive(self, finished_before: int, limit: int) -> int:
        """Make the days to come; drop whole days that are over; delete up to `limit` jobs of the day that the retention has reached,
        and dead letters likewise, and skips. Jobs of a whole day are counted up to a million."""
        await self._days.ahead(self._clock.now_ms())
        deleted = 0
        for table in await self._days.found():
            if deleted < limit and table.ends_at <= finished_before:
                deleted += await self._drop(table, finished_before)
        if await self._small(finished_before):
            deleted += await self._delete(_archive_finished, finished_before, limit - deleted)
        deleted += await self._delete(_archive_dead, finished_before, limit - deleted)
        await self._archive_skips(finished_before)
        return deleted

    async def _drop(self, table: DayTable, finished_before: int) -> int:
        """Drop a whole day; how many jobs went with it."""
        if table.parent == "attempts":
            if table.ends_at + ATTEMPTS_LONGER_MS <= finished_before:
                await self._days.drop(table)
            return 0
        bounds = (table.day * DAY_MS, table.ends_at)
        count = int((await self._pool.fetch(_COUNT_DAY, *bounds, MOST_COUNTED))[0][0])
        after = ""
        while page := await self._pool.fetch(_OCCURRENCES, *bounds, after, SLICE_ROWS):
            await self._pool.fetch(_DELETE_OCCURRENCES, *columns(sorted((row[1], row[0]) for row in page), 2))
            after = page[-1][0]
        await self._days.drop(table)
        return count

    async def _small(self, finished_before: int) -> bool:
        """Whether the table of the day that the retention has reached is so small that its rows may go one by one."""
        name = name_of_day("finished", finished_before // DAY_MS)
        return int((await self._pool.fetch(_SIZE, name))[0][0]) < LARGE_BYTES

    async def _delete(self, act: Any, finished_before: int, limit: int) -> int:
        deleted = 0
        while deleted < limit:
            rows = min(SLICE_ROWS, limit - deleted)
            gone = await self._slice(act, finished_before, rows)
            deleted += gone
            if gone < rows:
                break
        return deleted

    async def _archive_skips(self, recorded_before: int) -> None:
        for _ in range(MOST_SLICES):
            after: _SkipKey | None = await self._slice(_archive_skips, recorded_before, self._skips_after)
            self._skips_after = after or _FIRST_SKIP
            if after is None:
                return

    async def _slice(self, act: Any, *values: Any) -> Any:
        return (await self._writers.submit(SLICE, [lambda work: act(work, *values)]))[0]


async def _archive_finished(work: Work, before: int, rows: int) -> int:
    return await _delete_jobs(work, await work.fetch(_OLD_FINISHED, before, rows), _DELETE_FINISHED, before)


async def _archive_dead(work: Work, before: int, rows: int) -> int:
    return await _delete_jobs(work, await work.fetch(_OLD_DEAD, before, rows), _DELETE_DEAD, before)


async def _delete_jobs(work: Work, old: Sequence[Any], delete: str, before: int) -> int:
    """Delete jobs that ended before an instant, with all that hangs on them; how many there still were."""
    if not old:
        return 0
    async with work.transaction():
        gone = await work.fetch(delete, sorted(row[0] for row in old), before)
        await work.fetch(_DELETE_ATTEMPTS, sorted(row[0] for row in gone))
        made = sorted((row[1], row[0]) for row in gone if row[1] is not None)
        if made:
            await work.fetch(_DELETE_OCCURRENCES, *columns(made, 2))
    return len(old)


async def _archive_skips(work: Work, before: int, after: _SkipKey) -> _SkipKey | None:
    found = await work.fetch(_DELETE_SKIPS, before, *after, SLICE_ROWS)
    if not found or found[0][3] < SLICE_ROWS:
        return None
    schedule, first, reason, _ = found[0]
    return schedule, first, reason
