"""Admit, row by row: idempotency record, timer, job, then the near tier, then the answer."""

import asyncio

import pytest

from tests.life.disk import Crashed
from tests.life.world import World
from tocsin.clock import rfc3339
from tocsin.errors import Refused, ServerUnavailable, StoreUnavailable
from tocsin.flow.admit import Admitted
from tocsin.wire import Status

CUTS = [
    "after keys put",
    "before timers put",
    "after timers put",
    "before jobs put",
    "after jobs put",
    "before near.offer",
    "after near.offer",
]


async def test_the_writes_are_in_the_order_of_the_table(world):
    world.fault.clear()
    await world.create(key="k", delay_s=60)
    assert world.fault.writes() == ["keys", "timers", "jobs", "near.offer"]


@pytest.mark.parametrize("cut", CUTS)
async def test_a_crash_before_the_answer_then_the_same_key_gives_one_job(world, cut):
    await world.crash_during(world.create(key="k", delay_s=60), cut)
    job_id = await world.create(key="k", delay_s=60)
    assert await world.create(key="k", delay_s=60) == job_id
    await world.advance(62)
    assert [job.job_id for job in await world.claim(10)] == [job_id]
    assert len(world.disk.jobs) == 1


@pytest.mark.parametrize("cut", ["after jobs put", "before near.push", "after near.push"])
async def test_a_crash_after_the_job_is_written_loses_nothing(world, cut):
    await world.crash_during(world.create(), cut)
    (job,) = await world.claim(10)
    assert await world.complete(job.lease_token) is Status.SUCCEEDED


async def test_a_timer_without_its_job_is_void(world):
    await world.crash_during(world.create(delay_s=60), "after timers put")
    await world.advance(600)
    assert await world.claim(10) == []
    assert not any(world.disk.timers.values())


@pytest.mark.parametrize(("point", "delay_s"), [("before near.push", 0), ("before near.offer", 30)])
async def test_a_near_tier_that_is_away_refuses_no_create_and_loses_nothing(world, point, delay_s):
    """The job is durable, so the client is told so; the recheck finds it."""
    world.fault.at(point, ServerUnavailable("the near tier is away"))
    job_id = await world.create(delay_s=delay_s)
    await world.advance(200)
    assert [job.job_id for job in await world.claim(10)] == [job_id]


@pytest.mark.parametrize(
    "run_at", ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-12-05T03:30:00Z"]
)
async def test_an_instant_in_the_past_means_now_and_can_be_shown(any_world, run_at):
    """F-61."""
    job_id = await any_world.create(run_at=run_at)
    job = await any_world.job(job_id)
    assert (job.status, job.fire_at) == (Status.QUEUED, any_world.clock.now_ms())
    assert rfc3339(job.definition.run_at).endswith("Z")
    assert await any_world.complete((await any_world.claim_one()).lease_token) is Status.SUCCEEDED


@pytest.mark.parametrize("run_at", ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00"])
async def test_an_instant_too_far_ahead_is_refused(any_world, run_at):
    with pytest.raises(Refused) as refused:
        await any_world.create(run_at=run_at)
    assert refused.value.status == 422


async def test_one_bad_wish_of_a_batch_does_not_stop_the_others(any_world):
    answers = await any_world.try_create(count=2)
    bad = await any_world.try_create(run_at="2028-01-01T00:00:00Z")
    assert all(isinstance(answer, Admitted) for answer in answers)
    assert isinstance(bad[0], Refused)
    assert bad[0].status == 422


async def test_of_fifty_first_uses_of_a_key_at_once_one_makes_the_job():
    world = World(yielding=True)
    await world.start()
    answers = await asyncio.gather(*(world.try_create(key="k", delay_s=5) for _ in range(50)))
    made = [answer for (answer,) in answers if isinstance(answer, Admitted)]
    assert len(made) == 50
    assert len({answer.job_id for answer in made}) == 1
    assert [answer.replayed for answer in made].count(False) == 1
    assert len(world.disk.jobs) == 1


async def test_a_key_is_the_tenants_own(any_world):
    mine = await any_world.create("acme", key="k")
    theirs = await any_world.create("bolt", key="k")
    assert mine != theirs


async def test_a_key_with_another_body_is_a_conflict_and_makes_nothing(any_world):
    first = await any_world.create(key="k", delay_s=5)
    (answer,) = await any_world.try_create(key="k", delay_s=6)
    assert isinstance(answer, Refused)
    assert answer.status == 409
    assert first in answer.detail


async def test_a_key_gives_a_clean_new_job_after_its_week_and_the_same_one_before(any_world):
    first = await any_world.create(key="x")
    job = await any_world.claim_one()
    await any_world.complete(job.lease_token)
    any_world.clock.advance(6 * 86_400)
    assert await any_world.create(key="x") == first
    any_world.clock.advance(2 * 86_400)
    await any_world.settle()
    second = await any_world.create(key="x")
    assert second != first
    fresh = await any_world.job(second)
    assert (fresh.attempt, fresh.started_at, fresh.finished_at, fresh.result) == (0, None, None, None)


async def test_a_key_holds_as_long_as_its_job_lives(any_world):
    first = await any_world.create(key="x", delay_s=30 * 86_400)
    any_world.clock.advance(10 * 86_400)
    await any_world.settle()
    assert await any_world.create(key="x", delay_s=30 * 86_400) == first


async def test_a_store_that_fails_accepts_nothing(world):
    world.fault.always(StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        await world.create()
    world.fault.always(None)
    assert not world.disk.jobs


async def test_any_crash_inside_a_create_leaves_all_of_it_or_nothing_that_runs():
    """Every point in turn, not only the named ones."""
    for points in range(20):
        world = World()
        await world.start()
        world.fault.after(points)
        try:
            await world.create(key="k", delay_s=10)
        except Crashed:
            await world.restart()
        world.fault.clear()
        job_id = await world.create(key="k", delay_s=10)
        await world.advance(15)
        assert [job.job_id for job in await world.claim(10)] == [job_id], f"died at point {points}"
