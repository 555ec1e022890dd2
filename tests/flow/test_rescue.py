"""Rescue: jobs whose worker went silent get another attempt, once for each dead one."""

import asyncio

import pytest

from tests.life.disk import Crashed
from tests.life.world import World
from tocsin.store.port import Beaten, NotYours
from tocsin.wire import Status


async def lose(world, **fields):
    """A claimed job whose lease is over, with the process alive all the time."""
    await world.create(**fields)
    job = await world.claim_one()
    for _ in range(33):
        world.clock.advance(1)
        await world.on.pulse.step()
    return job


async def test_the_writes_are_in_the_order_of_the_table(world):
    await lose(world)
    world.fault.clear()
    await world.on.rescue.step()
    writes = [name for name in world.fault.writes() if not name.startswith("near.") or name == "near.offer"]
    assert writes == ["timers", "records", "jobs", "near.offer"]


async def test_a_rescue_waits_two_seconds_past_the_lease(any_world):
    await any_world.create()
    job = await any_world.claim_one()
    await any_world.advance(32)
    assert (await any_world.job(job.job_id)).status is Status.RUNNING
    await any_world.advance(0.1)
    assert (await any_world.job(job.job_id)).attempt == 1
    assert (await any_world.job(job.job_id)).status is Status.QUEUED


async def test_a_rescue_that_dies_anywhere_is_seen_again():
    """F-67: ten kills in the middle of the sweep; nothing depends on its having finished."""
    for points in range(0, 30, 2):
        world = World()
        await world.start()
        job = await lose(world, retry={"max_attempts": 5})
        for again in range(10):
            world.fault.after(points + again)
            try:
                await world.on.rescue.step()
            except Crashed:
                await world.restart()
            world.fault.clear()
        await world.advance(40)
        retried = await world.claim_one()
        assert (retried.job_id, retried.attempt) == (job.job_id, 2), points
        assert (await world.attempts(job.job_id))[0] == (1, "lost")


async def test_two_rescuers_handle_a_dead_attempt_once():
    """F-68: one failure record, one retry timer, attempt number +1, however often both sweep."""
    world = World(yielding=True)
    first = await world.start()
    job = await lose(world, retry={"max_attempts": 5})
    second = await world.boot()
    await second.recover.recover(second.leases.owned())
    second.gap._ended_s = first.gap._ended_s  # a node that has been up as long as the other
    for _ in range(60):
        await asyncio.gather(first.rescue.step(), second.rescue.step())
    assert await world.attempts(job.job_id) == [(1, "lost")]
    state = await world.job(job.job_id)
    assert (state.status, state.attempt, state.tries, state.version, state.losses) == (Status.RETRYING, 1, 1, 2, 1)
    timers = [key for keys in world.disk.timers.values() for key in keys if key[5] == 2]
    assert len({key[4:] for key in timers}) == 1


async def test_a_heartbeat_between_the_rescues_look_and_its_write_keeps_the_lease(any_world):
    """It was accepted, so the attempt may not be taken away."""
    job = await lose(any_world)
    rescue = any_world.on.rescue
    state = await any_world.job(job.job_id)
    change = rescue._lost(state)
    beaten = await any_world.beat(job.lease_token)
    assert isinstance(beaten, Beaten)
    assert await any_world.on.ender.write([change]) == [False]
    assert (await any_world.job(job.job_id)).status is Status.RUNNING
    assert await any_world.complete(job.lease_token) is Status.SUCCEEDED


async def test_the_first_loss_retries_at_once_and_later_ones_back_off(any_world):
    await any_world.create(retry={"max_attempts": 6, "initial_backoff_s": 300, "max_backoff_s": 300})
    job_id = (await any_world.claim_one()).job_id
    await any_world.advance(33)
    await any_world.claim_one()
    await any_world.advance(33)
    job = await any_world.job(job_id)
    assert job.status is Status.RETRYING
    assert job.due_at > any_world.clock.now_ms()


async def test_a_poison_job_dies_and_its_companions_complete(any_world):
    """F-04: tries are counted at claim; a claim with a poison job costs its companions at most one try."""
    policy = {"max_attempts": 3, "initial_backoff_s": 1, "max_backoff_s": 1}
    poison = await any_world.create(retry=policy)
    good = {made.job_id for made in await any_world.try_create(count=50, retry=policy)}
    done: set[str] = set()
    for _ in range(40):
        got = await any_world.claim(10)
        if poison in {job.job_id for job in got}:
            if len(done) < 50 and got[0].attempt > 1:
                assert len(got) == 1, "a suspect job is handed out alone"
        else:
            for job in got:
                assert job.tries <= 2
                assert await any_world.complete(job.lease_token) is Status.SUCCEEDED
                done.add(job.job_id)
        if (await any_world.job(poison)).status is Status.DEAD and done == good:
            break
        await any_world.advance(6)
    dead = await any_world.job(poison)
    assert (dead.status, dead.tries) == (Status.DEAD, 3)
    assert "worker lost" in (dead.last_error or "")
    assert done == good


async def test_a_cancel_during_an_attempt_of_a_poison_job_takes_effect_at_the_next_loss(any_world):
    job = await lose(any_world, retry={"max_attempts": 3})
    await any_world.settle()
    await any_world.claim_one()
    assert (await any_world.cancel(job.job_id)).status is Status.CANCEL_REQUESTED
    await any_world.advance(33)
    assert (await any_world.job(job.job_id)).status is Status.CANCELLED


async def test_a_start_is_a_gap_and_no_workers_fault(any_world):
    await any_world.create(retry={"max_attempts": 1})
    job = await any_world.claim_one()
    any_world.clock.advance(100)
    await any_world.restart()
    await any_world.settle()
    assert (await any_world.job(job.job_id)).status is Status.RUNNING
    await any_world.advance(33)
    state = await any_world.job(job.job_id)
    assert (state.status, state.tries, state.line.suspect) == (Status.QUEUED, 0, False)
    assert await any_world.attempts(job.job_id) == [(1, "lost")]


async def test_a_worker_heard_of_since_the_gap_is_charged(any_world):
    await any_world.create(retry={"max_attempts": 1})
    job = await any_world.claim_one()
    await any_world.restart()
    await any_world.advance(1)
    assert isinstance(await any_world.beat(job.lease_token), Beaten)
    await any_world.advance(33)
    assert (await any_world.job(job.job_id)).status is Status.DEAD


@pytest.mark.parametrize("seconds", [-3_600, -30])
async def test_a_lease_given_before_a_step_back_of_the_clock_ends_within_minutes(any_world, seconds):
    """F-43: a dead worker's lease does not last for the size of the jump."""
    await any_world.create()
    job = await any_world.claim_one()
    await any_world.advance(1)
    any_world.clock.step_wall(seconds)
    await any_world.restart()
    await any_world.advance(240)
    again = await any_world.claim_one()
    assert (again.job_id, again.attempt) == (job.job_id, 2)


async def test_a_step_forward_of_the_clock_ends_no_lease(any_world):
    """F-43: leases count in elapsed time; live workers keep what they hold."""
    await any_world.create()
    job = await any_world.claim_one()
    await any_world.advance(5)
    any_world.clock.step_wall(3_600)
    await any_world.advance(5)
    assert (await any_world.job(job.job_id)).attempt == 1
    assert isinstance(await any_world.beat(job.lease_token), Beaten | NotYours)
