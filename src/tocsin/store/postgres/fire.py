"""Fire: what falls due becomes QUEUED, once for each version (§5, stage *fire*).

One statement writes all that may be written, each row under its own condition; only what it did not write is looked at and
judged. What changes between the two is tried again. A crash leaves the jobs SCHEDULED with their timers, or QUEUED; then the next
fire of the same member answers ALREADY.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.store import codes
from tocsin.store.port import Due, Fired
from tocsin.store.postgres.group import Again, Work
from tocsin.store.postgres.rows import Look, looks_of
from tocsin.store.postgres.statements import block

_FIRE = block("jobs", "fire")
_LOOK = block("jobs", "look")
_SKIP = block("finished", "skip_expired")
_WAITING = [codes.SCHEDULED, codes.QUEUED, codes.RETRYING]
_TURNS = 3


async def fire(work: Work, dues: Sequence[Due]) -> list[Fired]:
    """SCHEDULED or RETRYING at that version and due -> QUEUED."""
    answers: dict[str, Fired] = {}
    left = sorted(dues, key=lambda due: due.job_id)
    for _ in range(_TURNS):
        answers.update((job_id, Fired.WON) for job_id in await write_fires(work, left, _FIRE))
        left = [due for due in left if due.job_id not in answers]
        if not left:
            return [answers[due.job_id] for due in dues]
        ids = [due.job_id for due in left]
        looks = looks_of(await work.fetch(_LOOK, ids), ids)
        judged = {due.job_id: judge(due, look, work.now) for due, look in zip(left, looks, strict=True)}
        expired = [due for due in left if judged[due.job_id] is Fired.EXPIRED]
        gone = await _skip(work, expired)
        answers.update(
            (job_id, answer)
            for job_id, answer in judged.items()
            if answer in (Fired.VOID, Fired.ALREADY) or job_id in gone
        )
        left = [due for due in left if due.job_id not in answers]
    if left:
        raise Again  # they change as fast as we look
    return [answers[due.job_id] for due in dues]


async def write_fires(work: Work, dues: Sequence[Due], statement: str) -> list[str]:
    """Fire all that may be fired, by `jobs.fire` or `jobs.fire_scheduled`; `dues` are in the order of their jobs. Which have won."""
    if not dues:
        return []
    ids, versions, times = ([due.job_id for due in dues], [due.version for due in dues], [due.due_at for due in dues])
    return [row[0] for row in await work.fetch(statement, work.now, ids, versions, times)]


def judge(due: Due, job: Look, now: int) -> Fired:
    """What a fire of `due` does to a job in that state."""
    if job.version != due.version or job.due_at > due.due_at or job.status not in _WAITING:
        return Fired.VOID
    if job.expires_at is not None and job.attempt == 0 and job.expires_at <= now:
        return Fired.EXPIRED
    return Fired.ALREADY if job.status == codes.QUEUED else Fired.WON


async def _skip(work: Work, dues: Sequence[Due]) -> set[str]:
    if not dues:
        return set()
    ids, versions, times = ([due.job_id for due in dues], [due.version for due in dues], [due.due_at for due in dues])
    await work.database.days.need([work.now])
    return {row[0] for row in await work.fetch(_SKIP, work.now, ids, versions, times, _WAITING)}


async def skip_unclaimed(work: Work, job_ids: Sequence[str]) -> None:
    """Those of these jobs that wait for a worker and have expired become SKIPPED."""
    if job_ids:
        none = [None] * len(job_ids)
        await work.database.days.need([work.now])
        await work.fetch(_SKIP, work.now, sorted(job_ids), none, none, [codes.QUEUED])
