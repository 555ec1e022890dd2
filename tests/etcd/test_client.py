"""The client against a real server: what it asks, and what it makes of failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.servers.etcd import EtcdServer
from tocsin.clock import SystemClock
from tocsin.errors import LeasesUnavailable
from tocsin.lease.etcd.client import EtcdClient
from tocsin.lease.etcd.gateway import Absent, Bound, Compare, Delete, Exists, Get, Holds, If, KeyValue, Put, prefix_end

Connect = Callable[..., EtcdClient]
Start = Callable[..., EtcdServer]
LONG_S = 600


async def put(client: EtcdClient, key: str, value: bytes, lease: int = 0) -> None:
    assert (await client.txn([], [Put(key, value, lease)])).succeeded


async def test_what_was_written_is_read_in_the_order_of_keys(client: EtcdClient, prefix: str) -> None:
    for key, value in (("b", b"2"), ("c", b""), ("a", b"\x00\xff")):
        await put(client, prefix + key, value)
    await put(client, prefix_end(prefix), b"behind")
    expected = (
        KeyValue(prefix + "a", b"\x00\xff", 0),
        KeyValue(prefix + "b", b"2", 0),
        KeyValue(prefix + "c", b"", 0),
    )
    assert await client.get(prefix, prefix_end(prefix)) == expected
    assert await client.get(prefix + "b") == expected[1:2]
    assert await client.get(prefix + "none") == ()


async def test_each_comparison_decides_which_branch_runs(client: EtcdClient, prefix: str) -> None:
    lease = await client.grant(LONG_S)
    there, bound, none = prefix + "there", prefix + "bound", prefix + "none"
    await put(client, there, b"v")
    await put(client, bound, b"v", lease)

    async def holds(*compares: Compare) -> bool:
        answer = await client.txn(compares, [Get(there)], [Get(bound)])
        assert [each.key for each in answer.found[0]] == [there if answer.succeeded else bound]
        return answer.succeeded

    assert await holds(Exists(there))
    assert not await holds(Exists(none))
    assert await holds(Absent(none))
    assert not await holds(Absent(there))
    assert await holds(Holds(there, b"v"))
    assert not await holds(Holds(there, b"w"))
    assert not await holds(Holds(none, b"v"))
    assert await holds(Bound(bound, lease))
    assert not await holds(Bound(bound, lease - 1))
    assert not await holds(Bound(there, lease))
    assert not await holds(Exists(there), Exists(none))
    await client.revoke(lease)


async def test_operations_inside_a_transaction_have_conditions_of_their_own(client: EtcdClient, prefix: str) -> None:
    await put(client, prefix + "a", b"old")
    answer = await client.txn(
        [],
        [
            If(Absent(prefix + "a"), Put(prefix + "a", b"new")),
            If(Absent(prefix + "b"), Put(prefix + "b", b"new")),
            Get(prefix, prefix_end(prefix)),
            If(Exists(prefix + "a"), Delete(prefix + "a")),
            If(Exists(prefix + "b"), Delete(prefix + "b")),
        ],
    )
    assert [(each.key, each.value) for each in answer.found[2]] == [(prefix + "a", b"old"), (prefix + "b", b"new")]
    # The second deletion did not run: before the transaction there was no b.
    assert [each.key for each in await client.get(prefix, prefix_end(prefix))] == [prefix + "b"]


async def test_keys_go_with_the_lease_they_hang_on(client: EtcdClient, prefix: str) -> None:
    lease = await client.grant(LONG_S)
    await put(client, prefix + "a", b"", lease)
    assert await client.keepalive(lease)
    assert [each.lease for each in await client.get(prefix + "a")] == [lease]
    await client.revoke(lease)
    assert await client.get(prefix + "a") == ()


async def test_a_lease_that_is_gone_is_seen_as_gone(client: EtcdClient, prefix: str) -> None:
    lease = await client.grant(LONG_S)
    await client.revoke(lease)
    assert not await client.keepalive(lease)
    await client.revoke(lease)
    refused = await client.txn([], [Put(prefix + "a", b"", lease)])
    assert refused.lease_gone
    assert not refused.succeeded
    assert await client.get(prefix + "a") == ()


async def test_a_lease_is_granted_under_the_id_that_is_given_and_once(client: EtcdClient) -> None:
    lease = (1 << 63) - 25  # as far as 64-bit numbers go, and beyond what a float can hold
    assert await client.grant(LONG_S, lease) == lease
    assert await client.grant(LONG_S, lease) == lease
    assert await client.keepalive(lease)
    await client.revoke(lease)


async def test_a_request_that_cannot_be_is_refused_with_the_servers_words(client: EtcdClient, prefix: str) -> None:
    with pytest.raises(LeasesUnavailable, match="too many operations"):
        await client.txn([], [Get(prefix)] * 129)


# --- servers that do not answer ---------------------------------------------------------------------------------------


@asynccontextmanager
async def taking_at_most(seconds: float) -> AsyncIterator[None]:
    clock = SystemClock()
    began = clock.elapsed_s()
    yield
    assert clock.elapsed_s() - began < seconds


async def test_a_killed_server_is_unavailable_at_once_and_usable_when_it_is_back(
    own_etcd: Start, connect: Connect
) -> None:
    server = own_etcd()
    client = connect(f"etcd://{server.hostport}")
    await put(client, "a", b"kept")
    server.kill()
    async with taking_at_most(3.0):
        with pytest.raises(LeasesUnavailable, match=f"127.0.0.1:{server.port}"):
            await client.get("a")
    server.start()
    assert [each.value for each in await client.get("a")] == [b"kept"]


async def test_a_server_that_hangs_is_unavailable_in_a_bounded_time(own_etcd: Start, connect: Connect) -> None:
    server = own_etcd()
    client = connect(f"etcd://{server.hostport}")
    lease = await client.grant(LONG_S)
    server.pause()
    async with taking_at_most(3.0):
        results = await asyncio.gather(
            client.keepalive(lease), client.get("a"), client.txn([], []), return_exceptions=True
        )
    assert [type(each) for each in results] == [LeasesUnavailable] * 3
    server.resume()
    assert await client.keepalive(lease)


@asynccontextmanager
async def silent_endpoint() -> AsyncIterator[str]:
    """Takes connections and never says anything, as a stopped process or a broken network does; where it listens."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


async def test_endpoints_that_refuse_are_passed_over(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    client = connect(f"etcd://127.0.0.1:1,127.0.0.1:2,{etcd.hostport}")
    assert await client.get(prefix) == ()


async def test_an_endpoint_that_hangs_costs_one_wait_and_is_not_asked_again(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    async with silent_endpoint() as silent:
        client = connect(f"etcd://{silent},{etcd.hostport}", endpoint_s=0.5)
        async with taking_at_most(3.0):
            first = await client.txn([], [Put(prefix, b"")])
        assert first.repeated
        for _ in range(4):
            assert not (await client.txn([], [])).repeated


async def test_many_endpoints_that_hang_do_not_add_up(connect: Connect) -> None:
    async with silent_endpoint() as silent:
        client = connect(f"etcd://{','.join([silent] * 9)}", endpoint_s=0.2, request_s=0.5)
        async with taking_at_most(1.5):
            with pytest.raises(LeasesUnavailable, match=r"no endpoint answered within 0\.5 s"):
                await client.get("a")


async def test_a_server_that_is_no_etcd_is_named(connect: Connect) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        client = connect(f"etcd://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(LeasesUnavailable, match="answers 404 and not as etcd's JSON gateway does"):
            await client.get("a")
