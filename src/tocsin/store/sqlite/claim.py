"""Claim: a QUEUED job becomes RUNNING in a worker's hands (§5, stage *claim*).

The attempt grows, the try is charged, the lease runs from the store's now. A crash after the commit and before the answer
leaves a lease that ends by itself; the same request again is answered by `reclaim`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tocsin.model.job import Line
from tocsin.store import codes
from tocsin.store.sqlite.fire import has_expired, skip_expired
from tocsin.store.sqlite.rows import SEPARATOR
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import Work, in_rounds, json_text

_QUICK = block("jobs", "claim_quick")
_THESE = block("jobs", "claim_these")
_CLAIMED = block("jobs", "claimed")
_DEFINITIONS = block("jobs", "definitions")


class Wanted(NamedTuple):
    """One job that a worker asks for."""

    job_id: str
    worker: str
    lease_ms: int
    recent: str | None = None  # its definition, if that was written a moment ago


class Head(Struct, array_like=True, frozen=True, gc=False):
    """The numbers of a claimed job, as `jobs.claimed` gives them."""

    version: int
    attempt: int
    tries: int
    due_at: int
    lease_until: int
    lease_ms: int
    fire_at: int
    line_id: int
    progress: str | None


# A claimed job as it was read: its numbers, its definition's text, and the lines of its batch by number.
Taken = tuple[Head, str | None, dict[int, Line]]

_HEADS = msgspec.json.Decoder(list[Head])


def claim(work: Work, wanted: Sequence[Wanted]) -> list[Taken | None]:
    """QUEUED -> RUNNING; None: not waiting any more, or expired."""
    if _take(work, wanted, _QUICK) == len(wanted):
        taken = _read(work, wanted)
        if len(taken) == len(wanted):
            return list(taken)
    work.undo()
    return in_rounds(wanted, lambda one: one.job_id, lambda part: _careful(work, part))


def _take(work: Work, wanted: Sequence[Wanted], sql: str) -> int:
    groups: dict[tuple[str, int], list[str]] = {}
    for job_id, worker, lease_ms, _ in wanted:
        groups.setdefault((worker, lease_ms), []).append(job_id)
    return sum(
        work.write(sql, work.now, json_text(ids), worker, lease_ms) for (worker, lease_ms), ids in groups.items()
    )


def _careful(work: Work, wanted: Sequence[Wanted]) -> list[Taken | None]:
    looks = work.look([one.job_id for one in wanted])
    waiting = [look.status == codes.QUEUED for look in looks]
    gone = [waits and has_expired(look, work.now) for waits, look in zip(waiting, looks, strict=True)]
    mine = [one for one, waits, over in zip(wanted, waiting, gone, strict=True) if waits and not over]
    skip_expired(work, [one.job_id for one, over in zip(wanted, gone, strict=True) if over])
    if not mine:
        return [None] * len(wanted)
    _take(work, mine, _THESE)
    taken = _read(work, mine)
    if len(taken) != len(mine):  # a definition that is no JSON: one job at a time, so that only its own claim fails
        taken = [got for one in mine for got in _read(work, [one])]
    got = dict(zip((one.job_id for one in mine), taken, strict=True))
    return [got.get(one.job_id) for one in wanted]


def _read(work: Work, wanted: Sequence[Wanted]) -> list[Taken]:
    """What the claimed jobs are, in their order; none when their definitions cannot be told apart."""
    heads = _HEADS.decode(work.row(_CLAIMED, json_text([one.job_id for one in wanted]))[0])
    if len(heads) != len(wanted):
        return []
    docs = [one.recent if head.version == 1 else None for one, head in zip(wanted, heads, strict=True)]
    missing = [at for at, doc in enumerate(docs) if doc is None]
    if missing:
        joined = work.row(_DEFINITIONS, json_text([wanted[at].job_id for at in missing]), SEPARATOR)[0] or ""
        found = joined.split(SEPARATOR) if len(missing) > 1 else [joined]
        if len(found) != len(missing):
            return []
        for at, doc in zip(missing, found, strict=True):
            docs[at] = doc
    lines = {line_id: work.lines.line(line_id) for line_id in {head.line_id for head in heads}}
    return list(zip(heads, docs, repeat(lines)))
