"""Skips: why an occurrence of a schedule did not run. (Those of jobs that expire are written by `finished.skip_expired`.)

A skip is kept only while its schedule is there. Who writes one holds the schedule's row (`FOR KEY SHARE`, which moves of the row
do not wait for) until the commit, so that a deletion in another process comes either before it, and then it is not written, or
behind it, and then deletes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.store.numbers import number_of
from tocsin.store.postgres.group import Work
from tocsin.store.postgres.rows import columns, storable
from tocsin.store.postgres.statements import block
from tocsin.store.schedules import SkipRow

_STANDING = block("skips", "standing")
_PUT = block("skips", "put")


async def add_skips(work: Work, skips: Sequence[SkipRow]) -> list[None]:
    """Write skips by themselves."""
    async with work.transaction():
        await put_skips(work, skips)
    return [None] * len(skips)


async def put_skips(work: Work, skips: Sequence[SkipRow]) -> None:
    """Inside a transaction: write skips; the later of two with the same key stands."""
    if not skips:
        return
    rows = {(number_of(skip.schedule_id), skip.first, skip.reason): skip for skip in skips}
    standing = {number for (number,) in await work.fetch(_STANDING, sorted({number for number, _, _ in rows}))}
    kept = [
        (*key, one.last, one.count, one.recorded_at, storable(one.detail))
        for key, one in sorted(rows.items())
        if key[0] in standing
    ]
    await work.fetch(_PUT, *columns(kept, 7))
