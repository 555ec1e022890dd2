"""Two processes share what is ready: what one brings the other hands out, once, and no process is needed for another's end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import Protocol

import pytest

from tests.conformance.near.world import PARTITIONS, World, ids, turns
from tests.servers.redis import RedisServer, new_installation
from tocsin.clock import ManualClock
from tocsin.near.port import TENANT_LIMIT, Pop, QueueGate
from tocsin.near.redis import open_near
from tocsin.wire import Status


class Join(Protocol):
    """Starts another process's tier."""

    def __call__(self, *, tenant_limit: int = TENANT_LIMIT) -> Awaitable[World]: ...


@pytest.fixture
def installation() -> str:
    """The name that the test's processes share."""
    return new_installation()


@pytest.fixture
async def join(redis_server: RedisServer, installation: str) -> AsyncIterator[Join]:
    """Another process of the test's installation; all share a clock."""
    clock = ManualClock(datetime(2026, 3, 1, 9, tzinfo=UTC))
    joined: list[World] = []

    async def join_one(*, tenant_limit: int = TENANT_LIMIT) -> World:
        near = await open_near(
            redis_server.url, clock, installation=installation, partitions=PARTITIONS, tenant_limit=tenant_limit
        )
        if not joined:
            await near.begin(range(PARTITIONS))
        # The request IDs of two processes differ, as they do where a worker's name is part of them.
        joined.append(World(near, clock, PARTITIONS, requests=1_000 * len(joined)))
        return joined[-1]

    yield join_one
    for world in joined:
        await world.near.close()


@pytest.fixture
async def one(join: Join) -> World:
    return await join()


@pytest.fixture
async def two(one: World, join: Join) -> World:
    return await join()


async def waiting(world: World, wish: Pop) -> asyncio.Future[bool]:
    """A claim that stands in the order."""
    task = asyncio.ensure_future(world.near.wait_ready(wish, 1.0))
    await world.turns()
    assert not task.done()
    return task


async def test_a_push_wakes_a_claim_that_waits_in_another_process(one: World, two: World) -> None:
    await one.open()
    task = await waiting(two, two.wish(handlers=("send",)))
    await one.near.push([due := one.due()])
    await two.turns()
    assert task.done()
    assert await two.claim() == [due.job_id]


async def test_callbacks_wake_an_executor_in_another_process(one: World, two: World) -> None:
    await one.open()
    task = await waiting(two, two.executor_wish())
    await one.near.push([due := one.callback()])
    await two.turns()
    assert task.done()
    assert await two.claim(two.executor_wish()) == [due.job_id]


async def test_one_job_wakes_one_claim_over_all_processes_the_longest_waiting_first(one: World, two: World) -> None:
    await one.open()
    tasks = []
    for world in (two, one, two):
        tasks.append(await waiting(world, world.wish()))
        world.clock.advance(0.1)
    for woken in (1, 2, 3):
        await one.near.push([one.due()])
        await one.turns()
        await two.turns()
        assert [task.done() for task in tasks] == [at < woken for at in range(3)]


async def test_a_queue_opened_by_one_wakes_a_claim_in_the_other(one: World, two: World) -> None:
    await one.near.configure("acme", "mail", QueueGate(paused=True))
    await one.near.push([one.due()])
    task = await waiting(two, two.wish())
    await one.open()
    await two.turns()
    assert task.done()


async def test_a_claim_that_was_cancelled_with_its_wake_up_passes_it_to_another_process(one: World, two: World) -> None:
    await one.open()
    first = await waiting(one, one.wish())
    one.clock.advance(0.1)
    second = await waiting(two, two.wish())
    pushing = asyncio.ensure_future(two.near.push([two.due()]))
    await asyncio.sleep(0)
    first.cancel()
    await pushing
    await one.turns()
    await two.turns()
    assert first.cancelled()
    assert second.done()


@pytest.mark.parametrize("callbacks", [False, True])
async def test_what_one_has_popped_the_other_does_not_get(one: World, two: World, callbacks: bool) -> None:
    await one.open()
    dues = [one.callback(at) if callbacks else one.due(at) for at in range(40)]
    await one.near.push(dues)
    worlds = (one, two, one, two)
    popped = await asyncio.gather(
        *(world.pop(world.executor_wish(10) if callbacks else world.wish(10)) for world in worlds)
    )
    assert sorted(job for each in popped for job in ids(each.dues)) == sorted(ids(dues))


@pytest.mark.parametrize("callbacks", [False, True])
async def test_what_a_dead_process_has_in_hand_comes_back_in_ten_seconds(
    one: World, two: World, callbacks: bool
) -> None:
    await one.open()
    await one.near.push([due := one.callback() if callbacks else one.due()])
    assert ids((await one.pop(one.executor_wish() if callbacks else one.wish())).dues) == [due.job_id]
    await one.near.close()
    two.clock.advance(9.9)
    assert await two.claim(two.executor_wish() if callbacks else two.wish()) == []
    # The executor looks at all tags, those without marked callbacks too, once a second.
    two.clock.advance(1 if callbacks else 0.2)
    assert await two.claim(two.executor_wish() if callbacks else two.wish()) == [due.job_id]


async def test_the_figures_empty_hands_in_queues_that_nobody_asks_for(one: World, two: World) -> None:
    await one.open()
    await one.near.push([one.due(), one.callback()])
    await one.pop()
    await one.pop(one.executor_wish())
    await one.near.close()
    two.clock.advance(10.1)
    figures = await two.near.figures(two.all)
    assert (figures.ready, figures.in_hand) == (2, 0)


@pytest.mark.parametrize("callbacks", [False, True])
async def test_a_repeat_at_another_process_gets_the_same(one: World, two: World, callbacks: bool) -> None:
    queues = [("acme", "mail"), ("acme", "fax"), ("globex", "mail")] if callbacks else [("acme", "mail")]
    await one.open(*queues)
    dues = [
        one.callback(at, tenant=tenant, queue=queue) if callbacks else one.due(at)
        for at, (tenant, queue) in enumerate(queues)
    ]
    await one.near.push(dues)
    wish = one.executor_wish() if callbacks else one.wish()
    first = await one.pop(wish)
    assert sorted(ids((await two.pop(wish)).dues)) == sorted(ids(first.dues)) == sorted(ids(dues))
    claimed = [(job, 3) for job in ids(first.dues)]
    await two.near.settle(wish.request_id, claimed)
    again = await one.pop(wish)
    assert again.repeated
    assert list(again.attempts) == claimed
    assert (await one.near.figures(one.all)).in_hand == 0


async def test_a_claim_settled_by_a_process_that_did_not_pop_it_is_settled(one: World, two: World) -> None:
    await one.open()
    await one.near.push(dues := [one.due(at) for at in range(2)])
    wish = one.wish()
    await one.pop(wish)
    await two.near.settle(wish.request_id, [(due.job_id, 1) for due in dues])
    assert (await one.near.figures(one.all)).in_hand == 0
    await one.near.push([due := one.due()])
    await one.pop(other := one.wish())
    await two.near.unpop(other.request_id)
    assert await two.claim() == [due.job_id]


async def test_a_pusher_that_dies_before_it_marks_its_callbacks_hides_them_for_a_second(
    one: World, two: World, redis_server: RedisServer, installation: str
) -> None:
    await one.open()
    assert await two.claim(two.executor_wish()) == []
    await one.near.push([due := one.callback()])
    marks = f"{{{installation}:q0}}:{await one.near.generation()}:marked"
    assert redis_server.ask("DEL", marks) == b":1\r\n"
    assert await two.claim(two.executor_wish()) == []
    two.clock.advance(1)
    assert await two.claim(two.executor_wish()) == [due.job_id]


async def test_a_line_parked_by_one_takes_nothing_from_the_other(one: World, two: World) -> None:
    await one.near.set_parked((due := one.due()).line, 3, True)
    assert await two.near.push([due]) == [due]
    assert await two.near.lines_with_room([2]) == []
    assert await two.near.lines_with_room([3]) == [due.line]


async def test_a_tenants_limit_counts_what_another_process_pushed_a_second_ago(join: Join) -> None:
    one, two = await join(tenant_limit=6), await join(tenant_limit=6)
    assert await two.near.push([two.due(queue="mine")]) == []
    assert await one.near.push([one.due(queue="theirs") for _ in range(5)]) == []
    two.clock.advance(1)
    late = two.due(queue="mine")
    assert await two.near.push([late]) == [late]


async def test_counts_are_of_all_processes(one: World, two: World) -> None:
    key = ("acme", "mail", Status.QUEUED)
    await one.near.add_counts({key: 2})
    await two.near.add_counts({key: 3})
    assert await one.near.counts() == await two.near.counts() == {key: 5}


async def test_closing_one_process_wakes_its_own_claims_only(one: World, two: World) -> None:
    mine, theirs = await waiting(one, one.wish()), await waiting(two, two.wish())
    await one.near.close()
    await turns()
    assert mine.done()
    assert not theirs.done()
    two.clock.advance(1)
    assert await theirs
