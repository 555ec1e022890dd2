"""What needs no tenant: alive, ready, the document of the API, its page, metrics, and the manual clock of `tocsin dev`."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from tocsin import __version__, wire
from tocsin.api.call import Answer, Call, ok, other, refused
from tocsin.api.desk import Desk, KnowsHealth
from tocsin.api.problems import no_such_path, problem_of
from tocsin.clock import Clock, rfc3339
from tocsin.errors import Refused

READY_FRESH_S = 1.0
METRICS_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Alive(Struct, kw_only=True):
    """The answer of `/healthz`."""

    status: str
    version: str
    zone_data: str


class Ready(Struct, kw_only=True):
    """The answer of `/readyz`; `zone_data` is the version of the time zone data in use."""

    status: str
    zone_data: str


class NotReady(wire.Problem, kw_only=True):
    """The problem of `/readyz`, with its reasons."""

    reasons: list[str]
    zone_data: str


class CachedHealth:
    """Asks at most once a second, whoever calls how often; calls in between share the question."""

    def __init__(self, health: KnowsHealth, clock: Clock) -> None:
        self._health, self._clock = health, clock
        self._asking = asyncio.Lock()
        self._known: tuple[float, list[str]] | None = None

    async def reasons(self) -> list[str]:
        """Why the process is not ready."""
        async with self._asking:
            now = self._clock.elapsed_s()
            if self._known is None or now - self._known[0] >= READY_FRESH_S:
                self._known = (now, await self._health.reasons())
            return self._known[1]


async def healthz(desk: Desk, call: Call) -> Answer:
    """`GET /healthz`: the process answers; nothing else is looked at."""
    return ok(Alive(status="alive", version=__version__, zone_data=desk.zone_data))


async def readyz(desk: Desk, call: Call) -> Answer:
    """`GET /readyz`: this process can write, fire and hand out jobs."""
    reasons = await desk.health.reasons()
    if not reasons:
        return ok(Ready(status="ready", zone_data=desk.zone_data))
    why = Refused(503, "not-ready", "Not ready", "; ".join(reasons), retry_after_s=READY_FRESH_S)
    plain = problem_of(why)
    return refused(
        why,
        NotReady(
            type=plain.type,
            title=plain.title,
            status=plain.status,
            detail=plain.detail,
            reasons=reasons,
            zone_data=desk.zone_data,
        ),
    )


async def openapi(desk: Desk, call: Call) -> Answer:
    """`GET /openapi.json`"""
    from tocsin.api.openapi import document

    return other(b"application/json", document(dev=desk.advance is not None))


async def docs(desk: Desk, call: Call) -> Answer:
    """`GET /docs`: one page without scripts."""
    from tocsin.api.docs import CSP, page

    return other(
        b"text/html; charset=utf-8",
        page(dev=desk.advance is not None),
        [(b"content-security-policy", CSP), (b"referrer-policy", b"no-referrer"), (b"x-frame-options", b"DENY")],
    )


async def metrics(desk: Desk, call: Call) -> Answer:
    """`GET /metrics`"""
    if desk.metrics is None:
        raise no_such_path()
    return other(METRICS_TEXT, desk.metrics())


async def advance(desk: Desk, call: Call) -> Answer:
    """`POST /v1/dev/clock:advance`: answers when all work that fell due in between has been done."""
    body: wire.Advance = call.body
    if desk.advance is None:
        raise no_such_path()
    return ok(wire.Advanced(now=rfc3339(await desk.advance(body.seconds))))
