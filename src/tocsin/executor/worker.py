"""The executor's worker: takes callbacks of all tenants from the server and makes them, thousands at once.

Claims, slots, leases, heartbeats and batched completions are the SDK's engine; what is here is where the jobs come from
and what is done with one: take a place at its host (`caps`), call (`http`), report. The same class serves a process of
its own (`HttpTransport`) and the embedded server (`AsgiTransport`, no socket between the two).

A job that finds no place in time, or that has lain here too long to get its whole timeout, goes back unharmed. If the
process dies, its leases run out and the jobs are tried again under the same idempotency keys.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver

from tocsin import wire
from tocsin.clock import Clock, Entropy, SystemClock, SystemEntropy
from tocsin.errors import UsageError
from tocsin.executor.caps import Caps, Pace, pace
from tocsin.executor.guard import Guard
from tocsin.executor.http import ASKS_FOR_A_PAUSE, call, open_session
from tocsin.model.urls import host_key
from tocsin.sdk import report as reports
from tocsin.sdk.engine import DEFAULT_GRACE_S, DEFAULT_WAIT_S, Engine
from tocsin.sdk.hand import Hand, Tally
from tocsin.sdk.held import Held
from tocsin.sdk.report import Report
from tocsin.sdk.transport import Transport, decode
from tocsin.wire import ExecutorJob

log = logging.getLogger("tocsin.executor")

DEFAULT_CONCURRENCY = 2_000
# What waits here for a slot: enough to claim in large batches, little enough not to keep work from other executors.
DEFAULT_PREFETCH = 1_000
# An executor of up to this many calls may spend them all on one host.
SMALL = 64
# The server ends an attempt ten seconds after its timeout, counted from the claim.
MAX_AGE_S = 8.0
# Files that are not connections to targets: the server's, the log's, the loop's.
OTHER_FILES = 200

ANSWER_S = 5.0


class CallbackSource:
    """Claims the callbacks of all tenants, in the order that the server finds fair."""

    name = "callbacks"

    def __init__(self, transport: Transport, worker: str, lease_s: float | None = None) -> None:
        self._transport, self._worker, self._lease_s = transport, worker, lease_s

    async def claim(self, count: int, wait_s: float, request_id: str) -> list[ExecutorJob]:
        body = wire.ClaimRequest(
            worker=self._worker, max=count, lease_s=self._lease_s, wait_s=wait_s, request_id=request_id
        )
        answer = await self._transport.request(
            "POST", "/v1/executor:claim", body=msgspec.json.encode(body), timeout_s=wait_s + ANSWER_S
        )
        return decode(answer.body, wire.ExecutorClaimAnswer).jobs


class Executor:
    """Makes callbacks until it is stopped. `transport` carries a token of scope `executor`; its owner closes it.

    `concurrency` calls are under way at once, half of them (or 64) at most to one host of one tenant.
    """

    def __init__(
        self,
        transport: Transport,
        guard: Guard,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        prefetch: int = DEFAULT_PREFETCH,
        lease_s: float | None = None,
        name: str | None = None,
        wait_s: float = DEFAULT_WAIT_S,
        grace_s: float = DEFAULT_GRACE_S,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._clock = clock = clock or SystemClock()
        entropy = entropy or SystemEntropy()
        self.name = name or f"executor-{socket.gethostname()[:150]}-{os.getpid()}-{entropy.bytes(3).hex()}"
        self.concurrency = concurrency
        self._guard, self._resolver = guard, resolver
        self._caps = Caps(clock, most=max(concurrency // 2, min(concurrency, SMALL)))
        self._hand = Hand()
        self._engine = Engine(
            [CallbackSource(transport, self.name, lease_s)],
            self._perform,
            transport,
            concurrency=concurrency,
            prefetch=prefetch,
            clock=clock,
            entropy=entropy,
            wait_s=wait_s,
            grace_s=grace_s,
            hand=self._hand,
        )
        self._session: aiohttp.ClientSession | None = None
        self._ended = asyncio.Event()

    @property
    def tally(self) -> Tally:
        """What this executor has done since it started."""
        return self._hand.tally

    @property
    def holding(self) -> bool:
        """Whether any callback is in hand."""
        return len(self._hand) > 0

    @property
    def connected(self) -> bool:
        """Whether the server answers its claims; for a readiness probe."""
        return self._session is not None and self._engine.connected

    async def serve(self) -> None:
        """Work until `stop`. Raises `Refused` if the server will not let this executor claim."""
        if self._session is not None:
            raise UsageError("this executor is running, or has run: make a new one")
        allow_open_files(self.concurrency + OTHER_FILES)
        self._session = open_session(self._guard, self._resolver)
        log.info("executor %s makes callbacks: %d at once", self.name, self.concurrency)
        try:
            await self._engine.run()
        finally:
            await self._caps.close()
            await self._session.close()
            self._ended.set()
            log.info("executor %s has ended: %s", self.name, self.tally)

    async def stop(self, *, now: bool = False) -> None:
        """Drain, and return when the executor has ended. A second call, or `now`, hands running jobs back at once."""
        if self._session is None:
            return
        self._engine.stop(now=now)
        await self._ended.wait()

    async def _perform(self, held: Held[ExecutorJob]) -> Report:
        """One attempt, from a place at its host to its report."""
        job = held.job
        # The wait for a place is not part of the job's time, and the call keeps its own, more exact one.
        held.deadline = float("inf")
        try:
            key = (job.tenant, host_key(job.target.url))
        except ValueError as exc:
            return reports.fatal(f"the URL of the target cannot be called: {exc}")
        if not await self._caps.enter(key):
            return reports.released()
        started_s, observed = self._clock.elapsed_s(), Pace.UNKNOWN
        try:
            if started_s - held.received_at > MAX_AGE_S:
                return reports.released()
            assert self._session is not None
            report = await call(self._session, job, self._clock)
            observed = _pace_of(report, self._clock.elapsed_s() - started_s, job.target.timeout_s)
            return report
        finally:
            self._caps.leave(key, observed, started_s)


def allow_open_files(count: int) -> None:
    """Raise this process's limit of open files to `count` if the system lets it; says so if it does not."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < count:
        log.warning(
            "this process may open %d files and %d are wanted; calls beyond that are handed back. "
            "Raise the limit (ulimit -n, LimitNOFILE) or lower the executor's concurrency",
            wanted,
            count,
        )


def _pace_of(report: Report, took_s: float, timeout_s: float) -> Pace:
    """What a call's end says about its host: one that refuses or asks for a pause is not called more at once."""
    if report.outcome == "released":
        return Pace.UNKNOWN
    observed = pace(took_s, timeout_s)
    answered = report.status_code is not None and report.status_code not in ASKS_FOR_A_PAUSE
    return observed if answered or observed is Pace.SLOW else Pace.UNKNOWN
