"""Nodes, partitions and workers: what the installation is made of, and who works.

Nodes and partitions are the operator's. A tenant sees the workers of its own queues, an operator those of all tenants and the
executors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from tocsin import wire
from tocsin.api.call import Answer, Call, ok
from tocsin.api.cursors import Cursors, page_of
from tocsin.api.desk import Desk
from tocsin.api.query import ListQuery

Row = TypeVar("Row", bound=Struct)
MOST_MOVES = 1_000


async def list_nodes(desk: Desk, call: Call) -> Answer:
    """`GET /v1/nodes`, the coordinator first, then by name."""
    nodes = await desk.fleet.nodes()
    return _page(desk, call, "nodes", nodes, lambda node: f"{not node.coordinator:d} {node.name} {node.node_id}")


async def list_partitions(desk: Desk, call: Call) -> Answer:
    """`GET /v1/partitions`, by number."""
    partitions = await desk.fleet.partitions()
    return _page(desk, call, "partitions", partitions, lambda partition: f"{partition.partition:04d}")


async def list_moves(desk: Desk, call: Call) -> Answer:
    """`GET /v1/partition-moves`, newest first."""
    moves = list(enumerate(reversed(await desk.fleet.moves(MOST_MOVES))))
    query: ListQuery = call.query
    cursors, place = Cursors(desk.cursor_secret), (call.caller.tenant, "partition-moves")
    shown, following = page_of(
        moves,
        lambda one: f"{one[1].at} {one[0]:04d}",
        cursors.read(place, query.cursor),
        query.limit,
        newest_first=True,
    )
    following = None if following is None else cursors.make(place, following)
    return ok(wire.Page(items=[move for _, move in shown], next_cursor=following))


async def list_workers(desk: Desk, call: Call) -> Answer:
    """`GET /v1/workers`, by tenant, queue and name."""
    workers = await desk.fleet.workers(None if call.caller.operator else call.caller.tenant)
    return _page(desk, call, "workers", workers, lambda one: f"{one.tenant}\0{one.queue or ''}\0{one.worker}")


def _page(desk: Desk, call: Call, kind: str, rows: Sequence[Row], key: Callable[[Row], str]) -> Answer:
    query: ListQuery = call.query
    cursors, place = Cursors(desk.cursor_secret), (call.caller.tenant, kind, str(call.caller.operator))
    shown, following = page_of(rows, key, cursors.read(place, query.cursor), query.limit)
    return ok(wire.Page(items=shown, next_cursor=None if following is None else cursors.make(place, following)))
