"""The cap on calls in flight to one host of one tenant."""

import asyncio

import pytest

from tocsin.clock import ManualClock
from tocsin.executor import caps
from tocsin.executor.caps import MAX_WAIT_S, STALL_S, Caps, Limit, Pace, pace

A, B = ("acme", "a.example"), ("acme", "b.example")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def make(clock):
    made = []

    def make(most):
        made.append(Caps(clock, most))
        return made[-1]

    yield make
    for limits in made:
        await limits.close()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def fill(limits, key, count):
    for _ in range(count):
        assert await limits.enter(key)


def test_a_call_is_slow_when_it_took_more_than_half_of_its_timeout():
    assert pace(0.2, 30) is Pace.QUICK
    assert pace(16, 30) is Pace.SLOW
    assert pace(100, 300) is Pace.QUICK


def test_quick_calls_raise_the_limit_to_its_maximum():
    limit = Limit(most=66, now=64)
    for _ in range(5):
        limit.learn(Pace.QUICK, 0, 0.1)
    assert limit.now == 66


def test_the_limit_does_not_grow_when_more_calls_only_make_each_slower():
    limit = Limit(most=500, now=32)
    for took in (0.1, 0.12, 0.15):
        limit.learn(Pace.QUICK, 0, took)
    assert limit.now == 35
    for _ in range(10):
        limit.learn(Pace.QUICK, 0, 2.0)
    assert limit.now == 35


def test_one_lucky_answer_does_not_stop_the_growth_for_ever():
    limit = Limit(most=500, now=32)
    limit.learn(Pace.QUICK, 0, 0.001)
    for _ in range(100):
        limit.learn(Pace.QUICK, 0, 1.0)
    assert limit.now > 60


def test_slow_calls_of_one_moment_halve_it_once():
    limit = Limit(most=100, now=64)
    for _ in range(64):
        limit.learn(Pace.SLOW, 0, 30)
    assert limit.now == 32
    for _ in range(32):
        limit.learn(Pace.SLOW, 30, 60)
    assert limit.now == 16


def test_the_limit_never_falls_below_two():
    limit = Limit(most=100, now=3)
    for step in range(5):
        limit.learn(Pace.SLOW, step * 30, step * 30 + 30)
    assert limit.now == 2


def test_a_call_that_tells_nothing_teaches_nothing():
    limit = Limit(most=100, now=64)
    limit.learn(Pace.UNKNOWN, 0, 30)
    assert limit == Limit(most=100, now=64)


async def test_a_full_host_holds_up_nobody_else(make, clock):
    limits = make(4)
    await fill(limits, A, 2)
    waiting = asyncio.create_task(limits.enter(A))
    await settle()
    assert not waiting.done()
    assert await limits.enter(B)
    limits.leave(A, Pace.QUICK, 0)
    assert await waiting


async def test_waiting_calls_get_their_turn_in_order(make, clock):
    limits = make(1)
    await fill(limits, A, 1)
    order = []

    async def one(number):
        assert await limits.enter(A)
        order.append(number)
        limits.leave(A, Pace.QUICK, 0)

    calls = [asyncio.create_task(one(number)) for number in range(3)]
    await settle()
    limits.leave(A, Pace.QUICK, 0)
    await asyncio.gather(*calls)
    assert order == [0, 1, 2]


async def test_a_host_where_nothing_ends_sends_the_waiting_back(make, clock):
    limits = make(4)
    await fill(limits, A, 2)
    waiting = asyncio.create_task(limits.enter(A))
    await settle()
    clock.advance(STALL_S)
    assert await waiting is False
    assert await limits.enter(A) is False  # and at once, until a call has ended


async def test_nobody_waits_longer_than_the_maximum_even_if_calls_end(make, clock):
    limits = make(1)
    await fill(limits, A, 1)
    line = [asyncio.create_task(limits.enter(A)) for _ in range(20)]
    await settle()
    served = 0
    while not line[-1].done():
        clock.advance(STALL_S / 2)
        limits.leave(A, Pace.UNKNOWN, 0)
        await settle()
        served += 1
    assert clock.elapsed_s() == MAX_WAIT_S
    assert [await call for call in line] == [number < MAX_WAIT_S / STALL_S * 2 for number in range(20)]
    assert served == MAX_WAIT_S / STALL_S * 2


async def test_where_calls_take_long_the_line_is_not_longer_than_what_ends_in_time(make, clock):
    limits = make(20)
    for _ in range(50):
        await fill(limits, A, 1)
        clock.advance(10)
        limits.leave(A, Pace.QUICK, clock.elapsed_s() - 10)
    await fill(limits, A, 20)
    line = [asyncio.create_task(limits.enter(A)) for _ in range(10)]
    await settle()
    assert sum(not call.done() for call in line) == 4  # twenty places, ten seconds a call, two seconds of patience
    for call in line:
        call.cancel()
    await asyncio.gather(*line, return_exceptions=True)


async def test_where_calls_are_prompt_everybody_may_wait(make, clock):
    limits = make(1)
    for _ in range(50):
        await fill(limits, A, 1)
        clock.advance(0.5)
        limits.leave(A, Pace.QUICK, clock.elapsed_s() - 0.5)
    await fill(limits, A, 1)
    line = [asyncio.create_task(limits.enter(A)) for _ in range(100)]
    await settle()
    assert not any(call.done() for call in line)
    for call in line:
        call.cancel()
    await asyncio.gather(*line, return_exceptions=True)


async def test_a_cancelled_wait_leaves_the_line_and_keeps_no_place(make, clock):
    limits = make(1)
    await fill(limits, A, 1)
    gone, stays = asyncio.create_task(limits.enter(A)), asyncio.create_task(limits.enter(A))
    await settle()
    gone.cancel()
    await settle()
    limits.leave(A, Pace.QUICK, 0)
    assert await stays
    # A turn that was given to a call just before it was cancelled goes on to the next one.
    late, after = asyncio.create_task(limits.enter(A)), asyncio.create_task(limits.enter(A))
    await settle()
    limits.leave(A, Pace.QUICK, 0)
    late.cancel()
    assert await after
    limits.leave(A, Pace.QUICK, 0)
    assert limits._hosts[A].in_flight == 0


async def test_a_shrunk_limit_is_remembered_for_a_while_and_then_forgotten(make, clock):
    limits = make(100)
    await fill(limits, A, 1)
    started = clock.elapsed_s()
    clock.advance(30)
    limits.leave(A, Pace.SLOW, started)
    assert limits.limit(A) == 25
    clock.advance(caps.FORGET_EVERY_S * 2)
    await fill(limits, B, 1)
    assert limits.limit(A) == 25
    clock.advance(caps.FORGET_AFTER_S)
    await fill(limits, "c", 1)
    assert limits.limit(A) == 50
    assert limits.hosts == 2  # b still has its call
