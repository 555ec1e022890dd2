"""What left the lines leaves no keys behind, but for what is known of queues, requests and tenants' turns."""

from __future__ import annotations

from tests.conformance.near.world import World
from tests.redis.conftest import Open
from tests.redis.keys import keys
from tests.servers.redis import RedisServer, new_installation
from tocsin.model.job import Lane


async def test_jobs_that_came_and_went_leave_only_gates_and_answers(redis_server: RedisServer, opens: Open) -> None:
    installation = new_installation()
    world = await opens(redis_server, installation)
    await world.open(("acme", "mail"), ("acme", "fax"))
    for _ in range(3):
        await come_and_go(world)
    # Callbacks' marks are taken away by looks that find nothing, and answers after their minute.
    world.clock.advance(71)
    assert await world.claim(world.executor_wish()) == []
    for queue in ("mail", "fax"):
        assert await world.claim(world.wish(queue=queue)) == []
    await world.near.push([last := world.callback()])
    assert await world.claim(world.executor_wish()) == [last.job_id]
    world.clock.advance(1)
    assert await world.claim(world.executor_wish()) == []
    names = [name.split(":", 3) for name in keys(redis_server, f"{{{installation}:q*")]
    left = {parts[3].split("\x1f")[0] for parts in names if parts[2] != "alive"}
    # Whose turn it is where a queue has suspects expires by the server's clock, in an hour.
    assert left - {"gates", "suspected:acme"} <= {
        "marks",
        "requests",
        "requested",
        "answers",
        "answered",
        "remembered",
        "held",
    }


async def come_and_go(world: World) -> None:
    """Jobs of many kinds, by every way out of a line."""
    dues = [world.due(at, handler=f"h{at % 3}", hold=f"k{at % 2}", priority=at % 3 - 1) for at in range(12)]
    dues += [world.due(lane=Lane.FLEXIBLE, suspect=True), world.due(suspect=True), world.due(queue="fax")]
    calls = [world.callback(at, host=f"h{at}", queue="fax", suspect=at == 3) for at in range(4)]
    await world.near.push([*dues, *calls])
    await world.near.remove([dues[0].job_id, calls[0].job_id])
    await world.near.set_parked(dues[1].line, 1, True)
    await world.near.set_parked(dues[1].line, 1, False)
    await world.pop(unsettled := world.wish(1))
    await world.near.unpop(unsettled.request_id)
    await world.pop(world.wish(2))
    world.clock.advance(11)
    for _ in range(4):
        await world.claim()
        await world.claim(world.executor_wish())
    await world.claim(world.wish(queue="fax"))
    figures = await world.near.figures(world.all)
    assert (figures.ready, figures.in_hand) == (0, 0)
    await world.near.wait_ready(world.wish(), 0)
