"""The embedded server with a virtual clock, for the tests of whoever uses Tocsin, and for Tocsin's own.

    async with tocsin.testing.server() as server:
        worker = tocsin.Worker("billing", transport=server.transport())
        ...
        job = await server.client.jobs.create(queue="billing", handler="invoice", delay=3600)
        async with server.running(worker):
            await server.advance(hours=1)
        assert (await server.client.jobs.get(job.job_id)).status == "SUCCEEDED"

It is the real thing (SQLite, flow, API) without sockets, in a temporary folder. Time stands still until `advance` moves it
from one instant at which something is due to the next; at each of them attached workers finish what they can, so that retries
and leases unfold as they would in real time, only faster and in the same order every time.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from tocsin import roles
from tocsin.clock import Entropy, ManualClock, SystemEntropy, datetime_of
from tocsin.config import LOOPBACK, Settings
from tocsin.executor.guard import Guard, parse_allowances
from tocsin.executor.worker import Executor
from tocsin.sdk.asgi import AsgiTransport
from tocsin.sdk.client import AsyncClient
from tocsin.sdk.worker import Worker

__all__ = ["Server", "server"]

STUCK_S = 20.0
POLL_S = 0.001
# Turns of the event loop in which an answer of the server reaches the worker that waits for it.
HOPS = 20


class Server:
    """A running server. `client` has all scopes of the tenant `dev`, `token` is its token, `secret` signs its callbacks."""

    def __init__(self, process: roles.Process, clock: ManualClock, token: str, secret: str) -> None:
        self.process, self.clock = process, clock
        self.token, self.secret = token, secret
        self.client = AsyncClient(transport=self.transport())
        self._workers: list[Worker | Executor] = []

    def transport(self, token: str | None = None) -> AsgiTransport:
        """A way to this server for a worker or another client, without a socket."""
        return AsgiTransport(self.process.app, token or self.token)

    @property
    def now(self) -> datetime:
        """The server's time."""
        return datetime_of(self.clock.now_ms())

    async def advance(
        self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> datetime:
        """Let time pass; returns the new time when all that fell due has fired, and attached workers have done their part."""
        total = seconds + 60 * minutes + 3_600 * hours + 86_400 * days
        assert self.process.conductor is not None
        await self.process.conductor.advance(total)
        return self.now

    @asynccontextmanager
    async def running(self, *workers: Worker) -> AsyncIterator[None]:
        """Attach workers for a while: they take part in every `advance`, and drain at the end."""
        async with self._attached([(worker, asyncio.create_task(worker.serve())) for worker in workers]):
            yield

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Attach the executor for a while: callbacks to this machine are made for real."""
        token = await roles.executor_token(self.process)
        executor = Executor(self.transport(token), Guard(parse_allowances(LOOPBACK)), wait_s=1.0)
        async with self._attached([(executor, asyncio.create_task(executor.serve()))]):
            yield

    @asynccontextmanager
    async def _attached(self, pairs: Sequence[tuple[Worker | Executor, asyncio.Task[None]]]) -> AsyncIterator[None]:
        self._workers += [worker for worker, _ in pairs]
        try:
            await self.quiet()
            yield
            await self.quiet()
        finally:
            for worker, task in pairs:
                self._workers.remove(worker)
                await worker.stop()
                await task

    async def quiet(self) -> None:
        """Wait until attached workers hold nothing and find nothing more to take. Raises TimeoutError after 20 s."""
        if not self._workers:
            return
        async with asyncio.timeout(STUCK_S):
            calm, seen = 0, -1
            while calm < 3:
                await asyncio.sleep(POLL_S)
                for _ in range(HOPS):
                    await asyncio.sleep(0)
                figures = await self.process.near.figures(self.process.leases.owned())
                ready = figures.ready
                claiming = figures.in_hand > 0 or self.process.claimer.busy > 0
                busy = claiming or any(worker.holding for worker in self._workers)
                started = sum(worker.tally.claimed for worker in self._workers)
                # What is ready and stays ready while all are idle belongs to somebody who is not attached.
                idle = not busy and (ready == 0 or started == seen)
                calm, seen = calm + 1 if idle else 0, started


@asynccontextmanager
async def server(
    *,
    start: datetime | None = None,
    data: Path | None = None,
    token: str | None = None,
    entropy: Entropy | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Server]:
    """A server of its own, at `start` (default: now), gone at the end; with `data` its file stays in that folder."""
    with tempfile.TemporaryDirectory(prefix="tocsin-test-") as folder:
        clock = ManualClock(start)
        chosen = replace(settings or Settings(partitions=1), data=data or Path(folder))
        process = await roles.build(chosen, clock, entropy or SystemEntropy())
        try:
            text, secret = await roles.prepare_dev(process, token)
            made = Server(process, clock, text, secret)
            assert process.conductor is not None
            process.conductor.between = made.quiet
            await process.start()
            yield made
        finally:
            await process.stop()
