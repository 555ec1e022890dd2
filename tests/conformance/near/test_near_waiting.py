"""Waiting claims: one woken per job, the longest waiting first, and nobody for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.conformance.near.world import World, turns
from tocsin.near.port import Pop, QueueGate

Start = Callable[..., "asyncio.Future[bool]"]


@pytest.fixture
async def start(world: World) -> AsyncIterator[Start]:
    """Lets a claim wait; those still waiting at the end are cancelled."""
    waiting: list[asyncio.Future[bool]] = []

    def start_one(wish: Pop | None = None, timeout_s: float = 20.0) -> asyncio.Future[bool]:
        waiting.append(asyncio.ensure_future(world.near.wait_ready(wish or world.wish(), timeout_s)))
        return waiting[-1]

    yield start_one
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def done(waiting: list[asyncio.Future[Any]]) -> list[int]:
    return [at for at, task in enumerate(waiting) if task.done()]


async def test_a_push_wakes_one_claim_per_job_the_longest_waiting_first(world: World, start: Start) -> None:
    await world.open()
    waiting = []
    for _ in range(5):
        waiting.append(start())
        await world.turns()
    await world.near.push([world.due(), world.due()])
    await world.turns()
    assert done(waiting) == [0, 1]
    await world.near.push([world.due()])
    await world.turns()
    assert done(waiting) == [0, 1, 2]


async def test_only_claims_that_can_take_the_job_are_woken(world: World, start: Start) -> None:
    await world.open(("acme", "mail"), ("acme", "fax"))
    waiting = [
        start(world.wish(handlers=("other",))),
        start(world.wish(queue="fax")),
        start(world.wish(tenant="globex")),
        start(world.executor_wish()),
        start(world.wish(handlers=("send",))),
        start(world.wish()),
    ]
    await world.turns()
    await world.near.push([world.due() for _ in range(5)])
    await world.turns()
    assert done(waiting) == [4, 5]
    await world.near.push([world.callback()])
    await world.turns()
    assert done(waiting) == [3, 4, 5]


async def test_a_claim_for_which_there_is_a_job_does_not_wait(world: World, start: Start) -> None:
    await world.open()
    await world.near.push([world.due(), world.callback()])
    waiting = [start(), start(world.executor_wish()), start(world.wish(handlers=("other",)))]
    await world.turns()
    assert done(waiting) == [0, 1]


async def test_a_claim_looks_again_after_a_second_at_the_latest(world: World, start: Start) -> None:
    waiting = [start(), start(timeout_s=0.3), start(world.executor_wish()), start(timeout_s=0)]
    await world.turns()
    assert done(waiting) == [3]
    world.clock.advance(0.3)
    await world.turns()
    assert done(waiting) == [1, 3]
    world.clock.advance(0.7)
    await world.turns()
    assert done(waiting) == [0, 1, 2, 3]


async def test_jobs_of_a_paused_queue_wake_nobody_and_its_resumption_does(world: World, start: Start) -> None:
    for task in (True, False):
        await world.near.configure("acme", "mail", QueueGate(paused=True))
        waiting = start(world.wish() if task else world.executor_wish())
        await world.turns()
        await world.near.push([world.due() if task else world.callback()])
        await world.pop(world.executor_wish())
        await world.turns()
        assert not waiting.done()
        await world.open()
        await world.turns()
        assert waiting.done()


async def test_a_claim_on_a_paused_queue_waits(world: World, start: Start) -> None:
    await world.near.configure("acme", "mail", QueueGate(paused=True, paused_until=world.now + 3_000))
    await world.near.push([world.due(), world.callback()])
    await world.pop(world.executor_wish())
    waiting = [start(), start(world.executor_wish())]
    await world.turns()
    assert done(waiting) == []
    world.clock.advance(3)
    await world.turns()
    assert done([start(), start(world.executor_wish())]) == []
    await world.turns()
    assert done(waiting) == [0, 1]


async def test_jobs_given_back_wake_claims(world: World, start: Start) -> None:
    await world.open()
    await world.near.push([world.due()])
    wish = world.wish()
    await world.pop(wish)
    waiting = start()
    await world.turns()
    await world.near.unpop(wish.request_id)
    await world.turns()
    assert waiting.done()


async def test_a_claim_that_is_cancelled_passes_its_wake_up_on(world: World, start: Start) -> None:
    await world.open()
    first = start()
    await world.turns()
    second = start()
    await world.turns()
    # The push is under way, and has woken the first where that needs no server, when the first is cancelled.
    pushing = asyncio.ensure_future(world.near.push([world.due()]))
    await asyncio.sleep(0)
    first.cancel()
    await pushing
    await world.turns()
    assert first.cancelled()
    assert second.done()


async def test_a_cancelled_claim_takes_no_wake_up(world: World, start: Start) -> None:
    await world.open()
    first = start()
    await world.turns()
    second = start()
    await world.turns()
    first.cancel()
    await world.turns()
    await world.near.push([world.due()])
    await world.turns()
    assert second.done()


async def test_closing_wakes_everybody_and_nobody_waits_after_it(world: World, start: Start) -> None:
    waiting: list[asyncio.Future[Any]] = [start(), start(world.executor_wish())]
    waiting.append(asyncio.ensure_future(world.near.wait_due(20)))
    await world.turns()
    await world.near.quiesce()
    await world.turns()
    assert done(waiting) == [0, 1, 2]
    assert not await world.near.wait_ready(world.wish(), 20)


async def test_a_dispatcher_still_sleeps_after_closing(world: World, start: Start) -> None:
    """It runs on while requests under way are answered, and must not turn without rest."""
    await world.near.quiesce()
    await world.near.wait_due(20)  # closing woke it
    waiting = asyncio.ensure_future(world.near.wait_due(20))
    await turns()
    assert not waiting.done()
    world.clock.advance(20)
    await turns()
    assert waiting.done()
