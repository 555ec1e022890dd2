"""Nodes, partitions, their moves and workers: who may see them, in which order, and in pages."""

from __future__ import annotations

import pytest

from tests.unit.api.stand_ins import StandInDesk

OPERATORS = "tcs_op_0123456789abcdef0123456789abcdef"
READERS = "tcs_rd_0123456789abcdef0123456789abcdef"
PATHS = ["/v1/nodes", "/v1/partitions", "/v1/partition-moves"]


@pytest.fixture
def desk() -> StandInDesk:
    stand_in = StandInDesk()
    stand_in.give(OPERATORS, "operator")
    stand_in.give(READERS, "read")
    return stand_in


@pytest.mark.parametrize("path", PATHS)
async def test_what_the_installation_is_made_of_is_for_operators(desk: StandInDesk, path: str) -> None:
    assert (await desk.http(OPERATORS)("GET", path)).status == 200
    refused = await desk.http()("GET", path)
    assert refused.status == 403
    assert "operator" in refused.json["detail"]


async def test_the_coordinator_is_listed_first(desk: StandInDesk) -> None:
    items = (await desk.http(OPERATORS)("GET", "/v1/nodes")).json["items"]
    assert [node["name"] for node in items] == ["node-2", "node-1"]
    assert [node["coordinator"] for node in items] == [True, False]


async def test_partitions_come_in_order_and_in_pages(desk: StandInDesk) -> None:
    http = desk.http(OPERATORS)
    first = (await http("GET", "/v1/partitions", query="limit=3")).json
    rest = (await http("GET", "/v1/partitions", query=f"limit=3&cursor={first['next_cursor']}")).json
    assert [one["partition"] for one in (*first["items"], *rest["items"])] == [0, 1, 2, 3]
    assert rest["next_cursor"] is None


async def test_moves_come_newest_first(desk: StandInDesk) -> None:
    http = desk.http(OPERATORS)
    first = (await http("GET", "/v1/partition-moves", query="limit=2")).json
    rest = (await http("GET", "/v1/partition-moves", query=f"limit=2&cursor={first['next_cursor']}")).json
    assert [move["partition"] for move in (*first["items"], *rest["items"])] == [3, 2, 1]


async def test_a_tenant_sees_its_own_workers_and_an_operator_those_of_all(desk: StandInDesk) -> None:
    own = (await desk.http(READERS)("GET", "/v1/workers")).json["items"]
    assert [worker["tenant"] for worker in own] == ["shop"]
    every = (await desk.http(OPERATORS)("GET", "/v1/workers")).json["items"]
    assert [worker["tenant"] for worker in every] == ["other", "shop"]


async def test_a_cursor_of_another_list_is_refused(desk: StandInDesk) -> None:
    http = desk.http(OPERATORS)
    reply = await http("GET", "/v1/partitions", query="limit=3")
    assert reply.status == 200, reply.json
    cursor = reply.json["next_cursor"]
    assert (await http("GET", "/v1/nodes", query=f"cursor={cursor}")).status == 400
