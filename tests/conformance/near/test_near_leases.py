"""The lease index: whose lease is over, exactly as long as it is."""

from __future__ import annotations

from tests.conformance.near.world import World


async def test_leases_are_over_in_the_order_of_their_ends_and_stay_until_they_are_ended(world: World) -> None:
    await world.near.lease([("c", 1, 3_000), ("a", 1, 1_000), ("b", 2, 2_000)])
    assert await world.near.next_lease_end() == 1_000
    assert await world.near.leases_over(1_000, 10) == []
    assert await world.near.leases_over(1_001, 10) == [("a", 1)]
    assert await world.near.leases_over(9_000, 2) == [("a", 1), ("b", 2)]
    assert await world.near.leases_over(9_000, 10) == [("a", 1), ("b", 2), ("c", 1)]
    await world.near.unlease([("a", 1)])
    assert await world.near.leases_over(9_000, 10) == [("b", 2), ("c", 1)]
    assert await world.near.next_lease_end() == 2_000
    assert (await world.near.figures()).leases == 2


async def test_a_renewed_lease_ends_later(world: World) -> None:
    await world.near.lease([("a", 1, 1_000), ("b", 1, 1_000), ("c", 1, 1_000)])
    await world.near.lease([("a", 1, 5_000)])
    assert sorted(await world.near.leases_over(2_000, 10)) == [("b", 1), ("c", 1)]
    await world.near.unlease([("b", 1), ("c", 1)])
    assert await world.near.next_lease_end() == 5_000
    assert await world.near.leases_over(5_001, 10) == [("a", 1)]


async def test_a_shorter_lease_ends_earlier(world: World) -> None:
    await world.near.lease([("a", 1, 9_000)])
    await world.near.lease([("a", 1, 2_000)])
    assert await world.near.next_lease_end() == 2_000
    assert await world.near.leases_over(2_001, 10) == [("a", 1)]
    await world.near.unlease([("a", 1)])
    assert await world.near.next_lease_end() is None


async def test_an_older_attempt_neither_replaces_nor_ends_a_newer_one(world: World) -> None:
    await world.near.lease([("a", 2, 2_000)])
    await world.near.lease([("a", 1, 9_000)])
    await world.near.unlease([("a", 1)])
    assert await world.near.leases_over(3_000, 10) == [("a", 2)]


async def test_a_new_attempt_replaces_the_lease_of_the_one_before(world: World) -> None:
    await world.near.lease([("a", 1, 2_000)])
    await world.near.lease([("a", 2, 8_000)])
    assert await world.near.leases_over(3_000, 10) == []
    assert await world.near.leases_over(9_000, 10) == [("a", 2)]


async def test_many_short_jobs_leave_the_index_right(world: World) -> None:
    for at in range(300):
        await world.near.lease([(f"{at}/{n}", 1, 30_000 + at) for n in range(100)])
        await world.near.unlease([(f"{at}/{n}", 1) for n in range(100) if n != at % 100])
    assert await world.near.next_lease_end() == 30_000
    over = await world.near.leases_over(30_100, 1_000)
    assert over == [(f"{at}/{at % 100}", 1) for at in range(100)]
    assert (await world.near.figures()).leases == 300
