"""What travels over HTTP: the bodies and answers of the contract, as msgspec structs.

The API decodes requests with these and the SDK decodes answers with them; it is the only module that both sides of a
connection import. Names, bounds and defaults are the published contract: change one only together with the OpenAPI
document, the SDK and the changelog. Unknown fields are refused in requests; answers may grow, so clients must accept
fields that they do not know.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

DAY_S = 86_400
HORIZON_S = 366 * DAY_S
MAX_PAYLOAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_BATCH_JOBS = 5_000
MAX_BATCH_ATTEMPTS = 5_000
MAX_CLAIM = 1_000
MAX_ERROR_BYTES = 8 * 1024
MAX_RESULT_BYTES = 16 * 1024
MAX_PROGRESS_BYTES = 4 * 1024
MAX_RESPONSE_BYTES = 4 * 1024
MAX_JSON_DEPTH = 100
MASK = "***"  # what answers show of a header's value
ERROR_CUT_MARK = "… (cut)"

# `$(?!\n)`: "$" alone also matches before a final line break in Python.
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$(?!\n)",
        description="A name: letters, digits, `.`, `_`, `-`; starts with a letter or digit; at most 128.",
    ),
]
FreeName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$(?!\n)",
        description="1-200 characters without control characters.",
    ),
]
ClientKey = Annotated[
    str,
    Meta(
        min_length=1, max_length=255, pattern=r"^[\x20-\x7e]*$(?!\n)", description="1-255 printable ASCII characters."
    ),
]
TagKey = Annotated[str, Meta(min_length=1, max_length=64)]
TagValue = Annotated[str, Meta(max_length=256)]
Tags = Annotated[dict[TagKey, TagValue], Meta(max_length=20)]
Moment = Annotated[datetime, Meta(tz=True)]
Delay = Annotated[float, Meta(ge=0, le=HORIZON_S)]
Window = Annotated[float, Meta(ge=1, le=DAY_S)]
Backoff = Annotated[float, Meta(ge=0, le=DAY_S)]
Attempts = Annotated[int, Meta(ge=1, le=100)]
Expiry = Annotated[float, Meta(gt=0, le=HORIZON_S)]
LeaseSeconds = Annotated[float, Meta(ge=5, le=600)]

_NULL = Raw(b"null")

Method = Literal["POST", "PUT", "PATCH", "GET", "DELETE"]
Priority = Literal["high", "normal", "low"]


def _null() -> Raw:
    # A default that is a Raw itself could not be shown in a JSON schema.
    return _NULL


class Status(StrEnum):
    """Where a job stands in its life."""

    SCHEDULED = "SCHEDULED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    SUCCEEDED = "SUCCEEDED"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class Outcome(StrEnum):
    """How an attempt ended. The last two are only ever recorded by Tocsin."""

    SUCCEEDED = "succeeded"
    RETRYABLE_FAILURE = "retryable_failure"
    FATAL_FAILURE = "fatal_failure"
    CANCELLED = "cancelled"
    RELEASED = "released"
    LOST = "lost"
    TIMED_OUT = "timed_out"


ReportedOutcome = Literal["succeeded", "retryable_failure", "fatal_failure", "cancelled", "released"]


# --- jobs -------------------------------------------------------------------------------------------------------------


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


class Page(Struct, kw_only=True):
    """A list's answer. A page may be short or empty and still have a cursor."""

    items: list[Any]
    next_cursor: str | None


class Problem(Struct, kw_only=True, omit_defaults=True):
    """RFC 9457, `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str = ""
    errors: list[dict[str, str]] | None = None
    schedule_id: str | None = None
    quota: str | None = None


class BatchResult(Struct, kw_only=True, omit_defaults=True):
    """What became of one job of a batch: either an error or the rest."""

    job_id: str | None = None
    status: str | None = None
    replayed: bool | None = None
    error: Problem | None = None


class BatchAnswer(Struct, kw_only=True):
    """The answer of `POST /v1/jobs:batch`, in the order of the request."""

    results: list[BatchResult]


# --- workers ----------------------------------------------------------------------------------------------------------


class ClaimRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a claim. A repeated `request_id` gets the same jobs for 60 s."""

    worker: FreeName
    max: Annotated[int, Meta(ge=1, le=MAX_CLAIM)] = 1
    lease_s: LeaseSeconds | None = None
    wait_s: Annotated[float, Meta(ge=0, le=30)] = 0.0
    request_id: FreeName | None = None
    handlers: Annotated[list[Name], Meta(max_length=1000)] | None = None


class ClaimedJob(Struct, kw_only=True):
    """A job in a worker's hands. `lease_token` names the attempt in every later call."""

    job_id: str
    attempt: int
    tries: int
    max_attempts: int
    lease_token: str
    lease_until: str
    lease_s: float
    idempotency_key: str
    handler: str | None
    payload: Raw
    timeout_s: float
    run_at: str
    fire_at: str
    queue: str
    name: str | None
    tags: dict[str, str]
    schedule_id: str | None
    progress: Raw
    traceparent: str | None


class ExecutorJob(ClaimedJob, kw_only=True):
    """A callback in an executor's hands: also whose it is, where it goes and how it is signed.

    `target` carries the header values unmasked. `signature_headers` are `Webhook-Id`, `Webhook-Timestamp` and
    `Webhook-Signature` of this attempt, made by the server so that the executor never holds a signing key.
    """

    tenant: str
    target: HttpTarget
    signature_headers: dict[str, str]


class ClaimAnswer(Struct, kw_only=True):
    """The answer of a claim."""

    jobs: list[ClaimedJob]


class ExecutorClaimAnswer(Struct, kw_only=True):
    """The answer of the executor's claim."""

    jobs: list[ExecutorJob]


class Heartbeat(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a single heartbeat (may be left out)."""

    progress: Raw | UnsetType = UNSET


class HeartbeatBatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/attempts:heartbeat`."""

    tokens: Annotated[list[str], Meta(max_length=MAX_BATCH_ATTEMPTS)]


class Beat(Struct, kw_only=True, omit_defaults=True):
    """The answer for one heartbeat: either an error or the rest."""

    token: str | None = None
    lease_until: str | None = None
    lease_s: float | None = None
    cancel_requested: bool | None = None
    error: Problem | None = None


class HeartbeatAnswer(Struct, kw_only=True):
    """The answer of a batch of heartbeats, in the order of the request."""

    results: list[Beat]


class Response(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What a callback's target answered: chosen headers and the first 4 KiB of the body as text."""

    headers: dict[str, str] = {}
    body: str = ""


class Completion(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a completion. `status_code` and `response` come from executors only."""

    outcome: ReportedOutcome
    error: str | None = None
    result: Raw = field(default_factory=_null)
    retry_after_s: Annotated[float, Meta(ge=0)] | None = None
    status_code: Annotated[int, Meta(ge=100, le=999)] | None = None
    response: Response | None = None


class TokenCompletion(Completion, forbid_unknown_fields=True, kw_only=True):
    """One item of a batch of completions."""

    token: str


class CompletionBatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/attempts:complete`. Each item is decoded by itself, so that a bad one stops no other."""

    items: Annotated[list[Raw], Meta(max_length=MAX_BATCH_ATTEMPTS)]


class Completed(Struct, kw_only=True, omit_defaults=True):
    """The answer for one completion: either an error or the job's status."""

    token: str | None = None
    status: str | None = None
    error: Problem | None = None


class CompletionAnswer(Struct, kw_only=True):
    """The answer of a batch of completions, in the order of the request."""

    results: list[Completed]


# --- queues and dead letters ------------------------------------------------------------------------------------------


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


# --- tenants, tokens, keys --------------------------------------------------------------------------------------------

Quota = Annotated[float, Meta(ge=0)]


class Quotas(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tenant's limits; a field left out takes the installation's default."""

    creates_per_s: Quota | None = None
    jobs_per_minute_bucket: Quota | None = None
    precise_per_s: Quota | None = None
    waiting_jobs: Quota | None = None
    concurrent_callbacks: Quota | None = None
    stored_bytes: Quota | None = None


class TenantCreate(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/tenants`."""

    name: Name
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    quotas: Quotas | None = None


class TenantPatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `PATCH /v1/tenants/{t}`."""

    weight: Annotated[float, Meta(gt=0, le=1000)] | UnsetType = UNSET
    quotas: Quotas | None | UnsetType = UNSET


class Tenant(Struct, kw_only=True):
    """A tenant as answers show it."""

    name: str
    weight: float
    quotas: Quotas
    created_at: str


class TokenCreate(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/tenants/{t}/tokens`."""

    name: FreeName
    scopes: Annotated[list[Annotated[str, Meta(max_length=140)]], Meta(min_length=1, max_length=50)]
    expires_at: Moment | None = None


class Token(Struct, kw_only=True, omit_defaults=True):
    """A token as answers show it; `token` is present once, in the answer that made it."""

    token_id: str
    name: str
    scopes: list[str]
    created_at: str
    expires_at: str | None = None
    token: str | None = None


class SigningKey(Struct, kw_only=True, omit_defaults=True):
    """A signing key; `secret` (`whsec_…`, Standard Webhooks) is present once, in the answer that made it."""

    key_id: str
    created_at: str
    active: bool
    secret: str | None = None


class Me(Struct, kw_only=True):
    """Who a token is."""

    tenant: str
    scopes: list[str]
    quotas: Quotas
    usage: dict[str, float]


# --- dev --------------------------------------------------------------------------------------------------------------


class Advance(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/dev/clock:advance` (manual clock only)."""

    seconds: Annotated[float, Meta(ge=0, le=HORIZON_S)]


class Advanced(Struct, kw_only=True):
    """Its answer: the time that it is now."""

    now: str


def raw(text: bytes | None) -> Raw:
    """JSON text as it stands in an answer; None is null."""
    return _NULL if text is None else Raw(text)


def encode(value: object) -> bytes:
    """The JSON of a struct."""
    return _ENCODER.encode(value)


_ENCODER = msgspec.json.Encoder()
