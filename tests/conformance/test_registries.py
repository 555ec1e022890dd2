"""The suite of the registry's port: sessions that end, one coordinator, one map, and partitions in one hand at most.

An adapter joins by a place in `PLACES`: where processes of one installation meet, and how its time passes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from typing import Protocol

import pytest

from tests.life.memoryregistry import Book, MemoryRegistry
from tests.servers.etcd import EtcdServer
from tests.servers.frozen import FrozenDatabase, frozen_database
from tocsin.clock import ManualClock, SystemClock, SystemEntropy
from tocsin.lease.etcd import address
from tocsin.lease.etcd import open_registry as open_etcd
from tocsin.lease.etcd.client import EtcdClient
from tocsin.lease.etcd.keys import lease_of
from tocsin.lease.port import (
    MOVES_KEPT,
    Assignment,
    Facts,
    Move,
    Registry,
    SessionId,
    Vitals,
    Why,
    new_session_id,
)
from tocsin.lease.postgres import open_registry

ENTROPY = SystemEntropy()
FACTS = Facts(node="n1", roles=("api", "node"), version="0.1.0", address="10.0.0.1:8080", started_at=1_700_000_000_000)


class Place(Protocol):
    """An empty registry that processes share."""

    ttl_s: float

    async def make(self) -> Registry:
        """One more process's way to it."""
        ...

    async def expire(self, *standing: SessionId) -> None:
        """Let sessions end that nobody renews; `standing` are renewed meanwhile."""
        ...


class Clocked(ABC):
    """What places share whose time the test moves."""

    ttl_s = 10.0

    def __init__(self) -> None:
        self.registries: list[Registry] = []

    @abstractmethod
    async def make(self) -> Registry: ...

    @abstractmethod
    async def advance(self, seconds: float) -> None: ...

    async def expire(self, *standing: SessionId) -> None:
        for _ in range(2):
            await self.advance(0.6 * self.ttl_s)
            for session in standing:
                assert await self.registries[0].renew(session, Vitals())

    async def close(self) -> None:
        for registry in self.registries:
            await registry.close()


class MemoryPlace(Clocked):
    def __init__(self) -> None:
        super().__init__()
        self._clock = ManualClock()
        self._book = Book(self._clock, self.ttl_s)

    async def make(self) -> Registry:
        self.registries.append(MemoryRegistry(self._book))
        return self.registries[-1]

    async def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)


class PostgresPlace(Clocked):
    def __init__(self, database: FrozenDatabase) -> None:
        super().__init__()
        self._database = database

    async def make(self) -> Registry:
        self.registries.append(await open_registry(self._database.dsn, self.ttl_s))
        return self.registries[-1]

    async def advance(self, seconds: float) -> None:
        await self._database.advance(seconds)


class EtcdPlace:
    """Time passes by itself there and sessions would last: `expire` ends their leases as the server does when it is over."""

    ttl_s = 600.0

    def __init__(self, server: EtcdServer) -> None:
        self._address = f"etcd://{server.hostport}"
        self._installation = new_session_id(ENTROPY)
        self._registries: list[Registry] = []

    async def make(self) -> Registry:
        registry = await open_etcd(
            self._address, SystemClock(), installation=self._installation, ttl_s=round(self.ttl_s)
        )
        self._registries.append(registry)
        return registry

    async def expire(self, *standing: SessionId) -> None:
        registry = self._registries[0]
        for session in standing:
            assert await registry.renew(session, Vitals())
        client = EtcdClient(address.parse(self._address))
        for member in await registry.members():
            if member.session not in standing:
                await client.revoke(lease_of(member.session))
        await client.close()

    async def close(self) -> None:
        for registry in self._registries:
            await registry.close()


@asynccontextmanager
async def memory(_: pytest.FixtureRequest) -> AsyncIterator[Clocked]:
    yield MemoryPlace()


@asynccontextmanager
async def postgres(request: pytest.FixtureRequest) -> AsyncIterator[Clocked]:
    async with frozen_database(request.getfixturevalue("postgres")) as database:
        made = PostgresPlace(database)
        yield made
        await made.close()


@asynccontextmanager
async def etcd(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    made = EtcdPlace(request.getfixturevalue("etcd"))
    yield made
    await made.close()


CLOCKED: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Clocked]]] = {
    "memory": memory,
    "postgres": postgres,
}
PLACES: Mapping[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Place]]] = {**CLOCKED, "etcd": etcd}


@pytest.fixture(params=sorted(PLACES))
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with PLACES[request.param](request) as made:
        yield made


@pytest.fixture(params=sorted(CLOCKED))
async def clocked(request: pytest.FixtureRequest) -> AsyncIterator[Clocked]:
    async with CLOCKED[request.param](request) as made:
        yield made


async def opened(registry: Registry, node: str = "n1") -> SessionId:
    session = new_session_id(ENTROPY)
    await registry.open(
        session, Facts(node=node, roles=("node",), version="1", address="", started_at=5), Vitals(clock_offset_ms=3)
    )
    return session


async def elected(registry: Registry, node: str = "chief") -> SessionId:
    session = await opened(registry, node)
    assert await registry.campaign(session) == session
    return session


def given(version: int, owners: dict[int, SessionId]) -> Assignment:
    return Assignment(
        version=version, owners=owners, nodes={session: f"node of {session}" for session in owners.values()}
    )


def move(partition: int, to: SessionId, at: int = 7) -> Move:
    return Move(
        partition=partition, from_session=None, from_node=None, to_session=to, to_node="n", at=at, why=Why.FIRST
    )


async def held(registry: Registry, of: SessionId | None = None) -> dict[int, SessionId]:
    holdings = await registry.holdings(of)
    assert all(one.partition < other.partition for one, other in pairwise(holdings)), "by partition, none twice"
    return {holding.partition: holding.session for holding in holdings}


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_member_is_seen_by_all_with_its_facts_and_what_each_renewal_brings(place: Place) -> None:
    one, other = await place.make(), await place.make()
    session = new_session_id(ENTROPY)
    await one.open(session, FACTS, Vitals(clock_offset_ms=-12))
    (member,) = await other.members()
    assert (member.session, member.facts, member.vitals) == (session, FACTS, Vitals(clock_offset_ms=-12))
    assert 0 <= member.age_s < place.ttl_s
    assert await one.renew(session, Vitals())
    assert [member.vitals for member in await other.members()] == [Vitals(clock_offset_ms=None)]


async def test_processes_of_the_same_name_are_members_each_by_itself(place: Place) -> None:
    registries = [await place.make() for _ in range(3)]
    sessions = {await opened(registry, "same-host") for registry in registries}
    assert [member.session for member in await registries[0].members()] == sorted(sessions)
    assert len(sessions) == 3


async def test_opening_again_under_the_same_id_is_one_session(place: Place) -> None:
    registry = await place.make()
    session = await opened(registry)
    await registry.open(session, FACTS, Vitals())
    assert [member.session for member in await registry.members()] == [session]


async def test_a_session_that_nobody_renews_is_gone_with_all_it_had_and_cannot_be_renewed(place: Place) -> None:
    dead, living = await place.make(), await place.make()
    chief, other = await elected(dead), await opened(living, "living")
    assert await dead.assign(chief, given(1, {0: chief, 1: chief}), [])
    assert await dead.claim(chief, [0, 1], 1) == {0, 1}
    await place.expire(other)
    assert not await dead.renew(chief, Vitals())
    assert [member.session for member in await living.members()] == [other]
    assert await held(living) == {}
    assert await living.coordinator() is None
    assert await living.campaign(other) == other
    assert await living.claim(other, [0, 1], 1) == {0, 1}
    assert await dead.claim(chief, [0, 1], 1) == frozenset()
    assert not await dead.renew(chief, Vitals())
    assert await held(living) == {0: other, 1: other}


async def test_a_session_that_is_renewed_stands_and_keeps_all_it_has(place: Place) -> None:
    registry = await place.make()
    chief = await elected(registry)
    assert await registry.assign(chief, given(1, {0: chief}), [])
    await registry.claim(chief, [0], 1)
    await place.expire(chief)
    assert await registry.coordinator() == chief
    assert await held(registry) == {0: chief}


async def test_ending_a_session_frees_all_at_once_and_ending_it_again_does_nothing(place: Place) -> None:
    stopping, other = await place.make(), await place.make()
    chief, heir = await elected(stopping), await opened(other)
    assert await stopping.assign(chief, given(1, {0: heir, 3: heir}), [])
    assert await stopping.claim(chief, [0, 3], 1) == {0, 3}
    await stopping.end(chief)
    await stopping.end(chief)
    assert await other.campaign(heir) == heir
    assert await other.claim(heir, [0, 3], 1) == {0, 3}
    assert not await stopping.renew(chief, Vitals())
    assert [member.session for member in await other.members()] == [heir]


async def test_a_session_stands_to_its_last_moment_and_no_longer(clocked: Clocked) -> None:
    registry = await clocked.make()
    session = await opened(registry)
    await clocked.advance(clocked.ttl_s - 0.001)
    assert await registry.renew(session, Vitals())
    await clocked.advance(clocked.ttl_s - 0.001)
    assert [member.session for member in await registry.members()] == [session]
    assert [member.age_s for member in await registry.members()] == [pytest.approx(2 * clocked.ttl_s - 0.002)]
    await clocked.advance(0.001)
    assert await registry.members() == []
    assert not await registry.renew(session, Vitals())


# --- the office -------------------------------------------------------------------------------------------------------


async def test_of_many_that_campaign_at_once_one_is_elected_and_all_are_told_who(place: Place) -> None:
    registries = [await place.make() for _ in range(4)]
    sessions = [await opened(registry) for registry in registries]
    assert await registries[0].coordinator() is None
    answers = await asyncio.gather(*(r.campaign(s) for r, s in zip(registries, sessions, strict=True)))
    assert len(set(answers)) == 1
    assert answers[0] in sessions
    assert await registries[1].coordinator() == answers[0]


async def test_who_does_not_stand_is_not_elected(place: Place) -> None:
    registry = await place.make()
    assert await registry.campaign(new_session_id(ENTROPY)) is None
    gone = await opened(registry)
    await place.expire()
    assert await registry.campaign(gone) is None


# --- the map ----------------------------------------------------------------------------------------------------------


async def test_the_map_begins_empty_and_is_read_again_only_when_it_has_changed(place: Place) -> None:
    one, other = await place.make(), await place.make()
    assert await other.assignment() == Assignment()
    assert await other.assignment(0) is None
    chief = await elected(one)
    written = given(1, {0: chief, 1: SessionId("0" * 16)})
    assert await one.assign(chief, written, [])
    assert await other.assignment(0) == written
    assert await other.assignment(1) is None
    assert await other.assignment() == written


async def test_only_the_coordinator_writes_the_map_and_only_on_the_version_it_has_read(place: Place) -> None:
    registry = await place.make()
    chief, other = await elected(registry), await opened(registry)
    assert not await registry.assign(other, given(1, {0: other}), [move(0, other)])
    assert not await registry.assign(chief, given(2, {0: other}), [move(0, other)])
    assert await registry.assign(chief, given(1, {0: chief}), [])
    assert not await registry.assign(chief, given(1, {0: other}), [move(0, other)])
    assert await registry.assignment() == given(1, {0: chief})
    assert await registry.moves(10) == []


async def test_a_coordinator_whose_session_is_over_writes_and_revokes_nothing(place: Place) -> None:
    slept, successor = await place.make(), await place.make()
    old, new = await elected(slept), await opened(successor)
    await place.expire(new)
    assert not await slept.assign(old, given(1, {0: old}), [])
    assert not await slept.revoke(old, new)
    assert await successor.campaign(new) == new
    assert not await slept.assign(old, given(1, {0: old}), [])
    assert not await slept.revoke(old, new)
    assert await successor.assign(new, given(1, {0: new}), [])
    assert await successor.assignment() == given(1, {0: new})


async def test_of_two_maps_of_one_version_one_is_written(place: Place) -> None:
    registries = [await place.make() for _ in range(4)]
    chief = await elected(registries[0])
    maps = [given(1, {at: chief}) for at in range(4)]
    answers = await asyncio.gather(*(r.assign(chief, one, []) for r, one in zip(registries, maps, strict=True)))
    assert sorted(answers) == [False, False, False, True]
    assert await registries[0].assignment() == maps[answers.index(True)]


# --- holdings ---------------------------------------------------------------------------------------------------------


async def test_a_partition_has_one_holder_however_many_claim_it_at_once(place: Place) -> None:
    registries = [await place.make() for _ in range(4)]
    sessions = [await opened(registry) for registry in registries]
    wanted = [list(range(16)), list(reversed(range(16))), list(range(8, 16)), [7, 3, 11]]
    won = await asyncio.gather(*(r.claim(s, p, 0) for r, s, p in zip(registries, sessions, wanted, strict=True)))
    for session, partitions, got in zip(sessions, wanted, won, strict=True):
        assert got <= set(partitions)
        assert set(await held(registries[0], session)) == got
    assert sum(map(len, won)) == 16
    assert set(await held(registries[0])) == set(range(16))


async def test_claiming_what_one_has_answers_that_one_has_it_and_what_others_have_is_refused(place: Place) -> None:
    registry = await place.make()
    one, other = await opened(registry), await opened(registry)
    assert await registry.claim(one, [1, 2], 0) == {1, 2}
    since = [holding.since for holding in await registry.holdings()]
    assert await registry.claim(one, [1, 2, 5], 0) == {1, 2, 5}
    assert await registry.claim(other, [1, 2, 3], 0) == {3}
    assert [holding.since for holding in await registry.holdings(one)][:2] == since
    assert await registry.claim(one, [], 0) == frozenset()


async def test_a_claim_by_another_version_of_the_map_takes_nothing_but_tells_what_one_has(place: Place) -> None:
    registry = await place.make()
    chief = await elected(registry)
    assert await registry.claim(chief, [0], 0) == {0}
    assert await registry.assign(chief, given(1, {0: chief, 1: chief}), [])
    assert await registry.claim(chief, [0, 1], 0) == {0}
    assert await registry.claim(chief, [0, 1], 2) == {0}
    assert await held(registry) == {0: chief}
    assert await registry.claim(chief, [0, 1], 1) == {0, 1}


async def test_who_does_not_stand_claims_nothing(place: Place) -> None:
    registry = await place.make()
    assert await registry.claim(new_session_id(ENTROPY), [0], 0) == frozenset()
    assert await held(registry) == {}


async def test_one_gives_back_what_one_has_and_nothing_else(place: Place) -> None:
    registry = await place.make()
    one, other = await opened(registry), await opened(registry)
    await registry.claim(one, [0, 1, 2], 0)
    await registry.claim(other, [3], 0)
    await registry.release(one, [1, 3, 9])
    await registry.release(one, [1])
    await registry.release(one, [])
    assert await held(registry) == {0: one, 2: one, 3: other}
    assert await registry.claim(other, [1], 0) == {1}


async def test_who_is_revoked_has_nothing_any_more_and_only_the_coordinator_revokes(place: Place) -> None:
    registry = await place.make()
    chief, stuck, other = await elected(registry), await opened(registry), await opened(registry)
    await registry.claim(stuck, [0, 1], 0)
    assert not await registry.revoke(other, stuck)
    assert not await registry.revoke(stuck, chief)
    assert await registry.renew(stuck, Vitals())
    assert await registry.revoke(chief, stuck)
    assert await registry.revoke(chief, stuck), "whoever had no answer asks again"
    assert not await registry.renew(stuck, Vitals())
    assert await held(registry) == {}
    assert await registry.coordinator() == chief


# --- the log of moves -------------------------------------------------------------------------------------------------


async def test_moves_are_logged_with_the_map_and_read_newest_first(place: Place) -> None:
    registry = await place.make()
    chief = await elected(registry)
    first = [move(2, chief, at=7), move(0, chief, at=7), move(1, chief, at=7)]
    assert await registry.assign(chief, given(1, {0: chief}), first)
    second = Move(
        partition=1,
        from_session=chief,
        from_node="n",
        to_session=SessionId("0" * 16),
        to_node="m",
        at=9,
        why=Why.REVOKED,
    )
    assert await registry.assign(chief, given(2, {0: chief}), [second])
    assert await registry.moves(10) == [second, first[1], first[2], first[0]]
    assert await registry.moves(2) == [second, first[1]]


async def test_the_log_of_moves_is_bounded_but_keeps_all_of_the_newest_map(place: Place) -> None:
    registry = await place.make()
    chief = await elected(registry)
    many = [move(at, chief) for at in range(MOVES_KEPT + 24)]
    assert await registry.assign(chief, given(1, {0: chief}), many)
    assert len(await registry.moves(10 * MOVES_KEPT)) == MOVES_KEPT + 24
    assert await registry.assign(chief, given(2, {0: chief}), [move(3, chief), move(4, chief)])
    kept = await registry.moves(10 * MOVES_KEPT)
    assert [one.partition for one in kept[:2]] == [3, 4]
    assert len(kept) == MOVES_KEPT
