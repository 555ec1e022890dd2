"""The whole surface of the API as one table.

Routing, the check of scopes, the reading of bodies and queries and the OpenAPI document all come from it; an operation that is
not here does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from msgspec import Struct

from tocsin import wire
from tocsin.api import attempts, jobs, probes, queues, tenants
from tocsin.api.auth import Rule
from tocsin.api.call import Answer, Call
from tocsin.api.desk import Desk
from tocsin.api.query import JobQuery, ListQuery, NoQuery
from tocsin.api.reading import Reader

Handler = Callable[[Desk, Call], Awaitable[Answer]]
NAMED = frozenset({"queue", "tenant"})
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
# A report's error may be long; what is kept of it is cut, so that a long traceback does not leave an attempt open.
MAX_REPORT_BYTES = wire.MAX_BATCH_BYTES
MAX_SELECTION_BYTES = 1024 * 1024


class Nothing(Struct, forbid_unknown_fields=True):
    """A body without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    `statuses` are the good answers, `problems` the bad ones beyond those that every call can get. `page_of` is what the items of
    a list are. An action may come without a body (`may_be_empty`), which is then as good as `{}`. With `by_item` a fault in one
    item of the body is that item's alone.
    """

    method: str
    path: str
    run: Handler
    rule: Rule
    summary: str
    group: str
    body: type[Struct] | None = None
    may_be_empty: bool = False
    limit: int = wire.MAX_BODY_BYTES
    by_item: bool = False
    query: type[Struct] = NoQuery
    answer: type[Struct] | None = None
    page_of: type[Struct] | None = None
    media: str = "application/json"
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    headers: tuple[str, ...] = ()
    waits: bool = False
    changes_tokens: bool = False
    dev_only: bool = False
    params: tuple[str, ...] = field(init=False)
    reader: Reader | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(_PARAMETER.findall(self.path)))
        object.__setattr__(self, "reader", None if self.body is None else Reader(self.body))


JOBS, WORKERS, QUEUES, TENANTS, PROBES = "Jobs", "Workers", "Queues and dead letters", "Tenants", "The server"

OPERATIONS: tuple[Operation, ...] = (
    # jobs
    Operation(
        method="POST",
        path="/v1/jobs",
        run=jobs.create,
        rule=Rule.WRITE,
        group=JOBS,
        summary="Create a job",
        body=wire.JobCreate,
        answer=wire.Job,
        statuses=(201, 200),
        problems=(409, 429),
        headers=("Idempotency-Key", "traceparent"),
    ),
    Operation(
        method="GET",
        path="/v1/jobs",
        run=jobs.list_jobs,
        rule=Rule.READ,
        group=JOBS,
        summary="List jobs, newest first",
        query=JobQuery,
        page_of=wire.Job,
    ),
    Operation(
        method="POST",
        path="/v1/jobs:batch",
        run=jobs.create_batch,
        rule=Rule.WRITE,
        group=JOBS,
        summary="Create up to 5,000 jobs, each for itself",
        body=wire.JobBatch,
        answer=wire.BatchAnswer,
        limit=wire.MAX_BATCH_BYTES,
        by_item=True,
        headers=("traceparent",),
    ),
    Operation(
        method="GET",
        path="/v1/jobs/{job_id}",
        run=jobs.get,
        rule=Rule.READ,
        group=JOBS,
        summary="Look at a job",
        answer=wire.Job,
        problems=(404,),
    ),
    Operation(
        method="PATCH",
        path="/v1/jobs/{job_id}",
        run=jobs.patch,
        rule=Rule.WRITE,
        group=JOBS,
        summary="Change a job that is SCHEDULED",
        body=wire.JobPatch,
        may_be_empty=True,
        answer=wire.Job,
        problems=(404, 409, 412),
        headers=("If-Match",),
    ),
    Operation(
        method="DELETE",
        path="/v1/jobs/{job_id}",
        run=jobs.cancel,
        rule=Rule.WRITE,
        group=JOBS,
        summary="Cancel a job, or ask its worker to stop",
        answer=wire.Job,
        statuses=(200, 202),
        problems=(404, 409),
    ),
    Operation(
        method="GET",
        path="/v1/jobs/{job_id}/attempts",
        run=jobs.attempts,
        rule=Rule.READ,
        group=JOBS,
        summary="List the attempts of a job, oldest first",
        page_of=wire.Attempt,
        problems=(404,),
    ),
    Operation(
        method="POST",
        path="/v1/jobs/{job_id}:run-now",
        run=jobs.run_now,
        rule=Rule.WRITE,
        group=JOBS,
        summary="Fire a job at once",
        body=Nothing,
        may_be_empty=True,
        answer=wire.Job,
        problems=(404, 409),
    ),
    # workers
    Operation(
        method="POST",
        path="/v1/queues/{queue}:claim",
        run=attempts.claim,
        rule=Rule.WORK,
        group=WORKERS,
        summary="Claim due task jobs of a queue",
        body=wire.ClaimRequest,
        may_be_empty=True,
        answer=wire.ClaimAnswer,
        waits=True,
    ),
    Operation(
        method="POST",
        path="/v1/attempts/{token}:heartbeat",
        run=attempts.heartbeat,
        rule=Rule.ATTEMPT,
        group=WORKERS,
        summary="Keep an attempt",
        body=wire.Heartbeat,
        may_be_empty=True,
        answer=wire.Beat,
        problems=(404, 409),
    ),
    Operation(
        method="POST",
        path="/v1/attempts/{token}:complete",
        run=attempts.complete,
        rule=Rule.ATTEMPT,
        group=WORKERS,
        summary="Report how an attempt ended",
        body=wire.Completion,
        may_be_empty=True,
        limit=MAX_REPORT_BYTES,
        answer=wire.Completed,
        problems=(404, 409),
    ),
    Operation(
        method="POST",
        path="/v1/attempts:heartbeat",
        run=attempts.heartbeat_batch,
        rule=Rule.ATTEMPT,
        group=WORKERS,
        summary="Keep up to 5,000 attempts",
        body=wire.HeartbeatBatch,
        limit=wire.MAX_BATCH_BYTES,
        answer=wire.HeartbeatAnswer,
    ),
    Operation(
        method="POST",
        path="/v1/attempts:complete",
        run=attempts.complete_batch,
        rule=Rule.ATTEMPT,
        group=WORKERS,
        summary="Report how up to 5,000 attempts ended",
        body=wire.CompletionBatch,
        limit=wire.MAX_BATCH_BYTES,
        by_item=True,
        answer=wire.CompletionAnswer,
    ),
    Operation(
        method="POST",
        path="/v1/executor:claim",
        run=attempts.claim_callbacks,
        rule=Rule.EXECUTOR,
        group=WORKERS,
        summary="Claim due callbacks of all tenants",
        body=wire.ClaimRequest,
        may_be_empty=True,
        answer=wire.ExecutorClaimAnswer,
        waits=True,
    ),
    # queues and dead letters
    Operation(
        method="GET",
        path="/v1/queues",
        run=queues.list_queues,
        rule=Rule.READ,
        group=QUEUES,
        summary="List queues by name",
        query=ListQuery,
        page_of=wire.Queue,
    ),
    Operation(
        method="GET",
        path="/v1/queues/{queue}",
        run=queues.get,
        rule=Rule.READ,
        group=QUEUES,
        summary="Look at a queue",
        answer=wire.Queue,
        problems=(404,),
    ),
    Operation(
        method="PUT",
        path="/v1/queues/{queue}",
        run=queues.put,
        rule=Rule.WRITE,
        group=QUEUES,
        summary="Change a queue's settings",
        body=wire.QueuePut,
        answer=wire.Queue,
    ),
    Operation(
        method="GET",
        path="/v1/queues/{queue}/dead-letters",
        run=queues.list_dead,
        rule=Rule.READ,
        group=QUEUES,
        summary="List dead letters, newest death first",
        query=ListQuery,
        page_of=wire.Job,
    ),
    Operation(
        method="POST",
        path="/v1/queues/{queue}/dead-letters:redrive",
        run=queues.redrive,
        rule=Rule.WRITE,
        group=QUEUES,
        summary="Try dead letters again",
        body=wire.Redrive,
        limit=MAX_SELECTION_BYTES,
        may_be_empty=True,
        answer=wire.Redriven,
    ),
    Operation(
        method="POST",
        path="/v1/queues/{queue}/dead-letters:discard",
        run=queues.discard,
        rule=Rule.WRITE,
        group=QUEUES,
        summary="Discard dead letters",
        body=wire.DeadSelection,
        limit=MAX_SELECTION_BYTES,
        may_be_empty=True,
        answer=wire.Discarded,
    ),
    # tenants
    Operation(
        method="GET",
        path="/v1/me",
        run=tenants.me,
        rule=Rule.ANY,
        group=TENANTS,
        summary="Who this token is",
        answer=wire.Me,
    ),
    Operation(
        method="GET",
        path="/v1/tenants",
        run=tenants.list_tenants,
        rule=Rule.ADMIN,
        group=TENANTS,
        summary="List tenants by name",
        query=ListQuery,
        page_of=wire.Tenant,
    ),
    Operation(
        method="POST",
        path="/v1/tenants",
        run=tenants.create_tenant,
        rule=Rule.OPERATOR,
        group=TENANTS,
        summary="Create a tenant",
        body=wire.TenantCreate,
        answer=wire.Tenant,
        statuses=(201,),
        problems=(409,),
    ),
    Operation(
        method="GET",
        path="/v1/tenants/{tenant}",
        run=tenants.get_tenant,
        rule=Rule.ADMIN,
        group=TENANTS,
        summary="Look at a tenant",
        answer=wire.Tenant,
        problems=(404,),
    ),
    Operation(
        method="PATCH",
        path="/v1/tenants/{tenant}",
        run=tenants.patch_tenant,
        rule=Rule.OPERATOR,
        group=TENANTS,
        summary="Change a tenant's weight and quotas",
        body=wire.TenantPatch,
        may_be_empty=True,
        answer=wire.Tenant,
        problems=(404,),
    ),
    Operation(
        method="GET",
        path="/v1/tenants/{tenant}/tokens",
        run=tenants.list_tokens,
        rule=Rule.ADMIN,
        group=TENANTS,
        summary="List a tenant's tokens, newest first",
        query=ListQuery,
        page_of=wire.Token,
        problems=(404,),
    ),
    Operation(
        method="POST",
        path="/v1/tenants/{tenant}/tokens",
        run=tenants.create_token,
        rule=Rule.ADMIN,
        group=TENANTS,
        summary="Make a token",
        body=wire.TokenCreate,
        answer=wire.Token,
        statuses=(201,),
        problems=(404,),
        changes_tokens=True,
    ),
    Operation(
        method="DELETE",
        path="/v1/tenants/{tenant}/tokens/{token_id}",
        run=tenants.delete_token,
        rule=Rule.ADMIN,
        group=TENANTS,
        summary="Delete a token",
        statuses=(204,),
        problems=(404,),
        changes_tokens=True,
    ),
    Operation(
        method="GET",
        path="/v1/tenants/{tenant}/signing-keys",
        run=tenants.list_signing_keys,
        rule=Rule.ADMIN,
        group=TENANTS,
        summary="List a tenant's signing keys, newest first",
        query=ListQuery,
        page_of=wire.SigningKey,
        problems=(404,),
    ),
    Operation(
        method="POST",
        path="/v1/tenants/{tenant}/signing-keys",
        run=tenants.rotate_signing_key,
        rule=Rule.ADMIN,
        group=TENANTS,
        summary="Make a new signing key; the one before stays active",
        body=Nothing,
        may_be_empty=True,
        answer=wire.SigningKey,
        statuses=(201,),
        problems=(404,),
    ),
    # the server
    Operation(
        method="GET",
        path="/healthz",
        run=probes.healthz,
        rule=Rule.PUBLIC,
        group=PROBES,
        summary="Whether the process is alive",
        answer=probes.Alive,
    ),
    Operation(
        method="GET",
        path="/readyz",
        run=probes.readyz,
        rule=Rule.PUBLIC,
        group=PROBES,
        summary="Whether it can write, fire and hand out jobs",
        answer=probes.Ready,
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        run=probes.openapi,
        rule=Rule.PUBLIC,
        group=PROBES,
        summary="This document",
    ),
    Operation(
        method="GET",
        path="/docs",
        run=probes.docs,
        rule=Rule.PUBLIC,
        group=PROBES,
        summary="This document for people",
        media="text/html",
    ),
    Operation(
        method="GET",
        path="/metrics",
        run=probes.metrics,
        rule=Rule.OPERATOR,
        group=PROBES,
        summary="Metrics for Prometheus",
        media="text/plain",
        problems=(404,),
    ),
    Operation(
        method="POST",
        path="/v1/dev/clock:advance",
        run=probes.advance,
        rule=Rule.OPERATOR,
        group=PROBES,
        summary="Let the manual clock run on",
        body=wire.Advance,
        answer=wire.Advanced,
        dev_only=True,
    ),
)


def served(*, dev: bool) -> tuple[Operation, ...]:
    """The operations of a server; with `dev` also those of the manual clock."""
    return tuple(operation for operation in OPERATIONS if dev or not operation.dev_only)
