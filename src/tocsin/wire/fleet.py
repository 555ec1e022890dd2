"""Nodes, partitions and workers, as operators see them."""

from __future__ import annotations

from msgspec import Struct


class Node(Struct, kw_only=True):
    """A process of the installation whose session stands. `clock_offset_ms`: the store's clock less its own, null if unknown."""

    node_id: str
    name: str
    roles: list[str]
    version: str
    address: str | None
    started_at: str
    age_s: float
    coordinator: bool
    partitions: int
    clock_offset_ms: int | None


class Partition(Struct, kw_only=True):
    """A part of all jobs and timers. `node_id` holds it since `since`; `assigned_to` is who is to hold it.

    `rechecked_until`: all timers before that instant have been looked at once more. `overdue_s`: how long the oldest job that is
    known to be due has not fired.
    """

    partition: int
    node_id: str | None
    node: str | None
    since: str | None
    assigned_to: str | None
    rechecked_until: str | None
    overdue_s: float


class PartitionMove(Struct, kw_only=True):
    """A partition that was given to another node, and why: `first`, `gone`, `revoked` or `balance`."""

    partition: int
    at: str
    from_node: str | None
    to_node: str
    why: str


class Worker(Struct, kw_only=True):
    """A worker as its last claim showed it. `claimed`: the jobs that it was given by the process that saw it, since that started."""

    tenant: str
    queue: str | None
    worker: str
    last_seen_at: str
    claimed: int
