"""Words of the tests of schedules: short ways to ask the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.api.conftest import Server

TEMPLATE: dict[str, Any] = {"queue": "mail", "target": {"type": "task", "handler": "send"}}
HOURLY: dict[str, Any] = {"cron": "0 * * * *", "job_template": TEMPLATE}
BY_NAME = "/v1/schedules/by-name/"
HOUR_S = 3600


@dataclass
class Kept:
    """One schedule on a server."""

    server: Server
    schedule_id: str

    @property
    def path(self) -> str:
        return f"/v1/schedules/{self.schedule_id}"

    async def get(self) -> dict[str, Any]:
        """As it is now."""
        reply = await self.server.http("GET", self.path)
        assert reply.status == 200, reply.body
        return reply.json

    async def patch(self, **changes: Any) -> dict[str, Any]:
        """As it is after a change."""
        reply = await self.server.http("PATCH", self.path, changes)
        assert reply.status == 200, reply.body
        return reply.json

    async def act(self, action: str, *body: Any, headers: dict[str, str] | None = None) -> Any:
        """The reply to an action."""
        return await self.server.http("POST", f"{self.path}:{action}", *body, headers=headers)

    async def jobs(self) -> list[dict[str, Any]]:
        """Its jobs, newest occurrence first."""
        reply = await self.server.http("GET", f"{self.path}/jobs", query="limit=200")
        assert reply.status == 200, reply.body
        return reply.json["items"]

    async def waiting(self) -> list[str]:
        """The occurrences of its jobs that wait for their time."""
        return [job["occurrence_at"] for job in await self.jobs() if job["status"] == "SCHEDULED"]

    async def skips(self) -> list[dict[str, Any]]:
        """What did not run."""
        reply = await self.server.http("GET", f"{self.path}/skips", query="limit=200")
        assert reply.status == 200, reply.body
        return reply.json["items"]


async def schedule(server: Server, name: str = "report", **changes: Any) -> Kept:
    """A schedule, each hour unless told otherwise."""
    reply = await server.http("POST", "/v1/schedules", {"name": name, **HOURLY, **changes})
    assert reply.status == 201, reply.body
    return Kept(server, reply.json["schedule_id"])
