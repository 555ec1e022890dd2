"""Redrive and discard: dead letters, each by the order of every change."""

import pytest

from tests.life.disk import Crashed
from tests.life.world import World
from tocsin.store.port import JobFilter
from tocsin.wire import Status


async def kill(world, count=1, **fields):
    """Make dead letters."""
    await world.try_create(count=count, **fields)
    for job in await world.claim(count):
        assert await world.complete(job.lease_token, "fatal_failure", error="broken endpoint") is Status.DEAD


async def test_the_writes_are_in_the_order_of_the_table(world):
    await kill(world)
    world.fault.clear()
    await world.redrive()
    assert world.fault.writes() == ["timers", "jobs", "near.offer"]
    await world.settle()
    (job,) = await world.claim()
    await world.complete(job.lease_token, "fatal_failure")
    world.fault.clear()
    await world.discard()
    assert world.fault.writes() == ["jobs", "finished", "jobs"]


async def test_a_redriven_job_has_all_its_tries_and_a_higher_attempt(any_world):
    await any_world.create(retry={"max_attempts": 2, "initial_backoff_s": 0})
    for _ in range(2):
        job = await any_world.claim_one()
        await any_world.complete(job.lease_token, "retryable_failure")
        await any_world.settle()
    assert (await any_world.redrive()).redriven == 1
    await any_world.settle()
    for attempt in (3, 4):
        again = await any_world.claim_one()
        assert (again.attempt, again.tries, again.idempotency_key) == (attempt, attempt - 2, job.idempotency_key)
        await any_world.complete(again.lease_token, "retryable_failure")
        await any_world.settle()
    assert (await any_world.job(job.job_id)).status is Status.DEAD


async def test_a_redrive_that_dies_anywhere_may_be_repeated():
    for points in range(0, 40, 3):
        world = World()
        await world.start()
        await kill(world, 3)
        world.fault.after(points)
        try:
            await world.redrive()
        except Crashed:
            await world.restart()
        world.fault.clear()
        await world.redrive()
        await world.jump(1)
        got = await world.claim(10)
        assert [job.attempt for job in got] == [2, 2, 2], points
        assert (await world.redrive()).matched == 0


@pytest.mark.parametrize("cut", ["after jobs put", "before finished put", "after finished put", "before jobs delete"])
async def test_a_discard_cut_in_the_middle_is_over_for_everybody(world, cut):
    await kill(world)
    (job_id,) = world.disk.jobs
    await world.crash_during(world.discard(), cut)
    assert (await world.redrive()).matched == 0
    assert (await world.discard()).matched == 0
    assert (await world.job(job_id)).status is Status.DEAD
    await world.jump(31 * 86_400)
    assert job_id not in world.disk.jobs
    assert job_id not in world.disk.finished


async def test_a_rate_spreads_the_redriven_jobs(any_world):
    await kill(any_world, 10)
    assert (await any_world.redrive(rate_per_s=2)).redriven == 10
    starts = []
    for _ in range(12):
        await any_world.settle()
        starts.append(len(await any_world.claim(100)))
        await any_world.advance(0.5)
    assert starts == [1] * 10 + [0, 0]


@pytest.mark.parametrize("rate", [1e-9, 1e-300])
async def test_an_absurd_rate_puts_no_timer_further_than_a_job_may_be_ahead(any_world, rate):
    """F-61."""
    await kill(any_world, 3)
    assert (await any_world.redrive(rate_per_s=rate)).redriven == 3
    for due_at in sorted([(await any_world.job(job_id)).due_at for job_id in await ids_of(any_world)]):
        assert due_at <= any_world.clock.now_ms() + 366 * 86_400_000


async def ids_of(world):
    page = await world.on.store.jobs.list_jobs(JobFilter(tenant="acme"), None, 100)
    return [job.job_id for job in page.jobs]


async def test_a_dry_run_changes_nothing(any_world):
    await kill(any_world, 2)
    dry = await any_world.redrive(dry_run=True)
    assert (dry.matched, dry.redriven) == (2, 0)
    assert (await any_world.discard(dry_run=True)).discarded == 0
    assert (await any_world.redrive(dry_run=True)).matched == 2


async def test_the_most_of_a_call_leaves_the_rest_dead(any_world):
    await kill(any_world, 5)
    answer = await any_world.redrive(max=3)
    assert (answer.matched, answer.redriven) == (5, 3)
    assert (await any_world.redrive(dry_run=True)).matched == 2


async def test_a_filter_selects_by_error(any_world):
    await kill(any_world)
    assert (await any_world.redrive(filter={"error_contains": "other"})).matched == 0
    assert (await any_world.redrive(filter={"error_contains": "endpoint"})).redriven == 1


async def test_what_cannot_be_a_job_matches_nothing(any_world):
    await kill(any_world)
    assert (await any_world.redrive(job_ids=["nonsense", ""])).matched == 0


async def test_a_redrive_clears_the_suspicion(any_world):
    """After a loss a job is handed out alone; its owner has said that it is mended."""
    await any_world.create(retry={"max_attempts": 1})
    await any_world.claim_one()
    await any_world.advance(33)
    await any_world.redrive()
    await any_world.settle()
    await any_world.create()
    assert len(await any_world.claim(10)) == 2


async def test_a_discarded_job_stays_dead_in_the_history_and_leaves_the_list(any_world):
    await kill(any_world)
    assert (await any_world.discard()).discarded == 1
    assert (await any_world.discard()).matched == 0
    assert await any_world.claim(10) == []


async def test_a_large_redrive_holds_one_page_at_a_time(monkeypatch):
    monkeypatch.setattr("tocsin.flow.redrive.BATCH", 2)
    world = World()
    await world.start()
    await kill(world, 5)
    jobs, steps = world.on.store.jobs, []
    list_dead, change = jobs.list_dead, jobs.change

    async def listed(*args):
        steps.append("list")
        return await list_dead(*args)

    async def changed(changes):
        steps.append(f"change {len(changes)}")
        return await change(changes)

    monkeypatch.setattr(jobs, "list_dead", listed)
    monkeypatch.setattr(jobs, "change", changed)
    assert (await world.redrive()).redriven == 5
    assert steps[:5] == ["list", "change 2", "list", "change 2", "list"]
