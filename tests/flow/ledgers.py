"""What must be so of a schedule in the store, whatever happened to it: for tests of races and crashes."""

from __future__ import annotations

from collections import Counter

from tests.flow.recurring import TENANT
from tests.life.world import World
from tocsin.model.job import JobState
from tocsin.model.schedule import State, decode_spec, decode_state, plan_of
from tocsin.store.port import JobFilter
from tocsin.store.schedules import ScheduleRow, SkipRow
from tocsin.wire import Status

UNSTARTED = (Status.CANCELLED, Status.SKIPPED)


async def all_jobs(world: World, schedule_id: str) -> list[JobState]:
    """A schedule's jobs, oldest occurrence first; also of one that is deleted."""
    wanted = JobFilter(tenant=TENANT, schedule_id=schedule_id)
    return list(reversed((await world.on.store.jobs.list_jobs(wanted, None, 1_000)).jobs))


async def state_of(world: World, schedule_id: str) -> tuple[ScheduleRow, State]:
    """A schedule's row and its state; it must be there."""
    row = (await world.on.store.schedules.get([schedule_id]))[0]
    assert row is not None
    return row, decode_state(row.state)


async def all_skips(world: World, schedule_id: str) -> list[SkipRow]:
    """A schedule's skips, oldest first."""
    return list(reversed(await world.on.store.schedules.skips(schedule_id, None, 1_000)))


async def sound(world: World, schedule_id: str, *, since: int | None = None) -> None:
    """One occurrence is ahead of an active schedule, none of a deleted one, and none was decided twice. `since`: the timing is the
    same from that instant on, so each of its occurrences until now has had its job or its skip."""
    jobs = await all_jobs(world, schedule_id)
    waiting = [job for job in jobs if job.status is Status.SCHEDULED]
    row = (await world.on.store.schedules.get([schedule_id]))[0]
    if row is None:
        assert waiting == []
        return
    _, state = await state_of(world, schedule_id)
    ahead = [job for job in waiting if job.job_id == state.job_id]
    others = {job.job_id for job in waiting} - {job.job_id for job in ahead}
    assert others <= {held.job_id for held in state.held}, "a job waits that nobody knows of"
    if row.status == "active":
        assert [job.definition.occurrence_at for job in ahead] == [state.next_at]
    if row.status == "finished":
        assert ahead == []
    decided = Counter(
        job.definition.occurrence_at
        for job in jobs
        if job.definition.origin == "schedule" and (job.status not in UNSTARTED or job.attempt > 0)
    )
    plan = plan_of(decode_spec(row.spec), world.zones)
    for skip in await all_skips(world, schedule_id):
        run = plan.next(skip.first - 1)
        while run is not None and run.at <= skip.last:
            decided[run.at] += 1
            run = plan.next(run.at)
    assert [at for at, times in decided.items() if times > 1] == []
    run = None if since is None else plan.next(since)
    while run is not None and run.at <= world.clock.now_ms() and row.status == "active":
        assert decided[run.at] == 1, f"{run.at} is lost"
        run = plan.next(run.at)
