"""Heartbeat: a lease is renewed where the attempt is still held (§5, stage *heartbeat*)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.store import codes
from tocsin.store.port import Beat, Beaten, NotYours
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import Look, Work, in_rounds, json_text

# No lease goes further past an attempt's timeout than this: the worker ends the attempt itself, and says so.
GRACE_MS = 10_000

_THESE = block("jobs", "beat_these")
_PROGRESS = block("jobs", "progress")
_FINISHED = block("finished", "known")
_NAMES = msgspec.json.Decoder(list[str])


def heartbeat(work: Work, beats: Sequence[Beat]) -> list[Beaten | NotYours]:
    """lease_until = min(now + lease, claimed_at + timeout + grace) for the attempts that are held."""
    return in_rounds(beats, lambda beat: beat.job_id, lambda part: _beat(work, part))


def _beat(work: Work, beats: Sequence[Beat]) -> list[Beaten | NotYours]:
    looks = work.look([beat.job_id for beat in beats])
    missing = [beat.job_id for beat, look in zip(beats, looks, strict=True) if not look.status]
    ended = set(_NAMES.decode(work.row(_FINISHED, json_text(missing))[0])) if missing else set()
    answers = [_judge(beat, look, work.now, beat.job_id in ended) for beat, look in zip(beats, looks, strict=True)]
    held = [beat for beat, answer in zip(beats, answers, strict=True) if isinstance(answer, Beaten)]
    if held:
        work.write(_THESE, work.now, json_text([beat.job_id for beat in held]), GRACE_MS)
    told = {beat.job_id: beat.progress.decode() for beat in held if beat.progress is not None}
    if told:
        work.write(_PROGRESS, json_text(told))
    return answers


def _judge(beat: Beat, job: Look, now: int, ended: bool) -> Beaten | NotYours:
    if not job.status and not ended:
        return NotYours.UNKNOWN
    if job.status not in (codes.RUNNING, codes.CANCEL_REQUESTED) or job.attempt != beat.attempt:
        return NotYours.SUPERSEDED
    assert job.claimed_at is not None  # CHECK held_under_a_lease
    assert job.lease_ms is not None
    most = job.claimed_at + job.timeout_ms + GRACE_MS
    if now >= most:
        return NotYours.TIMED_OUT
    return Beaten(min(now + job.lease_ms, most), job.lease_ms, job.status == codes.CANCEL_REQUESTED)
