"""Workers and executors: claims, heartbeats, completions."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from tocsin.wire.answers import Problem
from tocsin.wire.basics import MAX_BATCH_ATTEMPTS, MAX_CLAIM, FreeName, LeaseSeconds, Name, ReportedOutcome, _null
from tocsin.wire.jobs import HttpTarget


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
