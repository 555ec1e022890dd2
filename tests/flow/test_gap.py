"""Gaps: times in which the server itself could not write, and for which no worker is to blame."""

import pytest

from tocsin.clock import ManualClock
from tocsin.errors import StoreUnavailable
from tocsin.flow.gap import Gap
from tocsin.wire import Status


@pytest.fixture
def clock():
    return ManualClock()


def test_a_start_is_a_gap_that_ends_at_once(clock):
    gap = Gap(clock)
    assert gap.ended_at == clock.now_ms()
    assert not gap.charged(clock.now_ms() - 1)
    assert gap.charged(clock.now_ms())


def test_five_seconds_without_a_write_are_none_and_more_are_one(clock):
    gap = Gap(clock)
    start = clock.now_ms()
    clock.advance(5)
    gap.wrote()
    assert gap.ended_at == start
    clock.advance(5.1)
    assert gap.open
    gap.wrote()
    assert not gap.open
    assert gap.ended_at == clock.now_ms()


def test_leases_count_from_its_end_where_that_is_later(clock):
    gap = Gap(clock)
    now = clock.now_ms()
    assert gap.lease_over(now - 5, 30_000) == now + 30_000
    assert gap.lease_over(now + 90_000, 30_000) == now + 90_000


@pytest.mark.parametrize("seconds", [-3_600, -2, 2])
def test_its_end_goes_along_with_a_step_of_the_wall_clock(clock, seconds):
    gap = Gap(clock)
    clock.advance(2)
    clock.step_wall(seconds)
    assert gap.ended_at == clock.now_ms() - 2_000


def test_a_long_step_forward_is_a_gap(clock):
    gap = Gap(clock)
    clock.advance(2)
    clock.step_wall(3_600)
    assert gap.ended_at == clock.now_ms()
    clock.advance(1)
    assert gap.ended_at == clock.now_ms() - 1_000


async def test_an_outage_turns_no_running_job_into_a_dead_one(any_world):
    """Every running job loses its worker for five minutes, with one try each."""
    made = await any_world.try_create(count=20, retry={"max_attempts": 1})
    assert len(await any_world.claim(20)) == 20
    any_world.fault.always(StoreUnavailable("down"))
    any_world.clock.advance(300)
    for stage in any_world.on.stages:
        try:
            await stage.step()
        except StoreUnavailable:
            continue
    any_world.fault.always(None)
    await any_world.advance(40)
    states = [await any_world.job(one.job_id) for one in made]
    assert {job.status for job in states} == {Status.QUEUED}
    assert {(job.tries, job.losses) for job in states} == {(0, 0)}


async def test_nothing_is_rescued_before_the_end_of_a_gap_is_known(any_world):
    """The rescue's own write may be the first that succeeds."""
    await any_world.create(retry={"max_attempts": 1})
    job = await any_world.claim_one()
    any_world.clock.advance(300)
    assert (await any_world.on.rescue.step()).rescued == 0
    wish = await any_world.on.rescue.next_at()
    assert wish is not None
    assert wish > any_world.clock.now_ms(), "a loop must not spin meanwhile"
    await any_world.on.pulse.step()
    assert (await any_world.on.rescue.step()).rescued == 0
    assert (await any_world.job(job.job_id)).status is Status.RUNNING


async def test_the_pulse_writes_once_a_second(world):
    world.fault.clear()
    for _ in range(100):
        world.clock.advance(0.1)
        await world.on.pulse.step()
    assert 9 <= world.fault.passed.count("before ping") <= 11
