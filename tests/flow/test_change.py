"""PATCH, cancel and run-now: the new timer at version+1 first, then the job where the state that was read still stands."""

import asyncio
from dataclasses import replace

import pytest

from tests.life.world import World
from tocsin import wire
from tocsin.errors import Refused, StoreUnavailable
from tocsin.store.port import Beaten, Change, Fired
from tocsin.wire import Status


async def test_the_writes_are_in_the_order_of_the_table(world):
    job_id = await world.create(delay_s=60)
    world.fault.clear()
    await world.patch(job_id, delay_s=90)
    assert world.fault.writes() == ["timers", "jobs", "near.remove", "near.offer"]
    world.fault.clear()
    await world.run_now(job_id)
    assert world.fault.writes() == ["timers", "jobs", "near.remove", "near.push"]
    world.fault.clear()
    await world.cancel(job_id)
    assert world.fault.writes() == ["jobs", "finished", "jobs", "near.remove"]


async def test_a_patch_cut_after_its_timer_changes_nothing(world):
    job_id = await world.create(delay_s=60)
    await world.crash_during(world.patch(job_id, delay_s=5), "after timers put")
    assert (await world.job(job_id)).version == 1
    await world.advance(30)
    assert await world.claim() == []
    await world.advance(30)
    assert len(await world.claim()) == 1


@pytest.mark.parametrize("second_s", [20, 100])
async def test_the_timer_of_a_cut_patch_never_fires_the_next_one_early(world, second_s):
    """Both have version 2: the cut one's timer comes true, but the job's own time decides."""
    job_id = await world.create(delay_s=600)
    await world.crash_during(world.patch(job_id, delay_s=60), "after timers put")
    await world.patch(job_id, delay_s=second_s)
    await world.restart()  # the recovery and the loader find both timers
    await world.advance(second_s - 1)
    assert await world.claim() == []
    await world.advance(2)
    assert len(await world.claim()) == 1


@pytest.mark.parametrize("cut", ["after jobs put", "before near.remove", "after near.remove", "before near.offer"])
async def test_a_patch_whose_near_tier_was_not_told_fires_at_its_new_time(world, cut):
    job_id = await world.create(delay_s=60)
    await world.crash_during(world.patch(job_id, delay_s=5), cut)
    assert (await world.job(job_id)).version == 2
    await world.advance(5)
    assert [job.job_id for job in await world.claim()] == [job_id]


@pytest.mark.parametrize("cut", ["after jobs put", "before near.push", "after near.push"])
async def test_a_run_now_whose_near_tier_was_not_told_runs_at_once(world, cut):
    job_id = await world.create(delay_s=86_400)
    await world.crash_during(world.run_now(job_id), cut)
    assert [job.job_id for job in await world.claim()] == [job_id]


@pytest.mark.parametrize("cut", ["after jobs put", "after finished put", "before jobs delete", "before near.remove"])
async def test_a_cancel_cut_after_its_condition_stands(world, cut):
    job_id = await world.create(delay_s=60)
    await world.crash_during(world.cancel(job_id), cut)
    assert (await world.cancel(job_id)).status is Status.CANCELLED
    await world.advance(200)
    assert await world.claim() == []
    assert job_id not in world.disk.jobs
    assert (await world.job(job_id)).status is Status.CANCELLED


async def test_a_patch_moves_a_job_both_ways(any_world):
    job_id = await any_world.create(delay_s=100)
    assert (await any_world.patch(job_id, delay_s=200)).version == 2
    await any_world.advance(150)
    assert await any_world.claim() == []
    assert (await any_world.patch(job_id, delay_s=10)).version == 3
    await any_world.advance(10)
    assert len(await any_world.claim()) == 1


async def test_a_patch_to_the_past_fires_at_once(any_world):
    job_id = await any_world.create(delay_s=100)
    job = await any_world.patch(job_id, run_at="2020-01-01T00:00:00Z")
    assert (job.status, job.version, job.due_at) == (Status.QUEUED, 2, any_world.clock.now_ms())
    assert len(await any_world.claim()) == 1


async def test_a_patch_that_changes_nothing_keeps_the_version(any_world):
    job_id = await any_world.create(delay_s=100, priority="high")
    assert (await any_world.patch(job_id, priority="high")).version == 1


async def test_a_patch_that_changes_anything_keeps_its_time_and_still_fires(any_world):
    job_id = await any_world.create(delay_s=100)
    due_at = (await any_world.job(job_id)).due_at
    job = await any_world.patch(job_id, payload={"n": 2}, name="other")
    assert (job.version, job.due_at) == (2, due_at)
    await any_world.advance(100)
    claimed = await any_world.claim_one()
    assert (bytes(claimed.payload), claimed.name) == (b'{"n":2}', "other")


async def test_the_idempotency_key_survives_a_patch(any_world):
    job_id = await any_world.create(delay_s=100)
    key_at = (await any_world.job(job_id)).definition.key_at
    assert (await any_world.patch(job_id, delay_s=5)).definition.key_at == key_at


async def test_only_a_scheduled_job_is_patched(any_world):
    job_id = await any_world.create()
    with pytest.raises(Refused) as refused:
        await any_world.patch(job_id, name="x")
    assert refused.value.status == 409


async def test_another_tenants_job_does_not_exist(any_world):
    job_id = await any_world.create(delay_s=100)
    for wish in (any_world.patch, any_world.cancel, any_world.run_now):
        with pytest.raises(Refused) as refused:
            await wish(job_id, "bolt")
        assert refused.value.status == 404


@pytest.mark.parametrize("first", ["fire", "patch"])
async def test_a_patch_against_a_fire_has_one_winner(any_world, first):
    """The one that writes first; the other is void or told of the new state."""
    job_id = await any_world.create(delay_s=5)
    any_world.clock.advance(5)
    jobs = any_world.on.store.jobs
    due = (await any_world.on.near.take(any_world.on.leases.owned(), any_world.clock.now_ms(), 1))[0]
    if first == "fire":
        assert await jobs.fire([due]) == [Fired.WON]
        with pytest.raises(Refused):
            await any_world.patch(job_id, delay_s=60)
    else:
        await any_world.patch(job_id, delay_s=60)
        assert await jobs.fire([due]) == [Fired.VOID]
        await any_world.on.near.drop([due])
        await any_world.advance(60)
        assert len(await any_world.claim()) == 1


async def test_a_cancel_at_any_point_of_a_claim_tells_the_truth():
    """F-29: what the cancel answers is what happens: never started, or the worker is told at its next heartbeat."""
    seen = set()
    for offset in range(12):
        world = World(yielding=True, seed=offset)
        await world.start()
        job_id = await world.create()

        async def cancel(world=world, job_id=job_id, offset=offset):
            for _ in range(offset):
                await asyncio.sleep(0)
            return await world.cancel(job_id)

        answer, claimed = await asyncio.gather(cancel(), world.claim())
        seen.add(answer.status)
        if answer.status is Status.CANCELLED:
            assert claimed == []
            assert (await world.job(job_id)).attempt == 0
        else:
            assert answer.status is Status.CANCEL_REQUESTED
            told = await world.beat(claimed[0].lease_token)
            assert isinstance(told, Beaten)
            assert told.cancel_requested
            assert await world.complete(claimed[0].lease_token, "cancelled") is Status.CANCELLED
    assert seen == {Status.CANCELLED, Status.CANCEL_REQUESTED}, "the offsets do not cover both sides of the claim"


async def test_cancelling_is_idempotent_and_a_cancel_of_the_end_is_refused(any_world):
    waiting, done = await any_world.create(delay_s=9), await any_world.create()
    await any_world.cancel(waiting)
    assert (await any_world.cancel(waiting)).status is Status.CANCELLED
    job = await any_world.claim_one()
    await any_world.cancel(done)
    assert (await any_world.cancel(done)).status is Status.CANCEL_REQUESTED
    await any_world.complete(job.lease_token)
    with pytest.raises(Refused) as refused:
        await any_world.cancel(done)
    assert refused.value.status == 409


async def test_a_change_decided_before_a_heartbeat_does_not_undo_it(any_world):
    """The heartbeat was accepted: its lease and progress stand, also where a cancel request had read the job before."""
    job_id = await any_world.create()
    held = await any_world.claim_one()
    before = await any_world.job(job_id)
    any_world.clock.advance(20)
    beaten = await any_world.beat(held.lease_token, b'{"page":3}')
    after = replace(before, status=Status.CANCEL_REQUESTED)
    won = await any_world.on.store.jobs.change([Change(before=before, after=after)])
    now = await any_world.job(job_id)
    assert (now.lease_until, now.progress) == (beaten.lease_until, b'{"page":3}')
    assert won == [now.status is Status.CANCEL_REQUESTED]


async def test_run_now_fires_a_retry_at_once(any_world):
    await any_world.create(retry={"initial_backoff_s": 600})
    job = await any_world.claim_one()
    await any_world.complete(job.lease_token, "retryable_failure", retry_after_s=600)
    await any_world.run_now(job.job_id)
    again = await any_world.claim_one()
    assert (again.attempt, again.idempotency_key) == (2, job.idempotency_key)


async def test_a_cancelled_retry_does_not_come_back(any_world):
    await any_world.create()
    job = await any_world.claim_one()
    await any_world.complete(job.lease_token, "retryable_failure", retry_after_s=60)
    assert (await any_world.cancel(job.job_id)).status is Status.CANCELLED
    await any_world.jump(120)
    assert await any_world.claim() == []


def _http(url, value):
    return {"type": "http", "url": url, "headers": {"Authorization": value}}


async def test_a_masked_header_value_is_kept_at_the_same_host(any_world):
    job_id = await any_world.create(delay_s=60, target=_http("https://a.example/x", "Bearer secret"))
    job = await any_world.patch(job_id, target=_http("https://a.example/y", wire.MASK))
    assert job.definition.target.headers == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize("url", ["https://b.example/x", "http://a.example/x", "https://a.example:8443/x"])
async def test_a_masked_header_value_is_never_sent_to_another_host(any_world, url):
    job_id = await any_world.create(delay_s=60, target=_http("https://a.example/x", "Bearer secret"))
    with pytest.raises(Refused) as refused:
        await any_world.patch(job_id, target=_http(url, wire.MASK))
    assert (refused.value.status, refused.value.errors[0][0]) == (422, "/target/headers/Authorization")
    assert (await any_world.job(job_id)).definition.target.url == "https://a.example/x"


async def test_a_run_now_that_cannot_be_parked_has_happened_all_the_same(monkeypatch):
    """The commit stands: with a 503 the client would repeat it, and hear 409."""
    world = World(line_limit=1)
    await world.start()
    await world.create()
    job_id = await world.create(delay_s=60)

    async def park(dues):
        raise StoreUnavailable("full")

    monkeypatch.setattr(world.on.store.jobs, "park", park)
    assert (await world.run_now(job_id)).status is Status.QUEUED


async def test_an_occurrence_whose_time_has_come_is_not_started_by_a_change_of_its_payload(any_world: World):
    made = await any_world.define("acme", "every minute", every_s=60, overlap="forbid")
    (ahead,) = await any_world.on.store.schedules.waiting(made.schedule_id)
    any_world.clock.advance(61)
    changed = await any_world.patch(ahead.job_id, payload={"n": 2})
    assert changed.status is Status.SCHEDULED
    await any_world.settle()
    assert bytes((await any_world.claim_one()).payload) == b'{"n":2}'
