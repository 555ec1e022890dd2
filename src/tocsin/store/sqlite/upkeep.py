"""Upkeep in the writer's slack: void timers, finished jobs and skips past their retention, expired idempotency keys.

Each of these walks its table in key order, in small slices between other people's commits, and remembers where it was, so
that what must stay is not read again at every call. A crash leaves the slices that were committed; a restart walks anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tocsin.model.ids import id_bound
from tocsin.store.port import TimerKind
from tocsin.store.sqlite import keys, occurrences, timers
from tocsin.store.sqlite.requests import RAISES, Kind
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import Work, json_text
from tocsin.store.sqlite.writer import Writer

SLICE_ROWS = 500
MOST_SLICES = 40

_NEXT_FINISHED = block("upkeep", "next_finished")
_OLD_DEAD = block("upkeep", "old_dead")
_DELETE_FINISHED = block("upkeep", "delete_finished")
_DELETE_ATTEMPTS = block("upkeep", "delete_attempts")
_DELETE_BODIES = block("upkeep", "delete_bodies")
_DELETE_JOBS = block("jobs", "delete")
_SKIPS_BOUND = block("skips", "old_bound")
_DELETE_SKIPS = block("skips", "delete_old")
_DEAD = msgspec.json.Decoder(list[tuple[int, str]])
_FINISHED = msgspec.json.Decoder(list[tuple[int, str, int]])

_SkipKey = tuple[int, int, str]
_LEAST = -(2**63)
_FIRST_SKIP: _SkipKey = (_LEAST, _LEAST, "")
_LAST_SKIP: _SkipKey = (2**63 - 1, 2**63 - 1, "~")


def _run(work: Work, slices: Sequence[Callable[[Work], Any]]) -> list[Any]:
    return [one(work) for one in slices]


SLICE: Kind[Callable[[Work], Any], Any] = Kind("upkeep", 5, _run, RAISES, 100_000, batch=1, weight=SLICE_ROWS)


class Upkeep:
    """The three sweeps of one open file."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._finished_after = ""
        self._keys_after = 0
        self._skips_after: _SkipKey = _FIRST_SKIP
        self._void_after: dict[tuple[int, TimerKind], tuple[int, timers.Key]] = {}

    async def sweep_void(self, partition: int, kind: TimerKind, last_bucket: int, limit: int) -> int:
        """Delete up to `limit` void timers; how many went. Looks at 20,000 timers at most, so that a flood of good ones holds
        nothing up; the next call goes on from there."""
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

    async def archive(self, finished_before: int, limit: int) -> int:
        """Delete up to `limit` jobs that finished before, and dead letters likewise; looks at 20,000 finished ones, and at as
        many skips."""
        deleted, begun_at, slices = 0, self._finished_after, 0
        while deleted < limit and slices < MOST_SLICES:
            rows, slices = min(SLICE_ROWS, limit - deleted), slices + 1
            gone, after = await self._slice(_archive_finished, finished_before, self._finished_after, rows)
            deleted += gone
            self._finished_after = after or ""
            if after is None:  # at the end: once more from the beginning, up to where this call began
                if not begun_at:
                    break
                begun_at = ""
        while deleted < limit:
            rows = min(SLICE_ROWS, limit - deleted)
            gone = await self._slice(_archive_dead, finished_before, rows)
            deleted += gone
            if gone < rows:
                break
        await self._archive_skips(finished_before)
        return deleted

    async def _archive_skips(self, recorded_before: int) -> None:
        for _ in range(MOST_SLICES):
            after: _SkipKey | None = await self._slice(_archive_skips, recorded_before, self._skips_after, SLICE_ROWS)
            self._skips_after = after or _FIRST_SKIP
            if after is None:
                return

    async def sweep_keys(self, limit: int) -> int:
        """Delete up to `limit` expired idempotency records whose job has ended; looks at 20,000."""
        deleted, begun_at, slices = 0, self._keys_after, 0
        while deleted < limit and slices < MOST_SLICES:
            rows, slices = min(SLICE_ROWS, limit - deleted), slices + 1
            gone, after = await self._slice(keys.sweep, self._keys_after, rows)
            deleted += gone
            self._keys_after = after or 0
            if after is None:
                if not begun_at:
                    break
                begun_at = 0
        return deleted

    async def _slice(self, act: Callable[..., Any], *values: Any) -> Any:
        return (await self._writer.submit(SLICE, [lambda work: act(work, *values)]))[0]


def _archive_finished(work: Work, before: int, after: str, rows: int) -> tuple[int, str | None]:
    page = _FINISHED.decode(work.row(_NEXT_FINISHED, after, id_bound(before), rows)[0])
    old = [(queue_id, job_id) for queue_id, job_id, finished_at in page if finished_at < before]
    _delete(work, old, _DELETE_FINISHED)
    return len(old), page[-1][1] if len(page) == rows else None


def _archive_dead(work: Work, before: int, rows: int) -> int:
    old = _DEAD.decode(work.row(_OLD_DEAD, before, rows)[0])
    _delete(work, old, _DELETE_JOBS)
    return len(old)


def _archive_skips(work: Work, before: int, after: _SkipKey, rows: int) -> _SkipKey | None:
    bound: _SkipKey | None = work.row(_SKIPS_BOUND, *after, rows - 1)
    work.write(_DELETE_SKIPS, before, *after, *(bound or _LAST_SKIP))
    return bound


def _delete(work: Work, jobs: list[tuple[int, str]], row: str) -> None:
    """Delete jobs with all that hangs on them; the row itself last."""
    if jobs:
        ids = json_text([job_id for _, job_id in jobs])
        work.write(_DELETE_ATTEMPTS, ids)
        occurrences.forget(work, jobs)
        work.write(_DELETE_BODIES, json_text(jobs))
        work.write(row, ids)
