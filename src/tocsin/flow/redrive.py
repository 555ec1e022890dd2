"""Redrive and discard: what becomes of dead letters, chosen by their owners.

A redrive gives a job all its tries back and clears its suspicion; the new timers are spread by the asked rate, so that a repaired
endpoint is not pushed over; none is further ahead than a job may be. The order of writes is that of every change: timer at
version+1, then the job. A crash in the middle leaves some jobs redriven and the rest dead; the call may be repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from tocsin import telemetry, wire
from tocsin.clock import Clock, ms_of
from tocsin.flow.admit import HORIZON_MS, invalid
from tocsin.flow.horizon import Horizon, due_of
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.model.ids import is_job_id
from tocsin.model.job import JobState, Status
from tocsin.near.port import NearTier
from tocsin.store.port import Change, DeadFilter, JobStore

BATCH = 500


class Redriver:
    """Gives dead letters another life, or ends them."""

    def __init__(self, store: JobStore, near: NearTier, tally: Tally, clock: Clock) -> None:
        self._store, self._horizon = store, Horizon(near, clock)
        self._tally, self._clock = tally, clock

    async def redrive(self, tenant: str, queue: str, body: wire.Redrive) -> wire.Redriven:
        """DEAD -> RETRYING for up to `max` matching dead letters, newest first."""
        wanted = _filter(tenant, queue, body)
        matched = await self._store.count_dead(wanted)
        if body.dry_run:
            return wire.Redriven(matched=matched, redriven=0)
        now = self._clock.now_ms()
        gap_ms = 0.0 if body.rate_per_s is None else min(1000 / body.rate_per_s, HORIZON_MS)
        redriven = 0
        async for batch in self._batches(wanted, body.max):
            changes = [
                Change(
                    before=job, after=_revived(job, now + round(min((redriven + n) * gap_ms, HORIZON_MS))), timer=True
                )
                for n, job in enumerate(batch)
            ]
            won = await self._store.change(changes)
            done = [change for change, ok in zip(changes, won, strict=True) if ok]
            await told("redriven", self._horizon.offer([due_of(change.after) for change in done]))
            for change in done:
                self._tally.revived(change.after.line)
            telemetry.REDRIVEN.inc(len(done))
            redriven += len(done)
        return wire.Redriven(matched=matched, redriven=redriven)

    async def discard(self, tenant: str, queue: str, body: wire.DeadSelection) -> wire.Discarded:
        """End up to `max` matching dead letters: they stay DEAD in the history and leave the list."""
        wanted = _filter(tenant, queue, body)
        matched = await self._store.count_dead(wanted)
        discarded = 0
        if not body.dry_run:
            async for batch in self._batches(wanted, body.max):
                changes = [Change(before=job, after=job, gone=True) for job in batch]
                won = await self._store.change(changes)
                for change, ok in zip(changes, won, strict=True):
                    if ok:
                        self._tally.discarded(change.before.line)
                        discarded += 1
            telemetry.DISCARDED.inc(discarded)
        return wire.Discarded(matched=matched, discarded=discarded)

    async def _batches(self, wanted: DeadFilter, most: int) -> AsyncIterator[Sequence[JobState]]:
        """The selected dead letters, a page at a time, since each may carry 64 KiB. What dies again meanwhile has died later than
        all that is still to be read, and is not met twice."""
        after: tuple[int, str] | None = None
        left = most
        while left > 0:
            page = await self._store.list_dead(wanted, after, min(BATCH, left))
            if not page:
                return
            left -= len(page)
            last = page[-1]
            after = (last.finished_at or 0, last.job_id)
            yield page


def _revived(job: JobState, due_at: int) -> JobState:
    return replace(
        job,
        status=Status.RETRYING,
        line=job.line._replace(suspect=False),
        version=job.version + 1,
        tries=0,
        losses=0,
        releases=0,
        due_at=due_at,
        finished_at=None,
        worker=None,
        outcome=None,
    )


def _filter(tenant: str, queue: str, body: wire.DeadSelection) -> DeadFilter:
    if (body.job_ids is None) == (body.filter is None):
        raise invalid("", "give job_ids or filter ({} selects all), exactly one of them")
    if body.job_ids is not None:
        # What cannot be a job's ID matches nothing, like the ID of a job that is not there.
        return DeadFilter(tenant=tenant, queue=queue, job_ids=tuple(job for job in body.job_ids if is_job_id(job)))
    assert body.filter is not None
    asked = body.filter
    tag = None
    if asked.tag is not None:
        key, colon, value = asked.tag.partition(":")
        if not colon:
            raise invalid("/filter/tag", "write key:value")
        tag = (key, value)
    return DeadFilter(
        tenant=tenant,
        queue=queue,
        error_contains=asked.error_contains,
        tag=tag,
        dead_after=None if asked.dead_after is None else ms_of(asked.dead_after),
        dead_before=None if asked.dead_before is None else ms_of(asked.dead_before),
    )
