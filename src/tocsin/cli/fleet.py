"""`tocsin admin nodes|partitions|workers`: what an installation is made of and who works, as the API tells it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tocsin.cli import output, reach
from tocsin.cli.output import Json

PAGE = "200"
NODE_COLUMNS = ("node", "roles", "coordinator", "partitions", "clock off by", "version", "started at", "id")
PARTITION_COLUMNS = ("partition", "node", "since", "rechecked until", "overdue")
MOVE_COLUMNS = ("partition", "at", "from", "to", "why")
WORKER_COLUMNS = ("tenant", "queue", "worker", "last seen at", "claimed")


def nodes(json: Json = False) -> None:
    """List the processes of the installation."""
    items = _all("/v1/nodes")
    if json:
        output.as_json({"items": items, "next_cursor": None})
        return
    rows = [
        (
            each["name"],
            " ".join(each["roles"]),
            "yes" if each["coordinator"] else "",
            each["partitions"],
            "" if each["clock_offset_ms"] is None else f"{each['clock_offset_ms']} ms",
            each["version"],
            each["started_at"],
            each["node_id"],
        )
        for each in items
    ]
    output.table(NODE_COLUMNS, rows, none="no nodes")


def partitions(
    moves: Annotated[bool, typer.Option("--moves", help="The latest moves between nodes instead.")] = False,
    json: Json = False,
) -> None:
    """List the partitions and who owns them."""
    items = _all("/v1/partition-moves" if moves else "/v1/partitions")
    if json:
        output.as_json({"items": items, "next_cursor": None})
        return
    if moves:
        rows = [(each["partition"], each["at"], each["from_node"], each["to_node"], each["why"]) for each in items]
        output.table(MOVE_COLUMNS, rows, none="no partition has moved yet")
        return
    rows = [
        (
            each["partition"],
            each["node"] or "nobody",
            each["since"],
            each["rechecked_until"],
            f"{each['overdue_s']:g} s" if each["overdue_s"] else "",
        )
        for each in items
    ]
    output.table(PARTITION_COLUMNS, rows, none="no partitions")


def workers(json: Json = False) -> None:
    """List the workers that asked for jobs within the last day."""
    items = _all("/v1/workers")
    if json:
        output.as_json({"items": items, "next_cursor": None})
        return
    rows = [(each["tenant"], each["queue"], each["worker"], each["last_seen_at"], each["claimed"]) for each in items]
    output.table(WORKER_COLUMNS, rows, none="no worker has asked for jobs within the last day")


def _all(path: str) -> list[dict[str, Any]]:
    """All pages of a list."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        query = [("limit", PAGE), *([] if cursor is None else [("cursor", cursor)])]
        page = reach.call("GET", path, query=query).value
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items
