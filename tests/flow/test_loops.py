"""The loops that run the stages: whatever the clocks and the stages do, none sleeps too long and none ends."""

import asyncio

import pytest

from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import StoreUnavailable
from tocsin.service import LONGEST_BACKOFF_S, Alarm, Loop


class Duty(Alarm):
    """A stage that counts its passes and wishes to look again at `wish`."""

    name = "duty"

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.passes = 0
        self.more = False
        self.wish: int | None = None
        self.error: Exception | None = None

    async def step(self) -> "Duty":
        self.passes += 1
        if self.error is not None:
            raise self.error
        return self

    async def next_at(self) -> int | None:
        return self.wish


async def turn() -> None:
    """Let everything that can run do so."""
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.fixture
async def running():
    clock = ManualClock()
    duty = Duty(clock)
    loop = Loop(duty, clock, SeededEntropy(1))
    loop.start()
    await turn()
    yield clock, duty, loop
    await loop.stop()


@pytest.mark.parametrize("seconds", [-8 * 3_600, -3_600, 3_600, 8 * 3_600])
async def test_no_loop_sleeps_for_the_size_of_a_jump(running, seconds):
    """F-43."""
    clock, duty, _ = running
    duty.wish = clock.now_ms() + 100
    clock.step_wall(seconds)
    await turn()
    for _ in range(4):
        before = duty.passes
        clock.advance(0.5)
        await turn()
        assert duty.passes > before


async def test_a_wish_far_ahead_is_looked_at_twice_a_second(running):
    clock, duty, _ = running
    duty.wish = clock.now_ms() + 10**12
    for _ in range(10):
        clock.advance(0.5)
        await turn()
    assert 10 <= duty.passes <= 13


async def test_a_wish_is_granted_on_time(running):
    clock, duty, _ = running
    duty.wish = clock.now_ms() + 700
    clock.advance(0.5)
    await turn()
    before = duty.passes
    clock.advance(0.19)
    await turn()
    assert duty.passes == before
    clock.advance(0.01)
    await turn()
    assert duty.passes > before


@pytest.mark.parametrize("error", [StoreUnavailable("down"), RuntimeError("a bug")])
async def test_a_failing_stage_backs_off_and_goes_on_when_it_is_mended(running, error):
    clock, duty, loop = running
    duty.error = error
    for _ in range(200):
        clock.advance(0.5)
        await turn()
    assert loop.failures > 3
    assert duty.passes < 150, "it must not be tried as if nothing had happened"
    duty.error = None
    clock.advance(LONGEST_BACKOFF_S)
    await turn()
    assert loop.failures == 0


async def test_a_rung_stage_looks_at_once(running):
    clock, duty, _ = running
    duty.wish = clock.now_ms() + 10**6
    clock.advance(0.5)
    await turn()
    before = duty.passes
    duty.ring()
    await turn()
    assert duty.passes > before


async def test_a_stop_wakes_a_resting_stage():
    clock = ManualClock()
    loop = Loop(Duty(clock), clock, SeededEntropy(1))
    loop.start()
    await turn()
    await loop.stop()
