"""Who owns what in a fleet, whatever happens to its nodes: started, killed, hung, stopped, cut off, revoked."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.flow.fleet import PARTITIONS, Fleet, Node, memory_fleet
from tests.life.memoryregistry import Book, MemoryRegistry
from tests.servers.frozen import frozen_database
from tocsin.clock import ManualClock
from tocsin.errors import LeasesUnavailable
from tocsin.flow.ownership import TRUSTED_S
from tocsin.lease.port import SESSION_TTL_S, Assignment, Registry, SessionId, Why
from tocsin.lease.postgres import open_registry
from tocsin.model.assignment import STABLE_S

# What is promised, from the death of a node to the first fire of its partitions by another.
FAILOVER_S = 15.0
ALL = set(range(PARTITIONS))


@pytest.fixture
def shared() -> tuple[Fleet, Book]:
    return memory_fleet()


@pytest.fixture
def fleet(shared: tuple[Fleet, Book]) -> Fleet:
    return shared[0]


@pytest.fixture
def book(shared: tuple[Fleet, Book]) -> Book:
    return shared[1]


@pytest.fixture(params=["memory", "postgres"])
async def any_fleet(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    if request.param == "memory":
        yield memory_fleet()[0]
        return
    async with frozen_database(request.getfixturevalue("postgres")) as database:
        clock, registries = ManualClock(), []

        async def make() -> Registry:
            registries.append(await open_registry(database.dsn))
            return registries[-1]

        async def advance(seconds: float) -> None:
            clock.advance(seconds)
            await database.advance(seconds)

        yield Fleet(make, clock, advance)
        for registry in registries:
            await registry.close()


async def settled(fleet: Fleet, nodes: int = 3) -> list[Node]:
    """Nodes that own everything between them and are stable."""
    started = [await fleet.start() for _ in range(nodes)]
    await fleet.run(STABLE_S + 2)
    assert fleet.all_owned()
    return started


def shares(nodes: list[Node]) -> list[int]:
    return sorted(len(node.owned()) for node in nodes)


async def newest_moves(fleet: Fleet, limit: int = PARTITIONS):
    assert fleet.watch is not None
    return await fleet.watch.moves(limit)


# --- starting and joining ---------------------------------------------------------------------------------------------


async def test_three_nodes_that_start_together_soon_own_everything_in_equal_shares(any_fleet: Fleet) -> None:
    nodes = [await any_fleet.start() for _ in range(3)]
    assert all(node.owned() == set() for node in nodes), "a session alone owns nothing"
    assert await any_fleet.run(4, any_fleet.all_owned) <= 2
    await any_fleet.run(3)
    assert shares(nodes) == [2, 3, 3]
    for node in nodes:
        assert set(node.gained) - set(node.lost) == node.owned()
    moves = await newest_moves(any_fleet)
    assert {move.why for move in moves} == {Why.FIRST}
    assert {move.partition: move.to_session for move in moves} == {
        partition: node.session for node in nodes for partition in node.owned()
    }


async def test_a_node_that_joins_waits_for_half_a_minute_and_then_gets_its_share_after_it_was_released(
    fleet: Fleet,
) -> None:
    nodes = await settled(fleet, 2)
    before = {partition: node for node in nodes for partition in node.owned()}
    for node in nodes:
        node.lost.clear()
    late = await fleet.start("late")
    await fleet.run(STABLE_S - 2)
    assert late.owned() == set()
    assert fleet.all_owned()
    await fleet.run(5)
    assert shares([*nodes, late]) == [2, 3, 3]
    taken = late.owned()
    assert sorted(partition for node in nodes for partition in node.lost) == sorted(taken)
    moves = await newest_moves(fleet, len(taken))
    assert {(move.partition, move.from_session, move.from_node, move.to_node, move.why) for move in moves} == {
        (partition, before[partition].session, before[partition].name, "late", Why.BALANCE) for partition in taken
    }


async def test_processes_of_one_host_and_configuration_have_identities_of_their_own(fleet: Fleet) -> None:
    nodes = [await fleet.start("same-host") for _ in range(3)]
    await fleet.run(5)
    assert len({node.session for node in nodes}) == 3
    assert shares(nodes) == [2, 3, 3]
    killed = nodes[1]
    fleet.kill(killed)
    reborn = await fleet.start("same-host")
    assert reborn.session != killed.session
    await fleet.run(FAILOVER_S)
    assert fleet.all_owned()


async def test_who_is_no_node_is_seen_but_is_given_nothing(fleet: Fleet) -> None:
    api = await fleet.start("api", roles=("api",))
    api.stuck = {"coordinate", "own"}
    node = await fleet.start()
    await fleet.run(STABLE_S + 5)
    assert node.owned() == ALL
    assert fleet.watch is not None
    assert {member.facts.node for member in await fleet.watch.members()} == {"api", "n2"}


async def test_a_map_that_needs_no_change_is_not_written_again(fleet: Fleet, book: Book) -> None:
    await settled(fleet)
    version = book.assignment.version
    await fleet.run(60)
    assert book.assignment.version == version


# --- nodes that die ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("chief_dies", [False, True])
async def test_a_dead_nodes_partitions_are_owned_again_within_the_bound(
    fleet: Fleet, after_s: float, chief_dies: bool
) -> None:
    nodes = await settled(fleet)
    chief = await fleet.chief()
    dead = chief if chief_dies else next(node for node in nodes if node is not chief)
    await fleet.run(after_s)
    fleet.kill(dead)
    assert await fleet.run(20, fleet.all_owned) <= FAILOVER_S - 1
    assert shares(fleet.nodes) == [4, 4]
    moves = await newest_moves(fleet, 2)
    assert {(move.from_node, move.why) for move in moves} == {(dead.name, Why.GONE)}


async def test_the_coordinator_and_another_node_die_together(any_fleet: Fleet) -> None:
    nodes = [await any_fleet.start() for _ in range(3)]
    await any_fleet.run(5)
    chief = await any_fleet.chief()
    any_fleet.kill(chief)
    any_fleet.kill(next(node for node in nodes if node is not chief))
    (left,) = any_fleet.nodes
    assert await any_fleet.run(20, any_fleet.all_owned) <= FAILOVER_S - 1
    assert left.owned() == ALL
    assert set(left.gained) == ALL


async def test_when_all_stable_nodes_die_a_new_one_does_not_wait(fleet: Fleet) -> None:
    nodes = await settled(fleet)
    young = await fleet.start()
    await fleet.run(3)
    for node in nodes:
        fleet.kill(node)
    assert await fleet.run(20, fleet.all_owned) <= FAILOVER_S - 1
    assert young.owned() == ALL


async def test_a_node_that_stops_in_order_is_replaced_at_once(any_fleet: Fleet) -> None:
    nodes = [await any_fleet.start() for _ in range(3)]
    await any_fleet.run(5)
    for stopping in (await any_fleet.chief(), nodes[0], nodes[1]):
        if stopping not in any_fleet.nodes or len(any_fleet.nodes) == 1:
            continue
        had = stopping.owned()
        await stopping.ownership.release()
        assert stopping.owned() == set()
        assert had <= set(stopping.lost)
        await stopping.ownership.release()
        assert await any_fleet.run(10, any_fleet.all_owned) <= 3
        assert stopping.session is None, "who has stopped does not begin again"
        any_fleet.kill(stopping)


# --- nodes that live, but not as they should --------------------------------------------------------------------------


async def test_a_node_whose_dispatcher_hangs_loses_its_partitions_and_joins_anew_when_that_goes_on(
    fleet: Fleet,
) -> None:
    nodes = await settled(fleet)
    hung, session, had = nodes[0], nodes[0].session, nodes[0].owned()
    hung.hung = True
    assert await fleet.run(20, lambda: not hung.owned()) <= 3 + TRUSTED_S
    assert await fleet.run(20, fleet.all_owned) <= FAILOVER_S - TRUSTED_S
    await fleet.run(20)
    assert hung.session == session, "it opens no new one while it hangs"
    hung.hung = False
    await fleet.run(1)
    assert hung.session not in (None, session)
    assert set(hung.lost) == had
    await fleet.run(STABLE_S - 3)
    assert hung.owned() == set()
    await fleet.run(5)
    assert shares(nodes) == [2, 3, 3]


async def test_a_node_that_hung_because_it_cannot_write_joins_again_only_when_it_can(fleet: Fleet) -> None:
    nodes = await settled(fleet)
    hung = nodes[0]
    hung.hung, hung.useful = True, False
    await fleet.run(FAILOVER_S + 3)
    assert hung.owned() == set()
    # It owns nothing, so its dispatcher finds nothing to do, and passes.
    hung.hung = False
    await fleet.run(STABLE_S + 5)
    assert hung.session is None
    assert fleet.all_owned()
    hung.useful = True
    await fleet.run(1)
    assert hung.session is not None
    await fleet.run(STABLE_S + 2)
    assert shares(nodes) == [2, 3, 3]


async def test_a_process_that_was_stopped_owns_nothing_when_it_wakes_and_joins_anew(any_fleet: Fleet) -> None:
    nodes = [await any_fleet.start() for _ in range(3)]
    await any_fleet.run(5)
    asleep = await any_fleet.chief()
    session = asleep.session
    assert asleep.coordinate.elected
    believed = asleep.owned()
    assert believed
    asleep.paused = True
    await any_fleet.run(FAILOVER_S)
    others = set().union(*(node.owned() for node in nodes if node is not asleep))
    assert others == ALL
    # Two believe that they own the same partitions exactly where one looked before it was stopped, and acts on it now.
    assert believed & others == believed
    assert asleep.owned() == set(), "who looks again owns nothing, before it has asked anybody"
    assert not asleep.coordinate.elected
    asleep.paused = False
    await any_fleet.run(1)
    assert set(asleep.lost) >= believed
    assert asleep.session not in (None, session)
    assert asleep.owned() == set()
    assert await any_fleet.chief() is not asleep


async def test_a_stop_that_is_shorter_than_the_session_costs_nothing_but_its_time(fleet: Fleet) -> None:
    nodes = await settled(fleet)
    asleep, had, rebuilt = nodes[0], nodes[0].owned(), list(nodes[0].gained)
    asleep.paused = True
    await fleet.run(6)
    assert asleep.owned() == set()
    asleep.paused = False
    await fleet.run(0)
    assert asleep.owned() == had
    assert asleep.lost == []
    assert asleep.gained == rebuilt


async def test_a_renewal_is_trusted_from_when_it_was_sent_not_from_its_answer(fleet: Fleet) -> None:
    node, _ = await settled(fleet, 2)
    renew = node.registry.renew
    waits_s = TRUSTED_S - 1

    async def slow(session, vitals):
        stands = await renew(session, vitals)
        fleet.clock.advance(waits_s)
        return stands

    node.registry.renew = slow  # type: ignore[method-assign]
    await fleet.run(4, lambda: node.session is not None and fleet.clock.elapsed_s() % 3 == 0)
    session = node.ownership.session
    assert session is not None
    await node.ownership.renew(session)
    assert node.owned()
    fleet.clock.advance(1.001)
    assert node.owned() == set()


async def test_a_node_that_does_not_release_is_revoked_and_told_by_its_next_renewal(fleet: Fleet) -> None:
    nodes = await settled(fleet, 2)
    chief = await fleet.chief()
    stubborn = next(node for node in nodes if node is not chief)
    session, had = stubborn.session, stubborn.owned()
    assert session is not None
    stubborn.stuck = {"own"}
    await fleet.start()
    await fleet.run(STABLE_S - 1)
    fleet.revoked.add(session)
    passed_s = await fleet.run(20, lambda: stubborn.session != session)
    assert 5 <= passed_s <= 1 + 1 + 5 + 1 + 3, "stable, planned, waited for, seen, renewed"
    assert set(stubborn.lost) == had
    stubborn.stuck = set()
    await fleet.run(3)
    assert fleet.all_owned()
    assert stubborn.owned() == set(), "it has begun anew, and is not stable yet"
    assert Why.REVOKED in {move.why for move in await newest_moves(fleet)}


async def test_a_node_that_is_slow_to_release_but_does_is_not_revoked(fleet: Fleet) -> None:
    nodes = await settled(fleet, 2)
    sessions = [node.session for node in nodes]
    for node in nodes:
        node.stuck = {"own"}
    third = await fleet.start()
    await fleet.run(STABLE_S + 4)
    assert third.owned() == set(), "the map is written, and nothing is free"
    for node in nodes:
        node.stuck = set()
    await fleet.run(3)
    assert [node.session for node in nodes] == sessions
    assert shares([*nodes, third]) == [2, 3, 3]


# --- a registry that cannot be reached, or forgets --------------------------------------------------------------------


async def test_a_node_that_is_cut_off_stops_by_itself_before_anybody_can_take_over(fleet: Fleet) -> None:
    nodes = await settled(fleet)
    alone = nodes[0]
    assert isinstance(alone.registry, MemoryRegistry)
    alone.registry.cut_off = True
    assert await fleet.run(20, lambda: not alone.owned()) <= TRUSTED_S
    assert not fleet.all_owned()
    assert await fleet.run(20, fleet.all_owned) <= FAILOVER_S - 2
    alone.registry.cut_off = False
    session = alone.session
    await fleet.run(4)
    assert alone.session != session


async def test_an_outage_of_the_registry_that_ends_all_sessions_is_a_start_of_all(fleet: Fleet, book: Book) -> None:
    nodes = await settled(fleet)
    for node in nodes:
        node.gained.clear()
    book.unreachable = True
    await fleet.run(TRUSTED_S)
    assert all(node.owned() == set() for node in nodes)
    await fleet.run(SESSION_TTL_S)
    book.unreachable = False
    assert await fleet.run(10, fleet.all_owned) <= 3
    assert set().union(*(node.gained for node in nodes)) == ALL, "everything is rebuilt"


async def test_a_short_outage_of_the_registry_changes_no_owner(fleet: Fleet, book: Book) -> None:
    nodes = await settled(fleet)
    had = [node.owned() for node in nodes]
    book.unreachable = True
    await fleet.run(TRUSTED_S + 1)
    assert all(node.owned() == set() for node in nodes)
    book.unreachable = False
    await fleet.run(1)
    assert [node.owned() for node in nodes] == had
    assert all(node.lost == [] for node in nodes)


async def test_what_the_registry_has_forgotten_is_dropped_and_claimed_anew(fleet: Fleet, book: Book) -> None:
    node, _ = await settled(fleet, 2)
    forgotten = min(node.owned())
    node.gained.clear()
    fleet.revoked.add(node.session or SessionId(""))  # a registry that forgets is past what the check can ask of it
    del book.held[forgotten]
    await fleet.run(2)
    assert node.lost == [forgotten]
    assert node.gained == [forgotten]
    assert forgotten in node.owned()


async def test_a_claim_without_an_answer_counts_only_when_it_has_been_asked_again(fleet: Fleet, book: Book) -> None:
    node = await fleet.start()
    claim = node.registry.claim
    answers = iter([False, True])

    async def unsure(session, partitions, version):
        won = await claim(session, partitions, version)
        if not next(answers):
            raise LeasesUnavailable("the answer was lost")
        return won

    node.registry.claim = unsure  # type: ignore[method-assign]
    await fleet.settle()
    assert len(book.held) == PARTITIONS
    assert node.owned() == set()
    await fleet.run(1)
    assert node.owned() == ALL
    assert sorted(node.gained) == sorted(ALL)


async def test_what_a_claim_without_an_answer_took_is_given_back_if_the_map_has_moved_on(
    fleet: Fleet, book: Book
) -> None:
    node, other = await settled(fleet, 2)
    session = node.session
    assert session is not None
    (foreign, *_) = other.owned()
    other.stuck = {"own"}
    await other.registry.release(other.session or SessionId(""), [foreign])
    fleet.revoked.add(other.session or SessionId(""))
    assert await node.registry.claim(session, [foreign], book.assignment.version) == {foreign}
    await fleet.run(2)
    assert foreign not in node.owned()
    assert foreign not in book.held


async def test_a_claim_that_was_under_way_when_the_session_went_counts_for_nothing(fleet: Fleet) -> None:
    node = await fleet.start()
    claim = node.registry.claim

    async def stopped_meanwhile(session, partitions, version):
        won = await claim(session, partitions, version)
        await node.ownership.release()
        return won

    node.registry.claim = stopped_meanwhile  # type: ignore[method-assign]
    await fleet.settle()
    assert node.owned() == set()
    assert node.gained == []
    assert fleet.watch is not None
    assert await fleet.watch.holdings() == []


async def test_a_session_whose_opening_was_under_way_at_the_stop_is_ended(fleet: Fleet) -> None:
    node = await fleet.start()
    await fleet.settle()
    await node.registry.end(node.session or SessionId(""))
    fleet.revoked.add(node.session or SessionId(""))
    opening = node.registry.open

    async def stopped_meanwhile(session, facts, vitals):
        await node.ownership.release()
        await opening(session, facts, vitals)

    node.registry.open = stopped_meanwhile  # type: ignore[method-assign]
    await fleet.run(4)
    assert node.session is None
    assert fleet.watch is not None
    assert await fleet.watch.members() == []


async def test_a_stop_without_the_registry_stops_all_the_same(fleet: Fleet, book: Book) -> None:
    node = await fleet.start()
    await fleet.settle()
    book.unreachable = True
    await node.ownership.release()
    assert node.owned() == set()
    assert set(node.lost) == ALL


# --- all of it at once ------------------------------------------------------------------------------------------------


async def test_after_each_of_ten_stops_of_the_coordinator_everything_is_owned_and_rebuilt(fleet: Fleet) -> None:
    nodes = await settled(fleet)
    for _ in range(10):
        asleep = await fleet.chief()
        had = asleep.owned()
        for node in nodes:
            node.gained.clear()
        asleep.paused = True
        assert await fleet.run(20, partial(fleet.all_owned, without=asleep)) <= FAILOVER_S - 1
        assert set().union(*(node.gained for node in nodes)) >= had
        await fleet.run(5)
        asleep.paused = False
        await fleet.run(35)
        assert fleet.all_owned()
        assert shares(nodes) == [2, 3, 3]


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_to_nodes_no_partition_has_two_owners_and_in_the_end_all_have_one(
    fleet: Fleet, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(3):
        await fleet.start()
    for _ in range(60):
        node = chance.choice(fleet.nodes)
        assert isinstance(node.registry, MemoryRegistry)
        match chance.randrange(7):
            case 0 if len(fleet.nodes) > 1:
                fleet.kill(node)
            case 1 if len(fleet.nodes) < 5:
                await fleet.start()
            case 2:
                node.paused = not node.paused
            case 3:
                node.hung = not node.hung
            case 4:
                node.registry.cut_off = not node.registry.cut_off
            case 5 if len(fleet.nodes) > 1 and not node.registry.cut_off:
                await node.ownership.release()
                fleet.kill(node)
            case _:
                pass
        await fleet.run(chance.choice([0.5, 2, 5, 12]))
    for node in fleet.nodes:
        assert isinstance(node.registry, MemoryRegistry)
        node.paused = node.hung = node.registry.cut_off = False
    assert await fleet.run(60, fleet.all_owned) <= FAILOVER_S
    await fleet.run(STABLE_S + 10)
    assert max(shares(fleet.nodes)) - min(shares(fleet.nodes)) <= 1


async def test_an_empty_map_gives_nobody_anything(fleet: Fleet, book: Book) -> None:
    node = await fleet.start()
    node.stuck = {"coordinate"}
    await fleet.run(5)
    assert book.assignment == Assignment()
    assert node.owned() == set()
