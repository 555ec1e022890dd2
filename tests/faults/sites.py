"""A site: a server in virtual time that is killed and started again on its data, and what owners and workers of schedules do there.

    async with Site(tmp_path, NOON) as site:
        report = await site.schedule("report", cron="0 * * * *")
        await site.advance(hours=3)
        await site.restart(after=hours(10))
        await site.check()

A kill is a copy of the data folder as it lies there, from which the next server starts: nothing of an orderly end is in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tests.asgi import Http, Reply
from tests.faults.checks import Books, sound
from tocsin import roles
from tocsin.clock import ManualClock, SeededEntropy, ms_of, rfc3339
from tocsin.config import Settings
from tocsin.model.zones import Zones, pinned_zones
from tocsin.store.schedules import ScheduleRow
from tocsin.testing import Server

QUEUE, HANDLER = "q", "work"
TENANT = roles.DEV_TENANT
TEMPLATE: dict[str, Any] = {"queue": QUEUE, "target": {"type": "task", "handler": HANDLER}}
BY_NAME = "/v1/schedules/by-name/"


def at(text: str) -> datetime:
    """An instant of UTC: `2030-03-17 12:00`, with or without seconds."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Site:
    """A folder, and the server that works on it now."""

    def __init__(
        self, folder: Path, start: datetime, *, zones: Zones | None = None, settings: Settings | None = None
    ) -> None:
        self._folder, self._start, self._starts = folder, start, 0
        self.zones, self._settings = zones or pinned_zones(), settings or Settings(partitions=1)
        self.books = Books()
        self.accepted: list[str] = []
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await self._open(self._folder / "0", self._start)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.process.stop()

    @property
    def server(self) -> Server:
        assert self._server is not None, "the site is not open"
        return self._server

    @property
    def http(self) -> Http:
        return Http(self.server.process.app, self.server.token)

    @property
    def now(self) -> datetime:
        return self.server.now

    async def _open(self, data: Path, now: datetime) -> Server:
        settings = replace(self._settings, data=data)
        process = await roles.build(settings, ManualClock(now), SeededEntropy(self._starts), self.zones)
        text, secret = await roles.prepare_dev(process, "tcs_dev_site")
        assert isinstance(process.clock, ManualClock)
        made = Server(process, process.clock, text, secret)
        assert process.conductor is not None
        process.conductor.between = made.quiet
        await process.start()
        return made

    async def restart(
        self,
        after: timedelta = timedelta(),
        *,
        zones: Zones | None = None,
        meanwhile: Callable[[Path], None] | None = None,
    ) -> None:
        """Kill the server and start it again `after` so long. `meanwhile` may do something to the folder."""
        self.zones = zones or self.zones
        old, now = self.server, self.now
        self._starts += 1
        data = self._folder / str(self._starts)
        shutil.copytree(old.process.settings.data, data)
        await old.process.stop()
        if meanwhile is not None:
            meanwhile(data)
        self._server = await self._open(data, now + after)

    async def advance(self, **span: float) -> None:
        """Let time pass: `seconds`, `minutes`, `hours`, `days`."""
        await self.server.advance(timedelta(**span).total_seconds())

    async def advance_to(self, moment: datetime) -> None:
        """Let time pass until then."""
        await self.server.advance((moment - self.now).total_seconds())

    async def call(self, method: str, path: str, *body: Any, status: int = 200, **options: Any) -> Any:
        """The answer to a call that is expected to be answered so."""
        reply: Reply = await self.http(method, path, *body, **options)
        assert reply.status == status, reply.body
        return reply.json if reply.body else None

    async def schedule(self, name: str = "report", **fields: Any) -> Kept:
        """Create a schedule."""
        made = await self.call("POST", "/v1/schedules", {"name": name, "job_template": TEMPLATE, **fields}, status=201)
        return Kept(self, made["schedule_id"], name)

    async def put(self, name: str, **fields: Any) -> dict[str, Any]:
        """Upsert a schedule."""
        reply: Reply = await self.http("PUT", BY_NAME + name, {"job_template": TEMPLATE, **fields})
        assert reply.status in (200, 201), reply.body
        return reply.json

    async def schedules(self, query: str = "") -> list[dict[str, Any]]:
        return (await self.call("GET", "/v1/schedules", query=query or "limit=200"))["items"]

    async def claim(self, most: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """Claim jobs."""
        body = {"worker": "w", "max": most, **fields}
        return (await self.call("POST", f"/v1/queues/{QUEUE}:claim", body))["jobs"]

    async def beat(self, claimed: dict[str, Any]) -> Reply:
        """A heartbeat."""
        return await self.http("POST", f"/v1/attempts/{claimed['lease_token']}:heartbeat", {})

    async def complete(self, claimed: dict[str, Any], outcome: str = "succeeded", **fields: Any) -> Reply:
        """Report the end of an attempt."""
        return await self.http(
            "POST", f"/v1/attempts/{claimed['lease_token']}:complete", {"outcome": outcome, **fields}
        )

    async def metrics(self) -> str:
        return (await self.http("GET", "/metrics")).body.decode()

    async def check(self, *, retimed: bool = False, since: datetime | None = None) -> None:
        """What must be true after every scenario (a minute later, so that the sweep has passed)."""
        await self.advance(seconds=61)
        await sound(
            self.server.process.store,
            self.server.clock.now_ms(),
            TENANT,
            zones=self.zones,
            retimed=retimed,
            since=None if since is None else ms_of(since),
            accepted=self.accepted,
            books=self.books,
            http=self.http,
        )


@dataclass(frozen=True)
class Kept:
    """One schedule of a site."""

    site: Site
    schedule_id: str
    name: str

    @property
    def path(self) -> str:
        return f"/v1/schedules/{self.schedule_id}"

    async def get(self) -> dict[str, Any]:
        return await self.site.call("GET", self.path)

    async def patch(self, **changes: Any) -> dict[str, Any]:
        return await self.site.call("PATCH", self.path, changes)

    async def pause(self, **fields: Any) -> dict[str, Any]:
        return await self.patch(paused=True, **fields)

    async def resume(self) -> dict[str, Any]:
        return await self.patch(paused=False)

    async def delete(self) -> None:
        self.site.books.deleted = True
        await self.site.call("DELETE", self.path, status=204)

    async def act(self, action: str, *body: Any, status: int = 200) -> Any:
        return await self.site.call("POST", f"{self.path}:{action}", *body, status=status)

    async def trigger(self, key: str | None = None) -> dict[str, Any]:
        headers = {} if key is None else {"Idempotency-Key": key}
        reply = await self.site.http("POST", f"{self.path}:trigger", {}, headers=headers)
        assert reply.status in (200, 201), reply.body
        self.site.accepted.append(reply.json["job_id"])
        return reply.json

    async def next_at(self) -> str | None:
        return (await self.get())["next_run_at"]

    async def row(self) -> ScheduleRow:
        (row,) = await self.site.server.process.store.schedules.get([self.schedule_id])
        assert row is not None
        return row

    async def jobs(self, *status: str) -> list[dict[str, Any]]:
        """Its jobs by the scheduled time, oldest first; those of these states only, if any are named."""
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            query = [("limit", "200"), *([("cursor", cursor)] if cursor else [])]
            page = await self.site.call("GET", f"{self.path}/jobs", query=query)
            found += page["items"]
            if (cursor := page["next_cursor"]) is None:
                break
        return sorted((job for job in found if not status or job["status"] in status), key=lambda job: job["run_at"])

    async def fired(self) -> list[str]:
        """The instants of the occurrences that have fired, oldest first."""
        return [job["occurrence_at"] for job in await self.jobs() if job["queued_at"] and job["origin"] == "schedule"]

    async def waiting(self) -> list[str]:
        """The instants of its jobs that wait for their time."""
        return [job["occurrence_at"] for job in await self.jobs("SCHEDULED")]

    async def skips(self) -> list[tuple[str, str, int, str]]:
        """From, to, count and reason of what did not run, oldest first."""
        items = (await self.site.call("GET", f"{self.path}/skips", query="limit=200"))["items"]
        return [(one["from"], one["to"], one["count"], one["reason"]) for one in reversed(items)]


def text(moment: datetime) -> str:
    """An instant as answers show it."""
    return rfc3339(ms_of(moment))


def texts(first: str, last: str, every: timedelta) -> list[str]:
    """Instants from one to another, both included, as answers show them."""
    moment, end, found = at(first), at(last), []
    while moment <= end:
        found.append(text(moment))
        moment += every
    return found
