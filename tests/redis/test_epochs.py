"""Whatever Redis may have lost begins a new epoch; what was written under the old one is refused, and later removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.conformance.near.world import World
from tests.redis.conftest import Open
from tests.redis.keys import client, keys
from tests.servers.redis import RedisServer
from tocsin.errors import NearUnavailable
from tocsin.near.redis import epoch
from tocsin.near.redis.connection import Connection
from tocsin.near.redis.epoch import Epoch
from tocsin.near.redis.keys import Keys, alive_key, epoch_of
from tocsin.near.redis.scripts import Script, run_scripts

Start = Callable[..., RedisServer]
T = TypeVar("T")


async def again(call: Callable[[], Awaitable[T]]) -> T:
    """Call a server that has started again: the first call may find that its connection is gone."""
    try:
        return await call()
    except NearUnavailable:
        return await call()


async def lost(world: World, before: str) -> str:
    """A new generation has begun and holds nothing."""
    now = await again(world.near.generation)
    assert now != before
    with pytest.raises(NearUnavailable):
        await world.near.offer([world.due()])
    await world.near.begin(world.all)
    assert await world.take() == []
    assert await world.near.generation() == now
    return now


async def test_an_epoch_lasts_while_nothing_is_lost(shared: World) -> None:
    first = await shared.near.generation()
    await shared.near.offer([due := shared.due()])
    await shared.near.begin(shared.all)
    assert await shared.near.generation() == first
    assert await shared.take_and_drop() == [due]


async def test_all_processes_agree_on_the_epoch(redis_server: RedisServer, opens: Open) -> None:
    worlds = [await opens(redis_server, "agreed") for _ in range(3)]
    assert len({await world.near.generation() for world in worlds}) == 1


async def test_an_emptied_server_begins_anew(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    before = await world.near.generation()
    await world.near.offer([world.due()])
    server.ask("FLUSHALL")
    await lost(world, before)


async def test_a_server_that_started_again_begins_anew_also_with_all_its_keys(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    before = await world.near.generation()
    await world.near.offer([world.due()])
    server.ask("SAVE")
    server.stop()
    server.start()
    assert any(epoch_of(name) == before for name in keys(server))
    after = await lost(world, before)
    for _ in range(5):
        await world.near.generation()
    assert {epoch_of(name) for name in keys(server)} <= {None, after}


async def test_a_server_that_started_from_an_older_dump_begins_anew(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    server.ask("SAVE")
    first = await world.near.generation()
    server.ask("FLUSHALL")
    second = await lost(world, first)
    server.kill()
    server.start()
    with client(server) as redis:
        assert redis.hget("{acme:epoch}", "name") == first
    assert await lost(world, second) != first


async def test_evictions_begin_a_new_epoch(own_server: Start, opens: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where none of ours was among them: nobody says which keys went."""
    monkeypatch.setattr(epoch, "BETWEEN_EVICTIONS_US", 0)
    server = own_server(maxmemory="3mb", maxmemory_policy="volatile-lru")
    world = await opens(server)
    before = await world.near.generation()
    with client(server) as redis:
        for at in range(100):
            redis.set(f"filler {at}", "x" * 50_000, ex=3_600)
        assert redis.info("stats")["evicted_keys"] > 0
        for at in range(100):
            redis.delete(f"filler {at}")
    await lost(world, before)


@pytest.mark.parametrize(
    ("servers", "age_s", "other"),
    [
        ("run_id=a evicted_keys=0", 0, False),
        ("run_id=a evicted_keys=7", 9.9, False),
        ("run_id=a evicted_keys=7", 10, True),
        ("run_id=b evicted_keys=0", 0, True),
        ("run_id=b evicted_keys=7", 0, True),
    ],
)
def test_evictions_alone_begin_an_epoch_every_ten_seconds_at_most(servers: str, age_s: float, other: bool) -> None:
    """A server that evicts all the time (F-52) would else begin one all the time, and nothing would ever be fired."""
    began_us = 1_796_098_743_403_378
    found = epoch._Found(str(began_us), "run_id=a evicted_keys=0", open=True, swept=True)
    assert epoch._other(found, servers, began_us + round(age_s * 1_000_000)) is other


@pytest.mark.parametrize("tag", ["{acme:p1}", "{acme:q5}"])
async def test_a_tag_that_is_no_longer_alive_begins_a_new_epoch(own_server: Start, opens: Open, tag: str) -> None:
    server = own_server()
    world = await opens(server)
    before = await world.near.generation()
    server.ask("DEL", alive_key(tag))
    if tag == "{acme:p1}":
        with pytest.raises(NearUnavailable):
            await world.near.offer([world.due(partition=1)])
    else:
        world.near._epoch.doubt([tag], world.near._epoch.mark())  # type: ignore[attr-defined]
    await lost(world, before)


async def test_what_is_offered_under_an_old_epoch_goes_to_the_new_one(own_server: Start, opens: Open) -> None:
    server = own_server()
    late, owner = await opens(server), await opens(server)
    server.ask("FLUSHALL")
    await owner.near.generation()
    await owner.near.begin(owner.all)
    due = late.due()
    # It still knows the old epoch only.
    assert await late.near.offer([due]) == []
    assert await owner.take() == [due]


async def test_a_new_epoch_kills_the_tags_of_the_old_one_before_it_is_open(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    old = await world.near.generation()
    connection, names = Connection(server.url), Keys("acme", world.partitions)
    try:
        # A process that died just after it had won the new name.
        await run_scripts(connection, [(Script("epoch_begin"), names.epoch, (old, "other servers"))])
        with client(server) as redis:
            assert redis.get(alive_key("{acme:p0}")) == old
        assert await world.near.offer([world.due(partition=0)]) == [], "an old name is good until its tags die"
        for _ in range(2):
            await Epoch(connection, names).look()
        with client(server) as redis:
            assert redis.get(alive_key("{acme:p0}")) is None
    finally:
        await connection.close()
    await lost(world, old)


async def test_a_late_owner_revives_no_old_epoch(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    old = await world.near.generation()
    server.ask("FLUSHALL")
    new = await world.near.generation()
    await world.near.begin(world.all)
    connection = Connection(server.url)
    try:
        for program in ("tag_begin", "tag_end"):
            (answer,) = await run_scripts(connection, [(Script(program), alive_key("{acme:p0}"), (old,))])
            assert answer == 0
        with client(server) as redis:
            assert redis.get(alive_key("{acme:p0}")) == new
    finally:
        await connection.close()


async def test_a_process_in_which_an_epoch_ends_serves_nothing_of_it(own_server: Start, opens: Open) -> None:
    server = own_server()
    world = await opens(server)
    before = await world.near.generation()
    await world.near.offer(world.dues(400))
    # Some more than these now lie in the process for the next pass.
    assert len(await world.take(100)) == 100
    server.ask("FLUSHALL")
    await lost(world, before)


async def test_a_tag_that_is_begun_while_an_answer_is_on_its_way_is_no_loss(shared: World) -> None:
    """A pass over all partitions, a start's begin of some in between: the pass finds them closed, and that is no reason to begin anew."""
    known = shared.near._epoch  # type: ignore[attr-defined]
    before, mark = await shared.near.generation(), known.mark()
    await shared.near.begin([0])
    tag = known._keys.partition_tags[0]
    known._begun[tag] = known.mark()  # begun just now, and not in a test before
    known.doubt([tag], mark)
    assert await shared.near.generation() == before
    known.doubt([tag], known.mark())
    assert await shared.near.generation() != before
