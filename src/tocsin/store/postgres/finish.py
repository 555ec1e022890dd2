"""Complete and change: the end of an attempt, and every other conditional step (§5, stages *complete* and *change*).

A success is one statement: the row leaves `jobs` and stands in `finished`. Other steps lock their jobs in the order of the IDs, are
judged by what is there then, and are written in the same transaction. A crash before the commit leaves the job as it was, and
whoever asked repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.model.job import FINISHED, JobState, encode_definition
from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.port import AttemptRecord, Change, Success
from tocsin.store.postgres.group import Work
from tocsin.store.postgres.rows import Look, columns, ended_row, live_row, looks_of, storable
from tocsin.store.postgres.statements import block
from tocsin.wire import Status

_SUCCEED = block("finished", "succeed")
_LOCK = block("jobs", "lock")
_PUT = block("jobs", "put")
_MOVE = block("finished", "move")
_ATTEMPTS = block("finished", "add_attempts")
_TIMERS = block("timers", "add")


async def succeed(work: Work, reports: Sequence[Success]) -> list[bool]:
    """RUNNING or CANCEL_REQUESTED at that attempt -> SUCCEEDED and finished."""
    await work.database.days.need([work.now])
    ordered = sorted(reports, key=lambda report: report.job_id)
    rows = await work.fetch(
        _SUCCEED,
        work.now,
        [report.job_id for report in ordered],
        [report.attempt for report in ordered],
        [report.result for report in ordered],
        [report.status_code for report in ordered],
        [report.response for report in ordered],
    )
    done = {row[0] for row in rows}
    return [report.job_id in done for report in reports]


async def change(work: Work, changes: Sequence[Change]) -> list[bool]:
    """From exactly the states that were read, to others."""
    await prepare(work, changes)
    async with work.transaction():
        ids = sorted(one.before.job_id for one in changes)
        looks = {look.job_id: look for look in await lock(work, ids)}
        answers = [unchanged(one.before, looks[one.before.job_id]) for one in changes]
        await write_changes(work, [one for one, first in zip(changes, answers, strict=True) if first])
    return answers


async def prepare(work: Work, changes: Sequence[Change]) -> None:
    """Before the transaction: what the tables must have for these."""
    instants = [_finished_at(work, one.after) for one in changes if _ends(one)]
    instants += [one.record.finished_at for one in changes if one.record is not None]
    await work.database.days.need(instants)
    await work.database.queues.need(work.fetch, (one.after.line for one in changes))


async def lock(work: Work, job_ids: Sequence[str]) -> list[Look]:
    """Inside a transaction: the live rows of these jobs as they are and stay; `job_ids` in order, none twice."""
    return looks_of(await work.fetch(_LOCK, list(job_ids)), job_ids)


def unchanged(before: JobState, now: Look) -> bool:
    """Whether a job's row is still what a change was decided on."""
    return (
        codes.STATUS_CODE[before.status] == now.status
        and before.version == now.version
        and before.attempt == now.attempt
        and before.lease_until == now.lease_until
        and before.beaten_at == now.beaten_at
    )


async def write_changes(work: Work, mine: Sequence[Change]) -> None:
    """Inside a transaction: write changes whose jobs are locked and as they were read, no job twice."""
    timers = sorted(_timer_row(work, one.after) for one in mine if one.timer)
    if timers:
        await work.fetch(_TIMERS, work.now, codes.KIND_CODE["fire"], *columns(timers, 6))
    records = sorted(_attempt_row(one.after.job_id, one.record) for one in mine if one.record is not None)
    if records:
        await work.fetch(_ATTEMPTS, *columns(records, 10))
    staying = [live_row(one.after, _new_doc(one)) for one in mine if not _ends(one)]
    if staying:
        await work.fetch(_PUT, *columns(sorted(staying, key=_job_id), 31))
    ended = [ended_row(one.after, _finished_at(work, one.after), _new_doc(one)) for one in mine if _ends(one)]
    if ended:
        await work.fetch(_MOVE, *columns(sorted(ended, key=_job_id), 28))


def _job_id(row: tuple[Any, ...]) -> str:
    return str(row[0])


def _new_doc(one: Change) -> str | None:
    """The definition's text where it is another now."""
    before, after = one.before.definition, one.after.definition
    return None if after is before or after == before else encode_definition(after)


def _ends(one: Change) -> bool:
    return one.after.status in FINISHED or (one.after.status is Status.DEAD and one.gone)


def _finished_at(work: Work, job: JobState) -> int:
    return work.now if job.finished_at is None else job.finished_at


def _timer_row(work: Work, job: JobState) -> tuple[Any, ...]:
    return (
        partition_of(job.job_id, work.partitions),
        job.line.lane,
        job.line.tenant,
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
        storable(record.error),
        record.due_at,
        record.status_code,
        record.response,
    )
