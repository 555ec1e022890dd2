"""The steady clock: a step of the wall clock is not believed at once, and a lasting one is."""

from __future__ import annotations

from tests.unit.near.model import fresh_clock
from tocsin.near.redis.steady import SteadyClock


def test_a_step_of_the_wall_clock_is_passed_over_for_a_minute_and_then_followed() -> None:
    clock = fresh_clock()
    steady = SteadyClock(clock)
    start = steady.now_ms()
    assert start == clock.now_ms()
    clock.step_wall(3_600)
    assert steady.now_ms() == start
    clock.advance(59)
    assert steady.now_ms() == start + 59_000
    clock.advance(1)
    assert steady.now_ms() == start + 3_660_000 == clock.now_ms()


def test_a_step_that_is_taken_back_was_none() -> None:
    clock = fresh_clock()
    steady = SteadyClock(clock)
    start = steady.now_ms()
    for _ in range(5):
        clock.step_wall(-30)
        assert steady.now_ms() == start
        clock.advance(40)
        clock.step_wall(30)
        start += 40_000
        assert steady.now_ms() == start
