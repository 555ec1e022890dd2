"""Jobs: how one is asked for, changed and shown."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from tocsin.wire.answers import Problem
from tocsin.wire.basics import (
    DAY_S,
    MAX_BATCH_JOBS,
    Attempts,
    Backoff,
    ClientKey,
    Delay,
    Expiry,
    FreeName,
    Method,
    Moment,
    Name,
    Priority,
    Tags,
    Window,
    _null,
)


class HttpTarget(Struct, frozen=True, forbid_unknown_fields=True, tag="http", tag_field="type", kw_only=True):
    """Call this URL. `timeout_s` covers the whole call."""

    url: Annotated[str, Meta(min_length=1, max_length=8192)]
    method: Method = "POST"
    headers: Annotated[dict[str, str], Meta(max_length=64)] = {}
    timeout_s: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0


class TaskTarget(Struct, frozen=True, forbid_unknown_fields=True, tag="task", tag_field="type", kw_only=True):
    """Hand the job to a worker that knows `handler`."""

    handler: Name
    timeout_s: Annotated[float, Meta(ge=0.1, le=DAY_S)] = 3600.0


Target = HttpTarget | TaskTarget


class Timing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How exact a start must be. `window_s` belongs to `flexible` alone (checked in the API)."""

    class_: Literal["precise", "flexible"] = field(name="class", default="precise")
    window_s: Window | None = None
    may_widen: bool = False


class RetryPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When to try again. A field left out takes the queue's default, then 6, 10, 600."""

    max_attempts: Attempts | UnsetType = UNSET
    initial_backoff_s: Backoff | UnsetType = UNSET
    max_backoff_s: Backoff | UnsetType = UNSET


class JobCreate(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/jobs`."""

    queue: Name
    target: Target
    name: FreeName | None = None
    run_at: Moment | None = None
    delay_s: Delay | None = None
    timing: Timing | None = None
    priority: Priority | None = None
    payload: Raw = field(default_factory=_null)
    retry: RetryPolicy | None = None
    expires_after_s: Expiry | None = None
    tags: Tags | None = None


class BatchedJob(JobCreate, forbid_unknown_fields=True, kw_only=True):
    """One job of `POST /v1/jobs:batch`; the key travels inside."""

    idempotency_key: ClientKey | None = None


class JobBatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/jobs:batch`. Each job is decoded by itself, so that a bad one stops no other."""

    jobs: Annotated[list[Raw], Meta(max_length=MAX_BATCH_JOBS)]
    window_s: Annotated[float, Meta(ge=0, le=DAY_S)] = 0.0


class JobPatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `PATCH /v1/jobs/{id}`: absent keeps, null sets the default."""

    run_at: Moment | None | UnsetType = UNSET
    delay_s: Delay | None | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    target: Target | UnsetType = UNSET
    retry: RetryPolicy | None | UnsetType = UNSET
    timing: Timing | None | UnsetType = UNSET
    priority: Priority | None | UnsetType = UNSET
    name: FreeName | None | UnsetType = UNSET
    tags: Tags | None | UnsetType = UNSET
    expires_after_s: Expiry | None | UnsetType = UNSET


class Job(Struct, kw_only=True):
    """A job as answers show it. Times are RFC 3339 text in UTC; header values of the target are masked."""

    job_id: str
    queue: str
    name: str | None
    status: str
    version: int
    run_at: str
    fire_at: str
    attempt: int
    tries: int
    max_attempts: int
    priority: str
    timing: Timing
    target: Target
    payload: Raw
    retry: RetryPolicy
    tags: dict[str, str]
    expires_after_s: float | None
    idempotency_key: str
    schedule_id: str | None
    occurrence_at: str | None
    origin: str
    worker: str | None
    lease_until: str | None
    progress: Raw
    result: Raw
    created_at: str
    queued_at: str | None
    started_at: str | None
    finished_at: str | None
    next_attempt_at: str | None
    last_error: str | None


class Attempt(Struct, kw_only=True):
    """One try of a job. `lateness_s` is `claimed_at` less the time at which this attempt was due."""

    attempt: int
    worker: str | None
    claimed_at: str
    finished_at: str | None
    outcome: str | None
    error: str | None
    lateness_s: float
    status_code: int | None = None
    response: Raw = field(default_factory=_null)


class BatchResult(Struct, kw_only=True, omit_defaults=True):
    """What became of one job of a batch: either an error or the rest."""

    job_id: str | None = None
    status: str | None = None
    replayed: bool | None = None
    error: Problem | None = None


class BatchAnswer(Struct, kw_only=True):
    """The answer of `POST /v1/jobs:batch`, in the order of the request."""

    results: list[BatchResult]
