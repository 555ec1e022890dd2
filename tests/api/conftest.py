"""The real server without a socket: API, flow, near tier and SQLite in one process, on a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.asgi import Http
from tocsin import roles
from tocsin.clock import ManualClock, SystemEntropy, datetime_of
from tocsin.config import Settings
from tocsin.store.settings import TenantRow

NOW_MS = 1_900_000_000_000  # 2030-03-17T17:46:40Z
JOB: dict[str, Any] = {"queue": "mail", "target": {"type": "task", "handler": "send"}}


@dataclass
class Server:
    """A running server and clients of it."""

    process: roles.Process
    http: Http

    async def advance(self, seconds: float) -> None:
        """Let time pass; what falls due has been fired and pushed afterwards."""
        await self.process.advance(seconds)

    async def give(self, text: str, *scopes: str, tenant: str = "shop") -> str:
        """A token, which is its own text."""
        row = roles.token_row(text, tenant, "a token", scopes, self.process.clock.now_ms())
        await self.process.store.settings.add_token(row)
        return text

    async def create(self, **changes: Any) -> dict[str, Any]:
        """A job, as the answer to its creation shows it."""
        reply = await self.http("POST", "/v1/jobs", {**JOB, **changes})
        assert reply.status == 201, reply.body
        return reply.json

    async def get(self, job: dict[str, Any]) -> dict[str, Any]:
        """A job as it is now."""
        reply = await self.http("GET", f"/v1/jobs/{job['job_id']}")
        assert reply.status == 200, reply.body
        return reply.json

    async def claim(self, queue: str = "mail", **changes: Any) -> list[dict[str, Any]]:
        """Claimed jobs."""
        reply = await self.http("POST", f"/v1/queues/{queue}:claim", {"worker": "w-1", "max": 100, **changes})
        assert reply.status == 200, reply.body
        return reply.json["jobs"]

    async def complete(self, claimed: dict[str, Any], outcome: str = "succeeded", **changes: Any) -> Any:
        """Report the end of an attempt."""
        path = f"/v1/attempts/{claimed['lease_token']}:complete"
        return await self.http("POST", path, {"outcome": outcome, **changes})

    async def stored(self) -> int:
        """How many jobs the tenant has."""
        return len((await self.http("GET", "/v1/jobs", query="limit=200")).json["items"])


async def start(folder: Path) -> roles.Process:
    process = await roles.build(Settings(data=folder, partitions=4), ManualClock(datetime_of(NOW_MS)), SystemEntropy())
    await process.start()
    return process


@pytest.fixture
async def server(tmp_path):
    process = await start(tmp_path)
    for name in ("shop", "other"):
        await process.store.settings.put_tenant(TenantRow(name=name, created_at=NOW_MS), create=True)
    server = Server(process, Http(process.app, "tcs_owner_secret"))
    await server.give("tcs_owner_secret", "admin", "work:*")
    await server.give("tcs_stranger_secret", "admin", "work:*", tenant="other")
    await server.give("tcs_operator_secret", "operator")
    await server.give("tcs_executor_secret", "executor")
    yield server
    await process.stop()
