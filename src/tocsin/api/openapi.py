"""The OpenAPI 3.1 document, made from the table of operations and the structs of the contract."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec

from tocsin import __version__, wire
from tocsin.api.auth import Rule
from tocsin.api.operation import FREE, NAMED, Operation
from tocsin.api.operations import served
from tocsin.api.probes import NotReady
from tocsin.api.query import NoQuery

Schema = dict[str, Any]

# Structs that travel inside of a text that is passed on as it is, so that no other schema points at them.
_INSIDE: tuple[type, ...] = (wire.BatchedJob, wire.TokenCompletion, wire.Problem)
_ITEMS: dict[tuple[str, str], type] = {
    ("JobBatch", "jobs"): wire.BatchedJob,
    ("CompletionBatch", "items"): wire.TokenCompletion,
}
_HEADERS: dict[str, Schema] = {
    "Idempotency-Key": {
        "description": "Repeats of the request with the same key and an equal body get the same job.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    },
    "If-Match": {
        "description": "The version of a job, or the revision of a schedule, in quotes; another is refused with 412.",
        "schema": {"type": "string", "pattern": '^"[0-9]{1,15}"$'},
    },
    "traceparent": {
        "description": "W3C trace context; kept with the job and passed on to whoever runs it.",
        "schema": {"type": "string"},
    },
}
_EXAMPLES: dict[str, Schema] = {
    "JobCreate": {
        "queue": "payment-reminders",
        "name": "reminder for inv_8842",
        "run_at": "2026-12-05T09:00:00+05:30",
        "target": {"type": "http", "url": "https://reminders.example/v1/send", "method": "POST", "timeout_s": 30},
        "payload": {"invoice_id": "inv_8842"},
        "retry": {"max_attempts": 6, "initial_backoff_s": 10, "max_backoff_s": 600},
        "tags": {"region": "IN"},
    },
    "JobBatch": {
        "jobs": [{"queue": "reports", "target": {"type": "task", "handler": "reports.build"}, "delay_s": 60}],
        "window_s": 0,
    },
    "JobPatch": {"delay_s": 900, "priority": "high"},
    "ScheduleCreate": {
        "name": "merchant-settlement-report",
        "cron": "0 2 * * *",
        "time_zone": "Asia/Kolkata",
        "job_template": {
            "queue": "settlements",
            "target": {"type": "task", "handler": "reports.settle"},
            "payload": {"report": "daily"},
        },
        "missed_runs": {"policy": "run_latest"},
        "overlap": "forbid",
    },
    "SchedulePut": {
        "every_s": 900,
        "job_template": {"queue": "mail", "target": {"type": "task", "handler": "mail.fetch"}},
    },
    "SchedulePatch": {"paused": True, "pause_note": "the bank is closed", "pause_until": "2026-12-27T00:00:00Z"},
    "Preview": {"cron": "30 2 * * *", "time_zone": "America/New_York", "after": "2026-03-07T08:00:00Z", "count": 3},
    "Trigger": {"payload": {"report": "again"}},
    "Backfill": {"from": "2026-03-01T00:00:00Z", "to": "2026-03-08T00:00:00Z", "order": "oldest_first"},
    "ClaimRequest": {"worker": "w-17", "max": 10, "wait_s": 0},
    "Heartbeat": {"progress": {"done": 40}},
    "Completion": {"outcome": "succeeded", "result": {"sent": True}},
    "QueuePut": {"paused": True, "pause_note": "the provider is down"},
    "Redrive": {"filter": {"error_contains": "503"}, "rate_per_s": 10, "dry_run": True},
    "DeadSelection": {"filter": {}, "dry_run": True},
    "TenantCreate": {"name": "shop", "weight": 2},
    "TokenCreate": {"name": "worker of billing", "scopes": ["work:billing"]},
    "Advance": {"seconds": 3600},
}
_BY_EVERYBODY = (422, 500, 503)
_INTRO = """Hand over work to do later; it is started on time, on some worker, even if machines die in between.

Every error is a problem (RFC 9457). A list has `items` and a `next_cursor`; a page may be short, even empty, and still
have a cursor."""


@lru_cache(maxsize=2)
def document(*, dev: bool) -> bytes:
    """The document's text; with `dev` it has the manual clock."""
    return msgspec.json.format(msgspec.json.encode(description(dev=dev)), indent=1)


def description(*, dev: bool) -> Schema:
    """The document as plain values."""
    operations = served(dev=dev)
    schemas, components = _schemas(operations)
    paths: dict[str, Schema] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tocsin",
            "version": __version__,
            "summary": "A multi-tenant job scheduler",
            "description": _INTRO,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys(operation.group for operation in operations)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "tcs_<id>_<secret>"},
            },
        },
    }


def _schemas(operations: Iterable[Operation]) -> tuple[dict[type, Schema], dict[str, Schema]]:
    """Every struct of the table: how to point at it, and the structs by name."""
    kinds: list[type] = [*_INSIDE, NotReady]
    for operation in operations:
        kinds += [kind for kind in (operation.body, operation.answer, operation.page_of) if kind is not None]
    kinds = list(dict.fromkeys(kinds))
    pointers, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for (name, field), kind in _ITEMS.items():
        components[name]["properties"][field]["items"] = {"$ref": f"#/components/schemas/{kind.__name__}"}
    for name, example in _EXAMPLES.items():
        if name in components:
            components[name]["examples"] = [example]
    for name in ("JobPatch", "SchedulePatch", "TenantPatch"):
        components[name]["minProperties"] = 1
    return dict(zip(kinds, pointers, strict=True)), components


def _operation(operation: Operation, schemas: dict[type, Schema]) -> Schema:
    described: Schema = {
        "operationId": f"{operation.run.__module__.rpartition('.')[2]}.{operation.run.__name__}",
        "summary": operation.summary,
        "description": f"Needs {operation.rule.value}.",
        "tags": [operation.group],
        "security": [] if operation.rule is Rule.PUBLIC else [{"token": []}],
        "responses": _responses(operation, schemas),
    }
    if parameters := [*_path_parameters(operation), *_query_parameters(operation), *_header_parameters(operation)]:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.may_be_empty,
            "content": {"application/json": {"schema": schemas[operation.body]}},
        }
    return described


def _path_parameters(operation: Operation) -> list[Schema]:
    return [{"name": name, "in": "path", "required": True, "schema": _path_schema(name)} for name in operation.params]


def _path_schema(name: str) -> Schema:
    if name in NAMED:
        return msgspec.json.schema(wire.Name)
    if name == FREE:
        return msgspec.json.schema(wire.FreeName)
    return {"type": "string", "minLength": 1, "pattern": "^[^/:\\x00]+$"}


def _query_parameters(operation: Operation) -> list[Schema]:
    if operation.query is NoQuery:
        return []
    parameters = []
    for field in msgspec.structs.fields(operation.query):
        (schema,), components = msgspec.json.schema_components([field.type])
        if "anyOf" in schema:  # an absent parameter is absent; there is no null in a query
            schema = next(one for one in schema["anyOf"] if one != {"type": "null"})
        if "$ref" in schema:
            schema = components[schema["$ref"].rpartition("/")[2]]
        parameters.append({"name": field.encode_name, "in": "query", "required": False, "schema": schema})
    return parameters


def _header_parameters(operation: Operation) -> list[Schema]:
    return [{"name": name, "in": "header", "required": False, **_HEADERS[name]} for name in operation.headers]


def _responses(operation: Operation, schemas: dict[type, Schema]) -> Schema:
    responses: Schema = {str(status): _good(operation, status, schemas) for status in operation.statuses}
    problems = {*operation.problems, *_BY_EVERYBODY}
    if operation.rule is not Rule.PUBLIC:
        problems.add(401)
    if operation.rule not in (Rule.PUBLIC, Rule.ANY):
        problems.add(403)
    if operation.params:
        problems.add(404)
    if operation.body is not None:
        problems |= {400, 413, 415}
    if operation.query is not NoQuery:
        problems.add(400)
    for status in sorted(problems):
        kind: type = NotReady if status == 503 and operation.path == "/readyz" else wire.Problem
        responses[str(status)] = _bad(status, schemas[kind])
    return responses


def _good(operation: Operation, status: int, schemas: dict[type, Schema]) -> Schema:
    described: Schema = {"description": HTTPStatus(status).phrase}
    if operation.page_of is not None:
        schema: Schema = {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": schemas[operation.page_of]},
                "next_cursor": {"type": ["string", "null"]},
            },
            "required": ["items", "next_cursor"],
        }
    elif operation.answer is not None:
        schema = schemas[operation.answer]
    else:
        schema = {} if operation.media == "application/json" else {"type": "string"}
    if status != 204:
        described["content"] = {operation.media: {"schema": schema}}
    if "Idempotency-Key" in operation.headers and status == 200:
        described["description"] = "A repeated request: the job as it is now"
        described["headers"] = {"Idempotency-Replayed": {"schema": {"const": "true"}}}
    return described


def _bad(status: int, schema: Schema) -> Schema:
    described: Schema = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/problem+json": {"schema": schema}},
    }
    if status in (429, 503):
        described["headers"] = {"Retry-After": {"schema": {"type": "string", "pattern": "^[0-9]+$"}}}
    if status == 401:
        described["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return described
