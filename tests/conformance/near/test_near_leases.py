"""The lease index: whose lease is over, exactly as long as it is."""

from __future__ import annotations

from tests.conformance.near.world import World


async def test_leases_are_over_in_the_order_of_their_ends_and_stay_until_they_are_ended(world: World) -> None:
    a, b, c = (world.job_id() for _ in range(3))
    await world.near.lease([(c, 1, 3_000), (a, 1, 1_000), (b, 2, 2_000)])
    assert await world.near.next_lease_end(world.all) == 1_000
    assert await world.near.leases_over(world.all, 1_000, 10) == []
    assert await world.near.leases_over(world.all, 1_001, 10) == [(a, 1)]
    assert await world.near.leases_over(world.all, 9_000, 2) == [(a, 1), (b, 2)]
    assert await world.near.leases_over(world.all, 9_000, 10) == [(a, 1), (b, 2), (c, 1)]
    await world.near.unlease([(a, 1)])
    assert await world.near.leases_over(world.all, 9_000, 10) == [(b, 2), (c, 1)]
    assert await world.near.next_lease_end(world.all) == 2_000
    assert (await world.near.figures(world.all)).leases == 2


async def test_a_renewed_lease_ends_later(world: World) -> None:
    a, b, c = (world.job_id() for _ in range(3))
    await world.near.lease([(a, 1, 1_000), (b, 1, 1_000), (c, 1, 1_000)])
    await world.near.lease([(a, 1, 5_000)])
    assert sorted(await world.near.leases_over(world.all, 2_000, 10)) == [(b, 1), (c, 1)]
    await world.near.unlease([(b, 1), (c, 1)])
    assert await world.near.next_lease_end(world.all) == 5_000
    assert await world.near.leases_over(world.all, 5_001, 10) == [(a, 1)]


async def test_a_shorter_lease_ends_earlier(world: World) -> None:
    a = world.job_id()
    await world.near.lease([(a, 1, 9_000)])
    await world.near.lease([(a, 1, 2_000)])
    assert await world.near.next_lease_end(world.all) == 2_000
    assert await world.near.leases_over(world.all, 2_001, 10) == [(a, 1)]
    await world.near.unlease([(a, 1)])
    assert await world.near.next_lease_end(world.all) is None


async def test_an_older_attempt_neither_replaces_nor_ends_a_newer_one(world: World) -> None:
    a = world.job_id()
    await world.near.lease([(a, 2, 2_000)])
    await world.near.lease([(a, 1, 9_000)])
    await world.near.unlease([(a, 1)])
    assert await world.near.leases_over(world.all, 3_000, 10) == [(a, 2)]


async def test_a_new_attempt_replaces_the_lease_of_the_one_before(world: World) -> None:
    a = world.job_id()
    await world.near.lease([(a, 1, 2_000)])
    await world.near.lease([(a, 2, 8_000)])
    assert await world.near.leases_over(world.all, 3_000, 10) == []
    assert await world.near.leases_over(world.all, 9_000, 10) == [(a, 2)]


async def test_many_short_jobs_leave_the_index_right(world: World) -> None:
    jobs = [[world.job_id() for _ in range(100)] for _ in range(110)]
    for at, here in enumerate(jobs):
        await world.near.lease([(job_id, 1, 30_000 + at) for job_id in here])
        await world.near.unlease([(job_id, 1) for n, job_id in enumerate(here) if n != at % 100])
    assert await world.near.next_lease_end(world.all) == 30_000
    over = await world.near.leases_over(world.all, 30_100, 1_000)
    assert over == [(jobs[at][at % 100], 1) for at in range(100)]
    assert (await world.near.figures(world.all)).leases == 110


async def test_each_partition_is_asked_for_its_own_leases(world: World) -> None:
    here, there = world.job_id(partition=1), world.job_id(partition=2)
    await world.near.lease([(here, 1, 1_000), (there, 1, 2_000)])
    assert await world.near.leases_over([2, 3], 9_000, 1) == [(there, 1)]
    assert await world.near.leases_over([1], 9_000, 10) == [(here, 1)]
    assert await world.near.leases_over([0], 9_000, 10) == []
