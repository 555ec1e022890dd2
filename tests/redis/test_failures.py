"""A server that does not answer, or is full, is unavailable within seconds; what frees memory works all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.redis.conftest import Open
from tests.redis.keys import client
from tests.servers.redis import RedisServer
from tocsin.errors import ConfigError, NearUnavailable
from tocsin.near.redis.connection import Connection

Start = Callable[..., RedisServer]
# The connection's own time-out, and what a busy machine adds.
SOON_S = 5.0


async def unavailable_soon(call: Awaitable[object]) -> None:
    began = time.perf_counter()
    with pytest.raises(NearUnavailable):
        await call
    assert time.perf_counter() - began < SOON_S


async def test_a_server_that_is_not_there_is_unavailable_at_once(own_server: Start, opens: Open) -> None:
    server = own_server()
    server.stop()
    world = await opens(server, begin=False)
    await unavailable_soon(world.near.offer([world.due()]))
    await unavailable_soon(world.near.generation())
    server.start()
    await world.near.begin(world.all)
    await world.near.offer([due := world.due()])
    assert await world.take() == [due]


async def test_a_server_that_is_killed_under_a_tier_is_unavailable_until_it_is_back(
    own_server: Start, opens: Open
) -> None:
    server = own_server()
    world = await opens(server)
    before = await world.near.generation()
    server.kill()
    await unavailable_soon(world.near.take(world.all, world.now, 10))
    server.start()
    assert await world.near.generation() != before


async def test_calls_to_a_server_that_hangs_end_by_themselves(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    server.pause()
    calls = [world.near.offer([world.due()]), world.near.generation(), world.near.next_due(world.all)]
    began = time.perf_counter()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert time.perf_counter() - began < SOON_S
    assert [type(answer) for answer in answers] == [NearUnavailable] * 3
    server.resume()
    await world.near.offer([due := world.due(-1)])
    assert due in await world.take()


async def test_what_an_unheard_answer_took_is_due_again_at_once(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    assert await world.take() == [], "the server knows the program: what lies in its socket is carried out"
    dues = [world.due(at) for at in range(20)]
    await world.near.offer(dues)
    world.clock.advance(1)
    server.pause()
    taking = asyncio.ensure_future(world.take())
    await unavailable_soon(taking)
    server.resume()
    # The server carries out what lies in its socket before it reads anything newer.
    assert await world.take() == dues


async def test_what_could_not_be_put_back_is_due_again_with_the_next_pass(
    own_server: Start, opens: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await opens(own_server())
    dues = [world.due(at) for at in range(20)]
    await world.near.offer(dues)
    world.clock.advance(1)
    taken = await world.take(5)
    assert taken == dues[:5]

    async def away(*_: object) -> None:
        raise NearUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "run", away)
        with pytest.raises(NearUnavailable):
            await world.near.restore(taken)
    assert await world.take() == dues


async def test_a_full_server_refuses_what_adds_and_does_what_frees(own_server: Start, opens: Open) -> None:
    server = own_server(maxmemory_policy="noeviction")
    world = await opens(server)
    dues = [world.due(at) for at in range(200)]
    await world.near.offer(dues)
    leases = [(world.job_id(), 1, 5_000 + at) for at in range(50)]
    await world.near.lease(leases)
    before = await world.near.generation()
    with client(server) as redis:
        redis.config_set("maxmemory", redis.info("memory")["used_memory"] - 200_000)
    world.clock.advance(1)
    with pytest.raises(NearUnavailable):
        await world.near.offer([world.due()])
    with pytest.raises(NearUnavailable):
        await world.near.lease([(world.job_id(), 1, 1_000)])
    taken = await world.take(100)
    assert taken == dues[:100]
    await world.near.restore(taken[:10])
    await world.near.drop(taken[10:])
    await world.near.remove([due.job_id for due in dues[150:]])
    assert await world.take(1_000) == [*dues[:10], *dues[100:150]]
    assert len(await world.near.leases_over(world.all, 9_000, 100)) == 50
    await world.near.unlease([(job_id, attempt) for job_id, attempt, _ in leases])
    assert await world.near.next_lease_end(world.all) is None
    figures = await world.near.figures(world.all)
    assert figures.bytes_limit is not None
    assert figures.bytes_used is not None
    assert figures.bytes_used > figures.bytes_limit
    assert await world.near.generation() == before


@pytest.mark.parametrize(
    "url",
    [
        "http://u:geheim@host/0",
        "redis://u:geheim/1@host/0",
        "redis+cluster://u:geheim@a:1 nonsense://u:geheim@b:2",
        "redis+cluster://u:geheim/1@a:1",
    ],
)
def test_an_address_that_cannot_be_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Connection(url)
    assert "geheim" not in str(refused.value)
