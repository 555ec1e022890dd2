"""What only the registry in etcd can get wrong; what every registry must do is in `conformance/test_registries`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import pytest

from tests.servers.etcd import EtcdServer
from tocsin.clock import ManualClock
from tocsin.errors import LeasesUnavailable
from tocsin.lease.etcd import EtcdRegistry
from tocsin.lease.etcd.client import EtcdClient
from tocsin.lease.etcd.gateway import Delete, Put
from tocsin.lease.etcd.keys import Keys
from tocsin.lease.port import MOVES_KEPT, Assignment, Facts, Move, SessionId, Vitals, Why

Connect = Callable[..., EtcdClient]
ONE, TWO = SessionId("7fffffffffffff01"), SessionId("00000000000000a2")
MANY = range(250)  # more than fit into two transactions
TTL_S = 600


@pytest.fixture
async def installation(request: pytest.FixtureRequest, client: EtcdClient) -> AsyncIterator[str]:
    """A name of the test's own. What it leaves is removed: sessions have the same IDs in each test."""
    yield request.node.name
    for session in (ONE, TWO):
        await client.revoke(int(session, 16))


@pytest.fixture
def registry(client: EtcdClient, installation: str) -> EtcdRegistry:
    return EtcdRegistry(client, ManualClock(), installation, TTL_S)


def facts(node: str) -> Facts:
    return Facts(node=node, roles=("node",), version="1")


async def open_both(registry: EtcdRegistry) -> None:
    """Two sessions; ONE has the office."""
    for session in (ONE, TWO):
        await registry.open(session, facts(session), Vitals())
    assert await registry.campaign(ONE) == ONE


def map_of(version: int, owner: SessionId = ONE) -> Assignment:
    return Assignment(version=version, owners=dict.fromkeys(MANY, owner), nodes={owner: "n"})


def move(partition: int, at: int) -> Move:
    return Move(
        partition=partition, from_session=None, from_node=None, to_session=ONE, to_node="n", at=at, why=Why.FIRST
    )


async def test_a_session_that_nobody_renews_ends_when_its_time_is_over_and_one_that_is_renewed_stands(
    client: EtcdClient, installation: str
) -> None:
    registry = EtcdRegistry(client, ManualClock(), installation, ttl_s=2)
    await open_both(registry)
    async with asyncio.timeout(20):
        while len(await registry.members()) == 2:
            assert await registry.renew(TWO, Vitals())
    assert [each.session for each in await registry.members()] == [TWO]
    assert await registry.campaign(TWO) == TWO
    assert not await registry.renew(ONE, Vitals())


async def test_a_session_that_is_ended_while_its_renewal_is_under_way_has_ended(registry: EtcdRegistry) -> None:
    await open_both(registry)
    # As a node that is told to go does: the renewal's request is out when the session is ended.
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(registry.renew(ONE, Vitals()))
        tasks.create_task(registry.end(ONE))
    assert [each.session for each in await registry.members()] == [TWO]
    assert not await registry.renew(ONE, Vitals())


async def test_more_partitions_than_a_transaction_takes_are_claimed_and_released(registry: EtcdRegistry) -> None:
    await open_both(registry)
    assert await registry.assign(ONE, map_of(1), [])
    assert await registry.claim(TWO, [120], 1) == {120}
    assert await registry.claim(ONE, MANY, 1) == {*MANY} - {120}
    await registry.release(ONE, MANY)
    assert [(each.partition, each.session) for each in await registry.holdings()] == [(120, TWO)]


async def test_a_session_that_was_revoked_halfway_can_do_nothing_and_ends_at_its_renewal(
    registry: EtcdRegistry, client: EtcdClient, installation: str
) -> None:
    await open_both(registry)
    assert await registry.assign(ONE, map_of(1), [])
    assert await registry.claim(TWO, [3], 1) == {3}
    # The coordinator died between the two steps of its revocation.
    await client.txn([], [Delete(Keys(installation).member(TWO))])
    assert await registry.holdings() == []
    assert await registry.claim(TWO, [4], 1) == frozenset()
    assert not await registry.renew(TWO, Vitals())
    assert await registry.claim(ONE, [3, 4], 1) == {3, 4}
    assert not await client.keepalive(int(TWO, 16))


async def test_the_next_coordinator_ends_a_revocation_that_was_cut(
    registry: EtcdRegistry, client: EtcdClient, installation: str
) -> None:
    await open_both(registry)
    assert await registry.assign(ONE, map_of(1), [])
    assert await registry.claim(TWO, [3], 1) == {3}
    await client.txn([], [Delete(Keys(installation).member(TWO))])
    assert await registry.revoke(ONE, TWO)
    assert await registry.claim(ONE, [3], 1) == {3}


async def test_an_offset_that_hardly_differs_is_not_written_again(
    registry: EtcdRegistry, client: EtcdClient, installation: str
) -> None:
    await registry.open(ONE, facts("a"), Vitals(clock_offset_ms=100))
    shown: list[int | None] = []
    for offset in (109, 91, 110, 101, None, 0):
        assert await registry.renew(ONE, Vitals(clock_offset_ms=offset))
        shown += [each.vitals.clock_offset_ms for each in await registry.members()]
    assert shown == [100, 100, 110, 110, None, 0]


async def test_the_log_keeps_the_newest_moves_and_all_of_the_last_version(
    registry: EtcdRegistry, client: EtcdClient, installation: str
) -> None:
    await open_both(registry)
    each_time = MOVES_KEPT // 2
    for version in (1, 2, 3):
        assert await registry.assign(ONE, map_of(version), [move(p, version) for p in range(each_time)])
    assert [each.at for each in await registry.moves(10_000)] == [3] * each_time + [2] * each_time
    assert [each.partition for each in await registry.moves(3)] == [0, 1, 2]
    first, end = Keys(installation).all_moves
    assert [each.key for each in await client.get(first, end)] == [Keys(installation).moves(v) for v in (2, 3)]

    many = MOVES_KEPT + 24
    assert await registry.assign(ONE, map_of(4), [move(p, 4) for p in reversed(range(many))])
    assert [each.partition for each in await registry.moves(10_000)] == list(range(many))


async def test_a_value_that_nobody_of_us_wrote_is_named(
    registry: EtcdRegistry, client: EtcdClient, installation: str
) -> None:
    await client.txn([], [Put(Keys(installation).held(0), b"not ours")])
    with pytest.raises(LeasesUnavailable, match=f"{Keys(installation).held(0)} holds what this version cannot read"):
        await registry.holdings()


# --- answers that are lost --------------------------------------------------------------------------------------------


@asynccontextmanager
async def deaf_endpoint(etcd: EtcdServer) -> AsyncIterator[str]:
    """Carries questions to the server and loses the answers to transactions; where it listens."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(int(length.partition(b":")[2]))
            to_reader, to_server = await asyncio.open_connection("127.0.0.1", etcd.port)
            with closing(to_server):
                to_server.write(head.replace(b"keep-alive", b"close") + body)
                answer = await to_reader.read()
                assert answer.startswith(b"HTTP/1.1 200 OK")
                if b" /v3/kv/txn " not in head:
                    writer.write(answer)

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def hard_of_hearing(
    etcd: EtcdServer, connect: Connect, installation: str
) -> AsyncIterator[Callable[[], EtcdRegistry]]:
    """Makes registries whose first transaction is carried out and its answer lost, so that it is asked for again elsewhere."""
    async with deaf_endpoint(etcd) as deaf:
        yield lambda: EtcdRegistry(connect(f"etcd://{deaf},{etcd.hostport}"), ManualClock(), installation, TTL_S)


async def test_a_call_whose_answer_was_lost_is_told_what_it_did(
    registry: EtcdRegistry, hard_of_hearing: Callable[[], EtcdRegistry]
) -> None:
    for session in (ONE, TWO):
        await hard_of_hearing().open(session, facts(session), Vitals())
    assert [each.session for each in await registry.members()] == [TWO, ONE]
    assert await hard_of_hearing().campaign(ONE) == ONE
    assert await hard_of_hearing().claim(ONE, [1, 2], 0) == {1, 2}
    await hard_of_hearing().release(ONE, [2])
    assert [each.partition for each in await registry.holdings()] == [1]
    assert await hard_of_hearing().renew(ONE, Vitals(clock_offset_ms=50))
    assert await hard_of_hearing().revoke(ONE, TWO)
    await hard_of_hearing().end(ONE)
    assert await registry.members() == []


async def test_a_map_whose_answer_was_lost_counts_as_written_and_any_other_does_not(
    registry: EtcdRegistry, hard_of_hearing: Callable[[], EtcdRegistry]
) -> None:
    await open_both(registry)
    assert await hard_of_hearing().assign(ONE, map_of(1), [move(0, 1)])
    assert not await registry.assign(ONE, map_of(1), [move(0, 1)])
    assert not await hard_of_hearing().assign(ONE, map_of(1, TWO), [move(0, 2)])
    assert not await hard_of_hearing().assign(TWO, map_of(1), [move(0, 3)])
    assert not await hard_of_hearing().assign(TWO, map_of(2), [move(0, 4)])
    assert await registry.assignment() == map_of(1)
    assert [each.at for each in await registry.moves(9)] == [1]
