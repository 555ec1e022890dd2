"""The clients: `AsyncClient`, and `Client`, which waits for it.

    client = tocsin.Client()                       # TOCSIN_URL, TOCSIN_TOKEN
    job = client.jobs.create(queue="billing", handler="billing.generate_invoices", payload={"region": "IN"}, delay=900)
    client.jobs.get(job.job_id).status

Requests that may be done twice (reads, creates, cancels, settings) are repeated up to three times when the server does not
answer; the others raise `ServerUnavailable`, and it is the caller who knows whether to ask again. What the server declines
is `Refused`, with the problem's fields. A client may be shared by threads (`Client`) or tasks (`AsyncClient`).
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from tocsin import wire
from tocsin.clock import Clock, Entropy, SystemClock, SystemEntropy
from tocsin.errors import UsageError
from tocsin.sdk.blocking import Blocking, Group, each, forward
from tocsin.sdk.calls import Calls
from tocsin.sdk.http import HttpTransport
from tocsin.sdk.jobs import Jobs
from tocsin.sdk.operators import SigningKeys, Tenants, Tokens
from tocsin.sdk.queues import Attempts, DeadLetters, Queues
from tocsin.sdk.schedules import Schedules
from tocsin.sdk.transport import Transport

__all__ = ["AsyncClient", "Client"]


class AsyncClient:
    """A server, seen from an event loop. Without `url` and `token`: TOCSIN_URL and TOCSIN_TOKEN."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        if transport is not None and (url is not None or token is not None):
            raise UsageError("a transport already knows its server and its token; give url and token, or a transport")
        self.transport = transport or HttpTransport(url, token)
        self._calls = calls = Calls(self.transport, clock or SystemClock(), entropy or SystemEntropy())
        self.jobs = Jobs(calls)
        self.schedules = Schedules(calls)
        self.queues = Queues(calls)
        self.dead = DeadLetters(calls)
        self.attempts = Attempts(calls)
        self.tenants = Tenants(calls)
        self.tokens = Tokens(calls)
        self.signing_keys = SigningKeys(calls)

    async def me(self) -> wire.Me:
        """Whose token this is, what it may do, and the tenant's quotas with their use."""
        return await self._calls.get("/v1/me", wire.Me)

    async def close(self) -> None:
        """Let go of the connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class BlockingJobs(Group):
    """The calls about jobs."""

    create = forward(Jobs.create)
    create_batch = forward(Jobs.create_batch)
    get = forward(Jobs.get)
    list = each(Jobs.list)
    patch = forward(Jobs.patch)
    cancel = forward(Jobs.cancel)
    run_now = forward(Jobs.run_now)
    attempts = forward(Jobs.attempts)


class BlockingSchedules(Group):
    """The calls about schedules."""

    create = forward(Schedules.create)
    upsert = forward(Schedules.upsert)
    get = forward(Schedules.get)
    get_by_name = forward(Schedules.get_by_name)
    list = each(Schedules.list)
    update = forward(Schedules.update)
    pause = forward(Schedules.pause)
    resume = forward(Schedules.resume)
    delete = forward(Schedules.delete)
    jobs = each(Schedules.jobs)
    skips = each(Schedules.skips)
    trigger = forward(Schedules.trigger)
    skip_next = forward(Schedules.skip_next)
    backfill = forward(Schedules.backfill)
    preview = forward(Schedules.preview)


class BlockingQueues(Group):
    """The calls about queues."""

    list = each(Queues.list)
    get = forward(Queues.get)
    put = forward(Queues.put)
    claim = forward(Queues.claim)


class BlockingDeadLetters(Group):
    """The calls about dead letters."""

    list = each(DeadLetters.list)
    redrive = forward(DeadLetters.redrive)
    discard = forward(DeadLetters.discard)


class BlockingAttempts(Group):
    """The calls of a worker about its attempts."""

    heartbeat = forward(Attempts.heartbeat)
    complete = forward(Attempts.complete)
    heartbeat_batch = forward(Attempts.heartbeat_batch)
    complete_batch = forward(Attempts.complete_batch)


class BlockingTenants(Group):
    """The calls about tenants."""

    list = each(Tenants.list)
    create = forward(Tenants.create)
    patch = forward(Tenants.patch)


class BlockingTokens(Group):
    """The calls about tokens."""

    list = each(Tokens.list)
    create = forward(Tokens.create)
    delete = forward(Tokens.delete)


class BlockingSigningKeys(Group):
    """The calls about signing keys."""

    list = each(SigningKeys.list)
    rotate = forward(SigningKeys.rotate)


class Client:
    """A server, seen from ordinary code; the same groups of calls as `AsyncClient`, each waiting for its answer.

    Works on a thread of its own, which starts with the first call; `close` (or `with`) ends it. With `loop`, on that event
    loop, which runs in another thread.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._client = client = AsyncClient(url, token, transport=transport, clock=clock, entropy=entropy)
        self._blocking = blocking = Blocking(client.close, loop)
        self.jobs = BlockingJobs(client.jobs, blocking)
        self.schedules = BlockingSchedules(client.schedules, blocking)
        self.queues = BlockingQueues(client.queues, blocking)
        self.dead = BlockingDeadLetters(client.dead, blocking)
        self.attempts = BlockingAttempts(client.attempts, blocking)
        self.tenants = BlockingTenants(client.tenants, blocking)
        self.tokens = BlockingTokens(client.tokens, blocking)
        self.signing_keys = BlockingSigningKeys(client.signing_keys, blocking)

    def me(self) -> wire.Me:
        """Whose token this is, what it may do, and the tenant's quotas with their use."""
        return self._blocking.call(self._client.me())

    def close(self) -> None:
        """Let go of the connections and end the thread."""
        self._blocking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
