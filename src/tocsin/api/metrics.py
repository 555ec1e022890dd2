"""The metrics listener: `/metrics` alone, without a token, on an address of its own that only Prometheus reaches."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.api.app import AsgiApp, Message, Receive, Send

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


def create_metrics_app(exposition: Callable[[], bytes]) -> AsgiApp:
    """An application that serves Prometheus' text format and nothing else."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        found = scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD")
        body = exposition() if found else b"only GET /metrics is served here\n"
        headers = [(b"content-type", CONTENT_TYPE), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return app
