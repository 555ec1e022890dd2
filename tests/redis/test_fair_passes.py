"""Passes over many partitions and tenants: all come out once, in order and fairly, for few calls."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.conformance.near.world import World, ids
from tests.redis.keys import client
from tests.servers.redis import RedisServer
from tocsin.model.job import Lane
from tocsin.model.timer import Due


def calls(server: RedisServer) -> int:
    """How many programs the server has run."""
    with client(server) as redis:
        stats = redis.info("commandstats")
    return sum(stats[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_evalsha_ro") if name in stats)


async def test_a_pass_asks_each_partition_a_few_times_however_many_members_it_takes(
    shared: World, redis_server: RedisServer
) -> None:
    await shared.near.offer(shared.dues(3_000))
    before = calls(redis_server)
    taken = await shared.take(1_000)
    assert len(taken) == 1_000
    assert calls(redis_server) - before <= 2 * shared.partitions
    await shared.near.drop(taken)
    rest = await shared.take_and_drop(1_000) + await shared.take_and_drop(1_000)
    assert len(rest) == 2_000
    assert calls(redis_server) - before <= 10 * shared.partitions


async def test_a_pass_with_nothing_to_do_asks_nobody(shared: World, redis_server: RedisServer) -> None:
    await shared.near.offer([due := shared.due(5_000)])
    assert await shared.take() == []
    assert await shared.near.next_due(shared.all) == due.due_at
    before = calls(redis_server)
    for _ in range(10):
        assert await shared.take() == []
        assert await shared.near.next_due(shared.all) == due.due_at
    assert calls(redis_server) == before
    await shared.near.remove([due.job_id])


async def test_members_that_lie_in_one_partition_come_before_later_ones_of_all_others(shared: World) -> None:
    early = [shared.due(at, partition=2) for at in range(400)]
    late = [shared.due(1_000 + at, partition=at % 4) for at in range(400)]
    await shared.near.offer(late + early)
    shared.clock.advance(60)
    taken: list[Due] = []
    while some := await shared.take_and_drop(90):
        taken += some
    assert taken == early + late


async def test_more_tenants_than_one_look_lists_are_all_served(shared: World) -> None:
    dues = [shared.due(at % 7, tenant=f"tenant {at % 500}") for at in range(1_000)]
    await shared.near.offer(dues)
    shared.clock.advance(1)
    taken: list[Due] = []
    for _ in range(40):
        taken += await shared.take_and_drop(100)
    assert sorted(ids(taken)) == sorted(ids(dues))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_member_comes_out_once_whatever_comes_between(shared: World, seed: int) -> None:
    chance = random.Random(seed)
    offered: dict[str, Due] = {}
    fired: Counter[str] = Counter()
    for _ in range(60):
        dues = [
            shared.due(
                chance.randrange(-2_000, 3_000),
                tenant=chance.choice("abcd"),
                lane=chance.choice(list(Lane)),
                partition=chance.randrange(4),
            )
            for _ in range(chance.randrange(30))
        ]
        offered |= {due.job_id: due for due in dues}
        await shared.near.offer(dues + chance.sample(list(offered.values()), min(3, len(offered))))
        taken = await shared.take(chance.randrange(1, 25))
        assert all(due.due_at <= shared.now for due in taken)
        for tenant, lane in {(due.line.tenant, due.line.lane) for due in taken}:
            times = [due.due_at for due in taken if (due.line.tenant, due.line.lane) == (tenant, lane)]
            assert times == sorted(times)
        back = [due for due in taken if chance.random() < 0.2]
        await shared.near.restore(back)
        gone = [due for due in taken if due not in back]
        await shared.near.drop(gone)
        fired.update(ids(gone))
        for due in gone:
            # The loader does not offer what has fired.
            offered.pop(due.job_id)
        shared.clock.advance(chance.choice([0, 0.01, 0.3, 1]))
    shared.clock.advance(10)
    while rest := await shared.take_and_drop(50):
        fired.update(ids(rest))
        for due in rest:
            offered.pop(due.job_id)
    assert offered == {}
    assert set(fired.values()) == {1}
