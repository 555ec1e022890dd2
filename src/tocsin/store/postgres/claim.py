"""Claim: a QUEUED job becomes RUNNING in a worker's hands (§5, stage *claim*).

The attempt grows, the try is charged, the lease runs from the claim's now. A crash after the commit and before the answer leaves a
lease that ends by itself; the same request again is answered by `reclaim`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tocsin.model.job import decode_definition
from tocsin.store.port import Claimed
from tocsin.store.postgres.fire import skip_unclaimed
from tocsin.store.postgres.group import Work
from tocsin.store.postgres.rows import line_of
from tocsin.store.postgres.statements import block

_CLAIM = block("jobs", "claim")


class Wanted(NamedTuple):
    """One job that a worker asks for."""

    job_id: str
    worker: str
    lease_ms: int


async def claim(work: Work, wanted: Sequence[Wanted]) -> list[Any]:
    """QUEUED -> RUNNING; the row of each that was got, None where it does not wait any more or has expired."""
    ordered = sorted(wanted)
    ids = [one.job_id for one in ordered]
    rows = await work.fetch(_CLAIM, work.now, ids, [one.worker for one in ordered], [one.lease_ms for one in ordered])
    taken = {row[0]: row for row in rows}
    if len(taken) < len(ids):
        await skip_unclaimed(work, [job_id for job_id in ids if job_id not in taken])
    return [taken.get(one.job_id) for one in wanted]


def claimed(row: Sequence[Any]) -> Claimed:
    """What a claim answers for a row of `jobs.claim`; raises what damaged contents raise."""
    return Claimed(
        job_id=row[0],
        attempt=row[1],
        tries=row[2],
        due_at=row[3],
        lease_until=row[4],
        lease_ms=row[5],
        fire_at=row[6],
        line=line_of(*row[7:13]),
        definition=decode_definition(row[13]),
        progress=row[14],
    )
