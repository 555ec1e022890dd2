"""Queues and their dead letters."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from msgspec import UNSET

from tocsin import wire
from tocsin.api import views
from tocsin.api.call import Answer, Call, ok
from tocsin.api.checks import moment_faults, retry_faults
from tocsin.api.cursors import Cursors, page_of, timed
from tocsin.api.desk import Desk
from tocsin.api.problems import Fault, invalid, not_found
from tocsin.api.query import ListQuery
from tocsin.clock import ms_of
from tocsin.model.job import Retrying
from tocsin.store.settings import QueueRow

_PLAIN = Retrying()


async def get(desk: Desk, call: Call) -> Answer:
    """`GET /v1/queues/{queue}`"""
    tenant, name = call.caller.tenant, call.params[0]
    if not await desk.queues.known(tenant, name):
        raise not_found("queue")
    return ok(await _shown(desk, await desk.queues.get(tenant, name)))


async def list_queues(desk: Desk, call: Call) -> Answer:
    """`GET /v1/queues`, by name."""
    query: ListQuery = call.query
    tenant, cursors = call.caller.tenant, Cursors(desk.cursor_secret)
    place = (tenant, "queues")
    after = cursors.read(place, query.cursor)
    rows, following = page_of(await desk.queues.all(tenant), lambda row: row.queue, after, query.limit)
    return ok(
        wire.Page(
            items=[await _shown(desk, row) for row in rows],
            next_cursor=None if following is None else cursors.make(place, following),
        )
    )


async def put(desk: Desk, call: Call) -> Answer:
    """`PUT /v1/queues/{queue}`: what is given is changed, null is the default."""
    tenant, name = call.caller.tenant, call.params[0]
    body: wire.QueuePut = call.body
    faults = retry_faults_with_defaults(body)
    if isinstance(body.pause_until, datetime):
        faults = faults + moment_faults(body.pause_until, "/pause_until")
    if faults:
        raise invalid(faults)
    row = await desk.queues.get(tenant, name)
    if row.created_at == 0:
        row = replace(row, created_at=desk.clock.now_ms())
    row = merged(row, body)
    await desk.queues.put(row)
    return ok(await _shown(desk, row))


def retry_faults_with_defaults(body: wire.QueuePut) -> list[Fault]:
    """What is wrong with a queue's policy: a wait that is given alone is compared with the other's default."""
    retry = body.retry
    if retry is UNSET or retry is None:
        return []
    whole = wire.RetryPolicy(
        initial_backoff_s=_PLAIN.initial_backoff_s if retry.initial_backoff_s is UNSET else retry.initial_backoff_s,
        max_backoff_s=_PLAIN.max_backoff_s if retry.max_backoff_s is UNSET else retry.max_backoff_s,
    )
    return retry_faults(whole)


def merged(row: QueueRow, body: wire.QueuePut) -> QueueRow:
    """A queue's settings after a change. A queue that goes on needs no note and no end of its pause."""
    if body.paused is not UNSET:
        row = replace(row, paused=bool(body.paused))
        if not body.paused:
            row = replace(row, pause_note=None, pause_until=None)
    if body.pause_note is not UNSET:
        row = replace(row, pause_note=body.pause_note)
    if body.pause_until is not UNSET:
        row = replace(row, pause_until=None if body.pause_until is None else ms_of(body.pause_until))
    if body.lease_s is not UNSET:
        row = replace(row, lease_ms=None if body.lease_s is None else round(body.lease_s * 1000))
    if body.retry is not UNSET:
        retry = body.retry or wire.RetryPolicy()
        row = replace(
            row,
            max_attempts=None if retry.max_attempts is UNSET else retry.max_attempts,
            initial_backoff_s=None if retry.initial_backoff_s is UNSET else retry.initial_backoff_s,
            max_backoff_s=None if retry.max_backoff_s is UNSET else retry.max_backoff_s,
        )
    return row


async def _shown(desk: Desk, row: QueueRow) -> wire.Queue:
    return views.queue(row, await desk.queues.stats(row.tenant, row.queue), desk.clock.now_ms())


async def list_dead(desk: Desk, call: Call) -> Answer:
    """`GET /v1/queues/{queue}/dead-letters`, newest death first."""
    query: ListQuery = call.query
    tenant, name = call.caller.tenant, call.params[0]
    cursors = Cursors(desk.cursor_secret)
    place = (tenant, "dead-letters", name)
    text = cursors.read(place, query.cursor)
    jobs, following = await desk.look.dead(tenant, name, None if text is None else timed(text), query.limit)
    return ok(
        wire.Page(
            items=[views.job(state) for state in jobs],
            next_cursor=None if following is None else cursors.make(place, f"{following[0]} {following[1]}"),
        )
    )


async def redrive(desk: Desk, call: Call) -> Answer:
    """`POST /v1/queues/{queue}/dead-letters:redrive`"""
    body: wire.Redrive = call.body
    check_selection(body)
    return ok(await desk.redrive.redrive(call.caller.tenant, call.params[0], body))


async def discard(desk: Desk, call: Call) -> Answer:
    """`POST /v1/queues/{queue}/dead-letters:discard`"""
    body: wire.DeadSelection = call.body
    check_selection(body)
    return ok(await desk.redrive.discard(call.caller.tenant, call.params[0], body))


def check_selection(body: wire.DeadSelection) -> None:
    """Raise Refused (422) unless dead letters are selected in exactly one way: all of them is a filter too, `{}`."""
    if (body.job_ids is None) == (body.filter is None):
        raise invalid([("", "must have job_ids or filter, not both; {} as filter selects all")])
    if body.filter is not None and body.filter.tag is not None and ":" not in body.filter.tag:
        raise invalid([("/filter/tag", "must be a tag as key:value")])


__all__ = ["discard", "get", "list_dead", "list_queues", "merged", "put", "redrive"]
