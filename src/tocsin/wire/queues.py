"""Queues and their dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tocsin.wire.basics import LeaseSeconds, Moment
from tocsin.wire.jobs import RetryPolicy


class QueuePut(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `PUT /v1/queues/{q}`: merged into the settings; null sets the default."""

    paused: bool | None | UnsetType = UNSET
    pause_note: Annotated[str, Meta(max_length=1000)] | None | UnsetType = UNSET
    pause_until: Moment | None | UnsetType = UNSET
    lease_s: LeaseSeconds | None | UnsetType = UNSET
    retry: RetryPolicy | None | UnsetType = UNSET


class QueueStats(Struct, kw_only=True):
    """A queue's figures. Counters that the owners of its jobs keep, corrected by a slow sweep."""

    scheduled: int = 0
    ready: int = 0
    running: int = 0
    retrying: int = 0
    dead: int = 0
    oldest_ready_s: float | None = None
    completed_per_s: float = 0.0
    lateness_p50_s: float | None = None
    lateness_p99_s: float | None = None


class Queue(Struct, kw_only=True):
    """A queue as answers show it."""

    queue: str
    paused: bool
    pause_note: str | None
    pause_until: str | None
    lease_s: float
    retry: RetryPolicy
    stats: QueueStats


class DeadFilter(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters: all conditions given must hold; `{}` is all of them."""

    error_contains: Annotated[str, Meta(max_length=1000)] | None = None
    tag: Annotated[str, Meta(max_length=321)] | None = None
    dead_after: Moment | None = None
    dead_before: Moment | None = None


class DeadSelection(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a discard; `job_ids` or `filter`, exactly one."""

    job_ids: Annotated[list[str], Meta(max_length=10_000)] | None = None
    filter: DeadFilter | None = None
    max: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    dry_run: bool = False


class Redrive(DeadSelection, forbid_unknown_fields=True, kw_only=True):
    """The body of a redrive; `rate_per_s` spreads the new attempts."""

    rate_per_s: Annotated[float, Meta(gt=0, le=100_000)] | None = None


class Redriven(Struct, kw_only=True):
    """The answer of a redrive."""

    matched: int
    redriven: int


class Discarded(Struct, kw_only=True):
    """The answer of a discard."""

    matched: int
    discarded: int
