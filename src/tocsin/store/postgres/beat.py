"""Heartbeat: a lease is renewed where the attempt is still held (§5, stage *heartbeat*)."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.store import codes
from tocsin.store.port import Beat, Beaten, NotYours
from tocsin.store.postgres.group import Work
from tocsin.store.postgres.rows import Look, looks_of
from tocsin.store.postgres.statements import block

# No lease goes further past an attempt's timeout than this: the worker ends the attempt itself, and says so.
GRACE_MS = 10_000

_BEAT = block("jobs", "beat")
_LOOK = block("jobs", "look")
_KNOWN = block("finished", "known")


async def heartbeat(work: Work, beats: Sequence[Beat]) -> list[Beaten | NotYours]:
    """lease_until = min(now + lease, claimed_at + timeout + grace) for the attempts that are held."""
    ordered = sorted(beats, key=lambda beat: beat.job_id)
    rows = await work.fetch(
        _BEAT,
        work.now,
        [beat.job_id for beat in ordered],
        [beat.attempt for beat in ordered],
        [beat.progress for beat in ordered],
        GRACE_MS,
    )
    renewed = {row[0]: Beaten(row[1], row[2], row[3] == codes.CANCEL_REQUESTED) for row in rows}
    refused = [beat for beat in ordered if beat.job_id not in renewed]
    why = await _why(work, refused) if refused else {}
    return [renewed.get(beat.job_id) or why[beat.job_id] for beat in beats]


async def _why(work: Work, beats: Sequence[Beat]) -> dict[str, NotYours]:
    ids = [beat.job_id for beat in beats]
    looks = {look.job_id: look for look in looks_of(await work.fetch(_LOOK, ids), ids)}
    missing = [job_id for job_id, look in looks.items() if not look.status]
    ended = {row[0] for row in await work.fetch(_KNOWN, missing)} if missing else set()
    return {beat.job_id: _judge(beat, looks[beat.job_id], beat.job_id in ended) for beat in beats}


def _judge(beat: Beat, job: Look, ended: bool) -> NotYours:
    if not job.status and not ended:
        return NotYours.UNKNOWN
    if job.status not in (codes.RUNNING, codes.CANCEL_REQUESTED) or job.attempt != beat.attempt:
        return NotYours.SUPERSEDED
    return NotYours.TIMED_OUT
