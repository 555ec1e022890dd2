"""Schedules: define, preview, look, change, delete, and the actions beside their own course.

Here a field is judged by itself, and a template's target as a job's is. What needs the zone, the time or two fields together is
the flow's to judge.
"""

from __future__ import annotations

import msgspec

from tocsin import wire
from tocsin.api import checks, views
from tocsin.api.call import Answer, Call, nothing, ok
from tocsin.api.canonical import body_hash
from tocsin.api.cursors import Cursors, timed
from tocsin.api.desk import Desk
from tocsin.api.jobs import REPLAYED
from tocsin.api.problems import forbidden, not_found
from tocsin.api.query import ListQuery, ScheduleQuery
from tocsin.model.ids import is_schedule_id


def known_id(text: str) -> str:
    """A schedule's ID from a path. Raises Refused (404) for what can be none."""
    if not is_schedule_id(text):
        raise not_found("schedule")
    return text


async def create(desk: Desk, call: Call) -> Answer:
    """`POST /v1/schedules`"""
    body: wire.ScheduleCreate = call.body
    checks.check_schedule(body)
    return ok(views.schedule(await desk.define.create(call.caller.tenant, body)), 201)


async def upsert(desk: Desk, call: Call) -> Answer:
    """`PUT /v1/schedules/by-name/{name}`: 201 when it has been made, 200 when it was there."""
    body: wire.SchedulePut = call.body
    name = call.params[0]
    if not call.caller.write and not call.caller.may_work(body.job_template.queue):
        raise forbidden(f"the scope `write` or `work:{body.job_template.queue}`")
    checks.check_schedule(body, name)
    if not call.caller.write:
        await _require_own(desk, call, name)
    schedule, made = await desk.define.upsert(call.caller.tenant, name, body)
    return ok(views.schedule(schedule), 201 if made else 200)


async def _require_own(desk: Desk, call: Call, name: str) -> None:
    """Raise Refused (403) where a schedule of that name serves a queue that the caller may not work: a worker must not be able to
    take over what another team's workers run."""
    found, _ = await desk.schedules.page(call.caller.tenant, None, name, None, 1)
    for one in found:
        if one.job_template is None or not call.caller.may_work(one.job_template.queue):
            raise forbidden("the scope `write`: a schedule of this name serves a queue that is not this token's")


async def preview(desk: Desk, call: Call) -> Answer:
    """`POST /v1/schedules:preview`"""
    body: wire.Preview = call.body
    checks.check_moments(body)
    return ok(await desk.schedules.preview(body))


async def list_schedules(desk: Desk, call: Call) -> Answer:
    """`GET /v1/schedules`"""
    query: ScheduleQuery = call.query
    tenant, cursors = call.caller.tenant, Cursors(desk.cursor_secret)
    place = (tenant, "schedules", msgspec.json.encode([query.status, query.name]).decode())
    after = cursors.read(place, query.cursor)
    found, following = await desk.schedules.page(tenant, query.status, query.name, after, query.limit)
    return ok(
        wire.Page(
            items=[views.schedule(one) for one in found],
            next_cursor=None if following is None else cursors.make(place, following),
        )
    )


async def get(desk: Desk, call: Call) -> Answer:
    """`GET /v1/schedules/{schedule_id}`"""
    return ok(views.schedule(await desk.schedules.get(call.caller.tenant, known_id(call.params[0]))))


async def patch(desk: Desk, call: Call) -> Answer:
    """`PATCH /v1/schedules/{schedule_id}`"""
    body: wire.SchedulePatch = call.body
    checks.check_schedule_patch(body)
    revision = checks.expected_version(call.headers.get(b"if-match"))
    changed = await desk.define.patch(call.caller.tenant, known_id(call.params[0]), body, revision)
    return ok(views.schedule(changed))


async def delete(desk: Desk, call: Call) -> Answer:
    """`DELETE /v1/schedules/{schedule_id}`"""
    await desk.define.delete(call.caller.tenant, known_id(call.params[0]))
    return nothing()


async def list_jobs(desk: Desk, call: Call) -> Answer:
    """`GET /v1/schedules/{schedule_id}/jobs`, newest occurrence first."""
    query: ListQuery = call.query
    tenant, schedule_id = call.caller.tenant, call.params[0]
    cursors = Cursors(desk.cursor_secret)
    place = (tenant, "schedule-jobs", schedule_id)
    after = cursors.read(place, query.cursor)
    page = await desk.schedules.jobs(tenant, known_id(schedule_id), after, query.limit)
    return ok(
        wire.Page(
            items=[views.job(state) for state in page.jobs],
            next_cursor=None if page.after is None else cursors.make(place, page.after),
        )
    )


async def list_skips(desk: Desk, call: Call) -> Answer:
    """`GET /v1/schedules/{schedule_id}/skips`, newest first."""
    query: ListQuery = call.query
    tenant, schedule_id = call.caller.tenant, call.params[0]
    cursors = Cursors(desk.cursor_secret)
    place = (tenant, "skips", schedule_id)
    text = cursors.read(place, query.cursor)
    after = None if text is None else timed(text)
    found, following = await desk.schedules.skips(tenant, known_id(schedule_id), after, query.limit)
    return ok(
        wire.Page(
            items=list(found),
            next_cursor=None if following is None else cursors.make(place, f"{following[0]} {following[1]}"),
        )
    )


async def trigger(desk: Desk, call: Call) -> Answer:
    """`POST /v1/schedules/{schedule_id}:trigger`: the key is bound to the schedule too, not to the body alone."""
    body: wire.Trigger = call.body
    key = checks.client_key(call.headers.get(b"idempotency-key"))
    checks.check_trigger(body)
    schedule_id = known_id(call.params[0])
    hashed = body_hash(call.raw, f"/v1/schedules/{schedule_id}:trigger") if key is not None else b""
    state, replayed = await desk.direct.trigger(call.caller.tenant, schedule_id, body, key, hashed)
    return ok(views.job(state), 200, REPLAYED) if replayed else ok(views.job(state), 201)


async def skip_next(desk: Desk, call: Call) -> Answer:
    """`POST /v1/schedules/{schedule_id}:skip-next`"""
    return ok(views.schedule(await desk.direct.skip_next(call.caller.tenant, known_id(call.params[0]))))


async def backfill(desk: Desk, call: Call) -> Answer:
    """`POST /v1/schedules/{schedule_id}:backfill`"""
    body: wire.Backfill = call.body
    checks.check_moments(body)
    return ok(await desk.direct.backfill(call.caller.tenant, known_id(call.params[0]), body), 202)
