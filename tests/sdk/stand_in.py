"""A stand-in for the server: the workers' part of the contract in memory, with faults that a test can switch on.

It is here for what the real server cannot be made to do on command: stay silent, answer with another's error, lose an answer
after it did the work, hand out a job that nobody asked for. The tests of ordinary behaviour run against the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tocsin.clock import Clock, rfc3339

BY_NAME = "/v1/schedules/by-name/"


async def wait_until(condition, what: str, timeout_s: float = 10.0) -> None:
    """Let the event loop run until `condition()` holds."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - the conditions are plain state of many objects
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"waited {timeout_s} s for {what}") from None


@dataclass
class StandInJob:
    job_id: str
    queue: str
    handler: str
    payload: Any
    timeout_s: float
    status: str = "QUEUED"
    attempt: int = 0
    tries: int = 0
    token: str = ""
    lease_until: float = 0.0
    progress: Any = None
    cancel_requested: bool = False
    reports: list[dict[str, Any]] = field(default_factory=list)


class StandIn:
    """`app` is its ASGI application. Leases are on `clock`; `rescue` is what the real one does by itself."""

    def __init__(self, clock: Clock, lease_s: float = 30.0) -> None:
        self.clock, self.lease_s = clock, lease_s
        self.jobs: dict[str, StandInJob] = {}
        self.ready: dict[str, list[StandInJob]] = defaultdict(list)
        self.calls: list[tuple[str, Any]] = []
        self.answers: dict[str, list[StandInJob]] = {}
        self.schedules: dict[str, Any] = {}
        self.fault: dict[str, str] = {}
        self.lose_answers_of: set[str] = set()
        self.ignore_handlers = False
        self.arrived = asyncio.Event()
        self.open_claims = 0
        self.url = ""

    def add(self, handler: str = "h", payload: Any = None, *, queue: str = "q", timeout_s: float = 3600) -> StandInJob:
        job = StandInJob(f"job_{len(self.jobs)}", queue, handler, payload, timeout_s)
        self.jobs[job.job_id] = job
        self._push(job)
        return job

    def cancel(self, job: StandInJob) -> None:
        job.cancel_requested = True
        job.status = "CANCEL_REQUESTED"

    def rescue(self) -> None:
        """Hand out again whatever has a lease that is over by 2 s."""
        for job in self.jobs.values():
            if job.status in ("RUNNING", "CANCEL_REQUESTED") and self.clock.elapsed_s() >= job.lease_until + 2:
                job.token = ""
                if job.cancel_requested:
                    job.status = "CANCELLED"
                else:
                    self._push(job)

    def count(self, path: str) -> int:
        return sum(1 for called, _ in self.calls if called.endswith(path))

    def _push(self, job: StandInJob) -> None:
        job.status = "QUEUED"
        self.ready[job.queue].append(job)
        arrived, self.arrived = self.arrived, asyncio.Event()
        arrived.set()

    async def app(self, scope, receive, send) -> None:
        message = await receive()
        path, body = scope["path"], json.loads(message["body"] or b"null")
        action = "declare" if path.startswith(BY_NAME) else path.rsplit(":", 1)[-1]
        self.calls.append((path, body))
        match self.fault.get(action):
            case "silent":
                await asyncio.get_running_loop().create_future()
            case "busy":
                await self._problem(send, 503, "overloaded")
                return
            case "proxy":
                await _answer(send, 502, b"<html>Bad gateway</html>", b"text/html")
                return
            case "forbidden":
                await self._problem(send, 403, "forbidden")
                return
            case "invalid":
                await self._problem(send, 422, "invalid")
                return
        status, answer = await getattr(self, f"_{action.replace('-', '_')}")(path, body)
        if action in self.lose_answers_of:
            self.lose_answers_of.discard(action)
            await _answer(send, 504, b"", b"text/plain")
        elif status in (200, 201):
            await _answer(send, status, json.dumps(answer).encode(), b"application/json")
        else:
            await self._problem(send, status, answer)

    async def _claim(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        queue = path.split("/")[3].removesuffix(":claim")
        if body["request_id"] in self.answers:
            taken = self.answers[body["request_id"]]
        else:
            self.open_claims += 1
            try:
                taken = await self._take(queue, body)
            finally:
                self.open_claims -= 1
            self.answers[body["request_id"]] = taken
        return 200, {"jobs": [self._claimed(job, body) for job in taken]}

    async def _declare(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        name = path.removeprefix(BY_NAME)
        known = name in self.schedules
        self.schedules[name] = body
        return 200 if known else 201, {"name": name, "next_run_at": "2026-12-05T20:30:00Z", "paused": False, "later": 1}

    async def _take(self, queue: str, body: dict[str, Any]) -> list[StandInJob]:
        until = self.clock.elapsed_s() + body["wait_s"]
        while True:
            known = [job for job in self.ready[queue] if self.ignore_handlers or job.handler in body["handlers"]]
            if known or self.clock.elapsed_s() >= until:
                break
            await self.clock.wait(self.arrived, until - self.clock.elapsed_s())
        for job in (taken := known[: body["max"]]):
            self.ready[queue].remove(job)
            job.attempt += 1
            job.tries += 1
            job.status, job.token = "RUNNING", f"{job.job_id}.{job.attempt}"
            job.lease_until = self.clock.elapsed_s() + (body["lease_s"] or self.lease_s)
        return taken

    def _claimed(self, job: StandInJob, body: dict[str, Any]) -> dict[str, Any]:
        now = rfc3339(self.clock.now_ms())
        return {
            "job_id": job.job_id,
            "attempt": job.attempt,
            "tries": job.tries,
            "max_attempts": 6,
            "lease_token": job.token,
            "lease_until": now,
            "lease_s": body["lease_s"] or self.lease_s,
            "idempotency_key": f"{job.job_id}@x",
            "handler": job.handler,
            "payload": job.payload,
            "timeout_s": job.timeout_s,
            "run_at": now,
            "fire_at": now,
            "queue": job.queue,
            "name": None,
            "tags": {},
            "schedule_id": None,
            "progress": job.progress,
            "traceparent": None,
            "a_field_of_a_later_version": 1,
        }

    async def _heartbeat(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path == "/v1/attempts:heartbeat":
            assert body is not None
            return 200, {"results": [{"token": token, **self._beat(token)} for token in body["tokens"]]}
        token = path.split("/")[3].removesuffix(":heartbeat")
        beat = self._beat(token)
        if "error" in beat:
            return 409, "attempt-superseded"
        job = self._job(token)
        if body and job is not None:
            job.progress = body["progress"]
        return 200, beat

    def _beat(self, token: str) -> dict[str, Any]:
        job = self._job(token)
        if job is None or job.status not in ("RUNNING", "CANCEL_REQUESTED"):
            return {"error": _problem_body(409, "attempt-superseded")}
        job.lease_until = self.clock.elapsed_s() + self.lease_s
        until = rfc3339(self.clock.now_ms())
        return {"lease_until": until, "lease_s": self.lease_s, "cancel_requested": job.cancel_requested}

    async def _complete(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return 200, {"results": [self._end(item) for item in body["items"]]}

    def _end(self, item: dict[str, Any]) -> dict[str, Any]:
        token = item["token"]
        job = self._job(token)
        if job is None:
            return {"token": token, "error": _problem_body(409, "attempt-superseded")}
        if item.get("result") == "too large for this server":
            return {"token": token, "error": _problem_body(413, "too-large")}
        if job.status in ("RUNNING", "CANCEL_REQUESTED"):
            job.reports.append(item)
            job.status = {
                "succeeded": "SUCCEEDED",
                "fatal_failure": "DEAD",
                "cancelled": "CANCELLED",
            }.get(item["outcome"], "CANCELLED" if job.cancel_requested else "RETRYING")
            if item["outcome"] == "released":
                job.tries -= 1
        return {"token": token, "status": job.status}

    def _job(self, token: str) -> StandInJob | None:
        return next((job for job in self.jobs.values() if job.token == token), None)

    async def _problem(self, send, status: int, kind: str) -> None:
        with contextlib.suppress(AssertionError):
            body = json.dumps(_problem_body(status, kind)).encode()
            await _answer(send, status, body, b"application/problem+json")


def _problem_body(status: int, kind: str) -> dict[str, Any]:
    return {"type": f"/problems/{kind}", "title": kind, "status": status, "detail": "as the test asked"}


async def _answer(send, status: int, body: bytes, content_type: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"Content-Type", content_type)]})
    await send({"type": "http.response.body", "body": body})
