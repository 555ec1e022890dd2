"""The metrics listener: `/metrics` without a token, on an address of its own that only Prometheus and probes reach.

It also answers `/healthz` and `/readyz`, since nodes and executors of a fleet have no other listener.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tocsin import __version__
from tocsin.api.app import AsgiApp, Message, Receive, Send
from tocsin.api.desk import KnowsHealth

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
JSON = b"application/json"


def create_metrics_app(exposition: Callable[[], bytes], health: KnowsHealth | None = None) -> AsgiApp:
    """An application that serves Prometheus' text format and the probes. Without `health` a process that answers is ready."""

    async def answer(path: str) -> tuple[int, bytes, bytes]:
        match path:
            case "/metrics":
                return 200, TEXT, exposition()
            case "/healthz":
                return 200, JSON, msgspec.json.encode({"status": "alive", "version": __version__})
            case "/readyz":
                reasons = [] if health is None else await health.reasons()
                status = "not ready" if reasons else "ready"
                return 503 if reasons else 200, JSON, msgspec.json.encode({"status": status, "reasons": reasons})
            case _:
                return 404, TEXT, b"only GET /metrics, /healthz and /readyz are served here\n"

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        found = scope["path"] if scope["method"] in ("GET", "HEAD") else ""
        status, kind, body = await answer(found)
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return app
