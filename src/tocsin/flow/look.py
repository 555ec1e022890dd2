"""Look: what a job is, was and went through. Reads only."""

from __future__ import annotations

from tocsin import wire
from tocsin.clock import rfc3339
from tocsin.errors import Refused
from tocsin.model.job import HELD, JobState
from tocsin.store.port import AttemptRecord, DeadFilter, JobFilter, JobPage, JobStore


class Reader:
    """Reads jobs for their owners; another tenant's job does not exist."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def get(self, tenant: str, job_id: str) -> JobState:
        """A job, live or finished; Refused 404."""
        job = (await self._store.states([job_id]))[0]
        if job is None or job.line.tenant != tenant:
            raise not_found(job_id)
        return job

    async def attempts(self, tenant: str, job_id: str) -> list[wire.Attempt]:
        """Every attempt, oldest first, the running one included; Refused 404."""
        job = await self.get(tenant, job_id)
        shown = [_ended(record) for record in await self._store.attempts(job_id)]
        if job.status in HELD and job.claimed_at is not None and all(a.attempt != job.attempt for a in shown):
            shown.append(
                wire.Attempt(
                    attempt=job.attempt,
                    worker=job.worker,
                    claimed_at=rfc3339(job.claimed_at),
                    finished_at=None,
                    outcome=None,
                    error=None,
                    lateness_s=(job.claimed_at - job.due_at) / 1000,
                )
            )
        return shown

    async def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        """Jobs newest first."""
        return await self._store.list_jobs(wanted, after, limit)

    async def dead(
        self, tenant: str, queue: str, after: tuple[int, str] | None, limit: int
    ) -> tuple[list[JobState], tuple[int, str] | None]:
        """Dead letters of a queue, newest death first, and where to go on."""
        found = await self._store.list_dead(DeadFilter(tenant=tenant, queue=queue), after, limit)
        if len(found) < limit:
            return found, None
        return found, (found[-1].finished_at or 0, found[-1].job_id)


def not_found(job_id: str) -> Refused:
    """The problem of a job that is not there, or another tenant's."""
    return Refused(404, "not-found", "Not found", f"there is no job {job_id[:64]}")


def _ended(record: AttemptRecord) -> wire.Attempt:
    return wire.Attempt(
        attempt=record.attempt,
        worker=record.worker,
        claimed_at=rfc3339(record.claimed_at),
        finished_at=rfc3339(record.finished_at),
        outcome=record.outcome.value,
        error=record.error,
        lateness_s=(record.claimed_at - record.due_at) / 1000,
        status_code=record.status_code,
        response=wire.raw(record.response),
    )
