"""Fire: what falls due becomes QUEUED, once per version (§5, stage *fire*).

Nearly always every member of a batch wins, so the batch is first written as if that were so, one statement per version;
only when fewer rows than members changed is that taken back and each member judged. A crash before the commit leaves the
jobs SCHEDULED with their timers; after it, the next fire of the same member answers ALREADY.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.store import codes
from tocsin.store.port import Due, Fired
from tocsin.store.sqlite import occurrences
from tocsin.store.sqlite.statements import block
from tocsin.store.sqlite.work import Look, Work, in_rounds, json_text

_QUICK = block("jobs", "fire_quick")
_EARLIER = block("jobs", "due_earlier")
_THESE = block("jobs", "fire_these")
_SKIP = block("finished", "skip_expired")
_DELETE = block("jobs", "delete")


def fire(work: Work, dues: Sequence[Due]) -> list[Fired]:
    """SCHEDULED or RETRYING at that version and due -> QUEUED."""
    if all_fire(work, dues, _QUICK):
        return [Fired.WON] * len(dues)
    work.undo()
    return in_rounds(dues, lambda due: due.job_id, lambda part: _careful(work, part))


def all_fire(work: Work, dues: Sequence[Due], statement: str) -> bool:
    """Write as if all had won, by a statement for each version that names the states it leaves from; whether they have. If not,
    nothing of it may stay."""
    by_version: dict[int, dict[str, int]] = {}
    for due in dues:
        by_version.setdefault(due.version, {})[due.job_id] = due.due_at
    won = 0
    for version, members in by_version.items():
        latest, text = max(members.values()), json_text(members)
        if latest != min(members.values()) and work.row(_EARLIER, text)[0]:
            return False
        won += work.write(statement, work.now, text, version, latest)
    return won == len(dues)


def _careful(work: Work, dues: Sequence[Due]) -> list[Fired]:
    looks = work.look([due.job_id for due in dues])
    answers = [judge(due, look, work.now) for due, look in zip(dues, looks, strict=True)]
    won = [due.job_id for due, answer in zip(dues, answers, strict=True) if answer is Fired.WON]
    gone = [due.job_id for due, answer in zip(dues, answers, strict=True) if answer is Fired.EXPIRED]
    if won:
        work.write(_THESE, work.now, json_text(won))
    skip_expired(work, gone)
    return answers


def judge(due: Due, job: Look, now: int) -> Fired:
    """What a fire of `due` does to a job in that state."""
    if job.version != due.version or job.due_at > due.due_at:
        return Fired.VOID
    if job.status not in (codes.SCHEDULED, codes.RETRYING, codes.QUEUED):
        return Fired.VOID
    if has_expired(job, now):
        return Fired.EXPIRED
    return Fired.ALREADY if job.status == codes.QUEUED else Fired.WON


def has_expired(job: Look, now: int) -> bool:
    """Whether a waiting job may not start any more: only before its first attempt."""
    return job.expires_at is not None and job.attempt == 0 and job.expires_at <= now


def skip_expired(work: Work, job_ids: Sequence[str]) -> None:
    """Move these jobs to `finished` as SKIPPED; what a schedule made becomes a skip of it."""
    if job_ids:
        text = json_text(job_ids)
        occurrences.skip_expired(work, text)
        work.write(_SKIP, work.now, text)
        work.write(_DELETE, text)
