"""As much of a server as an executor talks to: hands out jobs, keeps leases, writes down what is reported."""

import asyncio
import contextlib
import json
from collections import deque

import msgspec

from tocsin import wire
from tocsin.wire import ExecutorJob


class Server:
    """An ASGI application. `ready` are jobs to hand out; `reports` what was said about each, by lease token."""

    def __init__(self) -> None:
        self.ready: deque[ExecutorJob] = deque()
        self.reports: dict[str, dict] = {}
        self.claims: list[wire.ClaimRequest] = []
        self.cancel: set[str] = set()
        self.superseded: set[str] = set()
        self._changed = asyncio.Event()

    def offer(self, *jobs: ExecutorJob) -> None:
        self.ready.extend(jobs)
        self._tell()

    async def until(self, done) -> None:
        """Wait until `done()` holds; looked at after every request."""
        async with asyncio.timeout(20):
            while not done():
                await self._changed.wait()

    async def reported(self, count: int) -> None:
        await self.until(lambda: len(self.reports) >= count)

    def outcomes(self, url_part: str = "") -> list[str]:
        return [report["outcome"] for token, report in self.reports.items() if url_part in token]

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def __call__(self, scope, receive, send) -> None:
        body = (await receive())["body"]
        answer: object
        match scope["path"]:
            case "/v1/executor:claim":
                answer = await self._claim(msgspec.json.decode(body, type=wire.ClaimRequest))
            case "/v1/attempts:heartbeat":
                answer = {"results": [self._beat(token) for token in json.loads(body)["tokens"]]}
            case "/v1/attempts:complete":
                items = json.loads(body)["items"]
                for item in items:
                    msgspec.convert(item, wire.TokenCompletion)
                    self.reports[item["token"]] = item
                answer = {"results": [{"token": item["token"], "status": "X"} for item in items]}
            case other:
                raise AssertionError(other)
        self._tell()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": msgspec.json.encode(answer)})

    async def _claim(self, request: wire.ClaimRequest) -> wire.ExecutorClaimAnswer:
        self.claims.append(request)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request.wait_s):
                while not self.ready:
                    await self._changed.wait()
        count = min(request.max, len(self.ready))
        return wire.ExecutorClaimAnswer(jobs=[self.ready.popleft() for _ in range(count)])

    def _beat(self, token: str) -> dict:
        if token in self.superseded:
            problem = {"type": "/problems/attempt-superseded", "title": "Superseded", "status": 409, "detail": "gone"}
            return {"token": token, "error": problem}
        return {"token": token, "lease_until": "x", "lease_s": 30.0, "cancel_requested": token in self.cancel}
