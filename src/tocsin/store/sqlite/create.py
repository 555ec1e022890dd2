"""Create: idempotency record, body, timer and job of new jobs (§5, stage *accept*).

IDs are given before the first try, so a commit of unknown outcome may be repeated: a job that is there already, even a
finished one, answers CREATED and nothing is written. A batch is first written as if nothing of it were there; only when a
row turns out to exist is that taken back and each key and ID looked up. A crash before the commit leaves nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from tocsin.model.partition import partition_of
from tocsin.store import codes
from tocsin.store.numbers import number_of
from tocsin.store.port import Created, Made, NewJob
from tocsin.store.sqlite import occurrences
from tocsin.store.sqlite.keys import answer_keys, bind_all, bind_new
from tocsin.store.sqlite.statements import Many, block
from tocsin.store.sqlite.work import Work, json_text

_BODIES = Many("jobs", "add_bodies")
_JOBS = Many("jobs", "add", shared=1)
_SCHEDULES_JOBS = Many("jobs", "add_of_schedule", shared=1)
_TIMERS = Many("timers", "add_fire", shared=1)
_KNOWN = block("jobs", "known_bodies")
_NAMES = msgspec.json.Decoder(list[str])
_JOB_ID = attrgetter("job_id")


def create(work: Work, jobs: Sequence[NewJob]) -> list[Created]:
    """Create the jobs that are not there yet."""
    keyed = [job for job in jobs if job.key is not None]
    if (not keyed or bind_new(work, keyed)) and insert(work, jobs):
        return [Created(Made.CREATED, job.job_id) for job in jobs]
    work.undo()
    answers, missing = answer_keys(work, jobs)
    bind_all(work, [job for job in missing if job.key is not None])
    if not insert(work, fresh(work, missing)):
        raise ValueError("a job's ID is in use in another queue")
    return answers


def fresh(work: Work, jobs: Sequence[NewJob]) -> list[NewJob]:
    """Those that are not there yet, each once."""
    pairs = [(work.lines.ids(job.line).queue_id, job.job_id) for job in jobs]
    known = set(_NAMES.decode(work.row(_KNOWN, json_text(pairs))[0])) | occurrences.known(work, jobs)
    return list({job.job_id: job for job in reversed(jobs) if job.job_id not in known}.values())


def insert(work: Work, jobs: Sequence[NewJob]) -> bool:
    """Write bodies, timers and jobs; False if one was there already, and then nothing of it may stay."""
    bodies, rows, timers = [], [], []
    listed, schedules_rows = [], []
    ids_of, partitions = work.lines.ids, work.partitions
    # In key order: random order costs up to four times as much. IDs begin with their time, so this is nearly an append.
    for job in sorted(jobs, key=_JOB_ID):
        job_id, fire_at, definition = job.job_id, job.fire_at, job.definition
        line_id, queue_id, tenant_id, lane = ids_of(job.line)
        status = codes.QUEUED if job.queued else codes.SCHEDULED
        bodies.append((queue_id, job_id, definition))
        row = (job_id, queue_id, line_id, job.priority, status, fire_at, job.expires_at, job.timeout_ms)
        if job.schedule_id is None:
            rows.append(row)
        else:
            number = number_of(job.schedule_id)
            listed.append((number, job_id))
            schedules_rows.append((*row, number))
        timers.append((partition_of(job_id, partitions), lane, tenant_id, fire_at, job_id))
    timers.sort()
    if _BODIES.run(work.conn, bodies) != len(bodies) or occurrences.add(work, listed) != len(listed):
        return False
    _TIMERS.run(work.conn, timers, work.now)
    made = _JOBS.run(work.conn, rows, work.now) + _SCHEDULES_JOBS.run(work.conn, schedules_rows, work.now)
    return made == len(jobs)
