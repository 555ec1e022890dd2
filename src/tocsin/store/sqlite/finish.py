"""Complete and change: the end of an attempt, and every other conditional step (§5, stages *complete* and *change*).

A finished job's row moves from `jobs` to `finished` in one transaction; its body stays where it is. A crash before the commit
leaves the job as it was, and whoever asked repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.model.job import FINISHED, JobState, encode_definition
from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import AttemptRecord, Change, Success
from tocsin.store.sqlite.statements import Many, block
from tocsin.store.sqlite.work import Look, Work, in_rounds, json_text
from tocsin.wire import Status

_PLAIN = block("finished", "succeed_plain")
_TOLD = Many("finished", "succeed_told", shared=1)
_DELETE = block("jobs", "delete")
_PUT = Many("jobs", "put")
_FINISHED = Many("finished", "add")
_ATTEMPTS = Many("finished", "add_attempts")
_TIMERS = Many("timers", "add_fire_version", shared=1)
_SET_BODY = block("jobs", "set_body")
_HELD = (codes.RUNNING, codes.CANCEL_REQUESTED)


def succeed(work: Work, reports: Sequence[Success]) -> list[bool]:
    """RUNNING or CANCEL_REQUESTED at that attempt -> SUCCEEDED and finished."""
    if _move(work, reports) == len(reports):
        return [True] * len(reports)
    work.undo()
    return in_rounds(reports, lambda report: report.job_id, lambda part: _succeed_careful(work, part))


def _move(work: Work, reports: Sequence[Success]) -> int:
    """Move the jobs of these reports to `finished`; how many were held at their attempt."""
    plain: dict[int, list[str]] = {}
    told: list[tuple[Any, ...]] = []
    for report in reports:
        if report.result is None and report.status_code is None and report.response is None:
            plain.setdefault(report.attempt, []).append(report.job_id)
        else:
            told.append(
                (report.job_id, report.attempt, _text(report.result), report.status_code, _text(report.response))
            )
    moved = sum(work.write(_PLAIN, work.now, json_text(ids), attempt) for attempt, ids in plain.items())
    if told:
        moved += _TOLD.run(work.conn, told, work.now)
    if moved == len(reports):
        work.write(_DELETE, json_text([report.job_id for report in reports]))
    return moved


def _succeed_careful(work: Work, reports: Sequence[Success]) -> list[bool]:
    looks = work.look([report.job_id for report in reports])
    answers = [look.status in _HELD and look.attempt == r.attempt for r, look in zip(reports, looks, strict=True)]
    mine = [report for report, held in zip(reports, answers, strict=True) if held]
    if mine and _move(work, mine) != len(mine):
        raise ValueError("a job is held and finished at once")
    return answers


def change(work: Work, changes: Sequence[Change]) -> list[bool]:
    """From exactly the states that were read, to others."""
    return in_rounds(changes, lambda one: one.before.job_id, lambda part: _change(work, part))


def _change(work: Work, changes: Sequence[Change]) -> list[bool]:
    looks = work.look([one.before.job_id for one in changes])
    answers = [unchanged(one.before, look) for one, look in zip(changes, looks, strict=True)]
    write_changes(work, [one for one, first in zip(changes, answers, strict=True) if first])
    return answers


def write_changes(work: Work, mine: Sequence[Change]) -> None:
    """Write changes whose jobs were looked at and are as they were read."""
    _TIMERS.run(work.conn, sorted(_timer_row(work, one.after) for one in mine if one.timer), work.now)
    _ATTEMPTS.run(work.conn, [_attempt_row(one.after.job_id, one.record) for one in mine if one.record is not None])
    for one in mine:
        _write_body(work, one)
    staying = [_job_row(work, one.after) for one in mine if not _ends(one)]
    ended = [one.after for one in mine if _ends(one)]
    if staying:
        _PUT.run(work.conn, sorted(staying, key=lambda row: row[0]))
    if ended:
        _FINISHED.run(work.conn, sorted((_finished_row(work, job) for job in ended), key=lambda row: row[0]))
        work.write(_DELETE, json_text([job.job_id for job in ended]))


def _write_body(work: Work, one: Change) -> None:
    """The definition, where it is another or belongs to another queue now."""
    before, after = one.before, one.after
    defined = after.definition is before.definition or after.definition == before.definition
    if not defined or after.line.queue != before.line.queue:
        was, now = (work.lines.ids(job.line).queue_id for job in (before, after))
        work.write(_SET_BODY, was, after.job_id, encode_definition(after.definition), now)


def unchanged(before: JobState, now: Look) -> bool:
    """Whether a job's row is still what a change was decided on."""
    return (
        codes.STATUS_CODE[before.status] == now.status
        and before.version == now.version
        and before.attempt == now.attempt
        and before.lease_until == now.lease_until
        and before.beaten_at == now.beaten_at
    )


def _ends(one: Change) -> bool:
    return one.after.status in FINISHED or (one.after.status is Status.DEAD and one.gone)


def _timer_row(work: Work, job: JobState) -> tuple[Any, ...]:
    ids = work.lines.ids(job.line)
    return (
        partition_of(job.job_id, work.partitions),
        ids.lane,
        ids.tenant_id,
        job.due_at,
        job.job_id,
        job.version,
    )


def _attempt_row(job_id: str, record: AttemptRecord) -> tuple[Any, ...]:
    return (
        job_id,
        record.attempt,
        record.worker,
        record.claimed_at,
        record.finished_at,
        codes.OUTCOME_CODE[record.outcome],
        record.error,
        record.due_at,
        record.status_code,
        _text(record.response),
    )


def _job_row(work: Work, job: JobState) -> tuple[Any, ...]:
    ids = work.lines.ids(job.line)
    return (
        job.job_id,
        ids.queue_id,
        ids.line_id,
        job.priority,
        codes.STATUS_CODE[job.status],
        job.version,
        job.attempt,
        job.tries,
        job.due_at,
        job.fire_at,
        job.definition.timeout_ms,
        job.expires_at,
        job.queued_at,
        job.started_at,
        job.claimed_at,
        job.lease_until,
        job.lease_ms,
        job.beaten_at,
        job.worker,
        job.losses,
        job.releases,
        job.finished_at,
        None if job.outcome is None else codes.OUTCOME_CODE[job.outcome],
        job.last_error,
        _text(job.progress),
        _schedule(job),
    )


def _schedule(job: JobState) -> int | None:
    """The number of the schedule that a job counts for as unfinished."""
    schedule_id = job.definition.schedule_id
    return None if schedule_id is None or job.status is Status.DEAD else number_of(schedule_id)


def _finished_row(work: Work, job: JobState) -> tuple[Any, ...]:
    ids = work.lines.ids(job.line)
    return (
        job.job_id,
        ids.queue_id,
        ids.line_id,
        job.priority,
        codes.STATUS_CODE[job.status],
        job.version,
        job.attempt,
        job.tries,
        job.due_at,
        job.fire_at,
        job.expires_at,
        job.queued_at,
        job.started_at,
        job.claimed_at,
        job.worker,
        job.losses,
        job.releases,
        work.now if job.finished_at is None else job.finished_at,
        None if job.outcome is None else codes.OUTCOME_CODE[job.outcome],
        job.last_error,
        _text(job.progress),
        _text(job.result),
        None,
        None,
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()
