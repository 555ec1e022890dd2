"""Upkeep in the writer's slack: void timers, finished jobs past their retention, expired idempotency keys.

Each of these runs in small slices between other people's commits; a crash leaves the slices that were committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tocsin.store.port import TimerKind
from tocsin.store.sqlite import keys, timers
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import Work, json_text
from tocsin.store.sqlite.writer import RAISES, Kind, Writer

SLICE_ROWS = 500
MOST_LOOKED_AT = 20_000

_OLD_FINISHED = block("upkeep", "old_finished")
_OLD_DEAD = block("upkeep", "old_dead")
_DELETE_FINISHED = block("upkeep", "delete_finished")
_DELETE_ATTEMPTS = block("upkeep", "delete_attempts")
_DELETE_BODIES = block("upkeep", "delete_bodies")
_DELETE_JOBS = block("jobs", "delete")
_OLD = msgspec.json.Decoder(list[tuple[int, str]])


def _run(work: Work, slices: Sequence[Callable[[Work], Any]]) -> list[Any]:
    return [one(work) for one in slices]


SLICE: Kind[Callable[[Work], Any], Any] = Kind("upkeep", 5, _run, RAISES, 100_000, batch=1, weight=SLICE_ROWS)


async def sweep_void(writer: Writer, partition: int, kind: TimerKind, last_bucket: int, limit: int) -> int:
    """Delete up to `limit` void timers; how many went."""
    deleted, after = 0, timers.FIRST
    while deleted < limit:
        rows, start = min(SLICE_ROWS, limit - deleted), after
        swept: timers.Swept = (
            await writer.submit(
                SLICE, [lambda work: timers.sweep_void(work, partition, kind, last_bucket, start, rows)]
            )
        )[0]
        deleted += swept.deleted
        if swept.after is None:
            break
        after = swept.after
    return deleted


async def archive(writer: Writer, finished_before: int, limit: int) -> int:
    """Delete up to `limit` jobs that finished before, and dead letters likewise."""
    deleted = 0
    while deleted < limit:
        rows = min(SLICE_ROWS, limit - deleted)
        gone = int((await writer.submit(SLICE, [lambda work: _archive(work, finished_before, rows)]))[0])
        deleted += gone
        if gone < rows:
            break
    return deleted


def _archive(work: Work, before: int, rows: int) -> int:
    finished = _OLD.decode(work.row(_OLD_FINISHED, before, rows)[0])
    dead = _OLD.decode(work.row(_OLD_DEAD, before, rows - len(finished))[0])
    for found, delete in ((finished, _DELETE_FINISHED), (dead, _DELETE_JOBS)):
        if found:
            text = json_text([job_id for _, job_id in found])
            work.write(_DELETE_ATTEMPTS, text)
            work.write(_DELETE_BODIES, json_text(found))
            work.write(delete, text)
    return len(finished) + len(dead)


async def sweep_keys(writer: Writer, limit: int) -> int:
    """Delete up to `limit` expired idempotency records whose job has ended."""
    deleted, looked, after = 0, 0, None
    while deleted < limit and looked < MOST_LOOKED_AT:
        rows, start = min(SLICE_ROWS, limit - deleted), after
        seen, gone, after = (await writer.submit(SLICE, [lambda work: keys.sweep(work, start, rows)]))[0]
        deleted += gone
        looked += seen
        if after is None:
            break
    return deleted
