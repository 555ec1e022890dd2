"""Jobs: create one or many, look, change, cancel, run now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from tocsin import wire
from tocsin.api import checks, views
from tocsin.api.call import Answer, Call, ok
from tocsin.api.canonical import body_hash
from tocsin.api.cursors import Cursors
from tocsin.api.desk import Desk
from tocsin.api.problems import invalid, not_found, problem_of
from tocsin.api.query import JobQuery
from tocsin.api.reading import Reader, may_hold_nul, nul_faults
from tocsin.clock import ms_of
from tocsin.errors import Refused
from tocsin.flow.admit import Wanted
from tocsin.model.ids import is_job_id
from tocsin.store.port import JobFilter

REPLAYED = [(b"idempotency-replayed", b"true")]
# So many jobs of a batch are decoded at once before other requests get their turn.
SLICE = 250


class _Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch without a fault, read in one go."""

    jobs: list[wire.BatchedJob]
    window_s: float = 0.0


_BATCHED = Reader(wire.BatchedJob)
_all = msgspec.json.Decoder(_Batch).decode


def known_id(text: str) -> str:
    """A job's ID from a path. Raises Refused (404) for what can be none."""
    if not is_job_id(text):
        raise not_found("job")
    return text


async def create(desk: Desk, call: Call) -> Answer:
    """`POST /v1/jobs`"""
    job: wire.JobCreate = call.body
    key = checks.client_key(call.headers.get(b"idempotency-key"))
    checks.check_job(job)
    wanted = Wanted(
        job=job,
        key=key,
        body_hash=body_hash(call.raw) if key is not None else b"",
        traceparent=checks.traceparent(call.headers.get(b"traceparent")),
    )
    (made,) = await desk.admit.create(call.caller.tenant, [wanted])
    if isinstance(made, Refused):
        raise made
    state = made.draft.state() if made.draft is not None else await desk.look.get(call.caller.tenant, made.job_id)
    if made.replayed:
        return ok(views.job(state), 200, REPLAYED)
    return ok(views.job(state), 201)


async def create_batch(desk: Desk, call: Call) -> Answer:
    """`POST /v1/jobs:batch`: each job is read, checked and answered by itself."""
    batch: wire.JobBatch = call.body
    trace = checks.traceparent(call.headers.get(b"traceparent"))
    answers: list[wire.BatchResult | None] = []
    wanted: list[Wanted] = []
    for at, job in enumerate(_jobs(call)):
        if at % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        try:
            if isinstance(job, Refused):
                raise job
            checks.check_job(job)
            wanted.append(_wanted(job, batch.jobs[at], batch.window_s, trace))
            answers.append(None)
        except Refused as why:
            answers.append(wire.BatchResult(error=problem_of(why)))
    made = iter(await desk.admit.create(call.caller.tenant, wanted) if wanted else ())
    results = [answer if answer is not None else _result(next(made)) for answer in answers]
    return ok(wire.BatchAnswer(results=results))


def _jobs(call: Call) -> Iterator[wire.BatchedJob | Refused]:
    """The jobs of a batch: read in one go if none has a fault, else each by itself."""
    if not call.nul:  # that it is UTF-8 has been seen to
        try:
            yield from _all(call.raw).jobs
            return
        except (msgspec.DecodeError, RecursionError):
            pass
    for raw in call.body.jobs:
        yield _one(bytes(raw), nul=call.nul)


def _one(text: bytes, *, nul: bool) -> wire.BatchedJob | Refused:
    try:
        job: wire.BatchedJob = _BATCHED.read(text)
        if nul and may_hold_nul(text):
            raise invalid(nul_faults(text))
    except Refused as why:
        return why
    return job


def _wanted(job: wire.BatchedJob, raw: msgspec.Raw, window_s: float, trace: str | None) -> Wanted:
    key = job.idempotency_key
    hashed = body_hash(bytes(raw)) if key is not None else b""
    return Wanted(job=job, key=key, body_hash=hashed, window_s=window_s, traceparent=trace)


def _result(made: object) -> wire.BatchResult:
    if isinstance(made, Refused):
        return wire.BatchResult(error=problem_of(made))
    return wire.BatchResult(job_id=made.job_id, status=made.status, replayed=made.replayed)  # type: ignore[attr-defined]


async def get(desk: Desk, call: Call) -> Answer:
    """`GET /v1/jobs/{job_id}`"""
    return ok(views.job(await desk.look.get(call.caller.tenant, known_id(call.params[0]))))


async def list_jobs(desk: Desk, call: Call) -> Answer:
    """`GET /v1/jobs`"""
    query: JobQuery = call.query
    tenant = call.caller.tenant
    wanted = JobFilter(
        tenant=tenant,
        queue=query.queue,
        status=query.status,
        schedule_id=query.schedule_id,
        tags=tuple((key, value) for key, _, value in (tag.partition(":") for tag in query.tag)),
        created_after=None if query.created_after is None else ms_of(query.created_after),
        created_before=None if query.created_before is None else ms_of(query.created_before),
    )
    cursors = Cursors(desk.cursor_secret)
    place = (tenant, "jobs", msgspec.json.encode(msgspec.structs.replace(query, cursor=None, limit=50)).decode())
    page = await desk.look.page(wanted, cursors.read(place, query.cursor), query.limit)
    return ok(
        wire.Page(
            items=[views.job(state) for state in page.jobs],
            next_cursor=None if page.after is None else cursors.make(place, page.after),
        )
    )


async def patch(desk: Desk, call: Call) -> Answer:
    """`PATCH /v1/jobs/{job_id}`"""
    body: wire.JobPatch = call.body
    checks.check_patch(body)
    version = checks.expected_version(call.headers.get(b"if-match"))
    return ok(views.job(await desk.change.patch(call.caller.tenant, known_id(call.params[0]), body, version)))


async def cancel(desk: Desk, call: Call) -> Answer:
    """`DELETE /v1/jobs/{job_id}`: 200 when it is cancelled, 202 when its worker has been asked to stop."""
    state = await desk.change.cancel(call.caller.tenant, known_id(call.params[0]))
    return ok(views.job(state), 202 if state.status is wire.Status.CANCEL_REQUESTED else 200)


async def run_now(desk: Desk, call: Call) -> Answer:
    """`POST /v1/jobs/{job_id}:run-now`"""
    return ok(views.job(await desk.change.run_now(call.caller.tenant, known_id(call.params[0]))))


async def attempts(desk: Desk, call: Call) -> Answer:
    """`GET /v1/jobs/{job_id}/attempts`"""
    found = await desk.look.attempts(call.caller.tenant, known_id(call.params[0]))
    return ok(wire.Page(items=found, next_cursor=None))
