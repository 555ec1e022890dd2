"""The worker that users write: handlers by name, one or more queues, one server.

    worker = tocsin.Worker("billing")

    @worker.task("billing.generate_invoices")
    async def generate_invoices(payload, ctx): ...

    @worker.cron("0 2 * * *", time_zone="Asia/Kolkata")
    async def close_the_books(payload): ...         # and a schedule that has it run every night

    worker.run()                # until SIGTERM or SIGINT; or `await worker.serve()` inside a program of your own

Handlers are idempotent under `ctx.idempotency_key`: a job runs at least once. An `async def` handler runs on the event
loop, any other in a thread. A handler ends its attempt by returning (a small JSON value is kept as the result), by raising
`tocsin.Retry(after=30)` or `tocsin.Fatal("reason")`, or with any other exception: a retryable failure. The slots are
long-lived tasks: a context variable that a handler sets is seen by the next handler in that slot.

The machinery is `engine.py`, schedules are declared by `declarations.py`; this module is their face. SIGTERM drains: no
new claims, what waits is handed back at once, what runs may end within `grace_s` and is then handed back without being
charged a try. A second one hands back at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Unpack

import msgspec
from msgspec import Struct

from tocsin import wire
from tocsin.clock import Clock, Entropy, SystemClock, SystemEntropy
from tocsin.errors import UsageError
from tocsin.sdk.context import Context
from tocsin.sdk.declarations import Declaration, Declarations
from tocsin.sdk.engine import DEFAULT_GRACE_S, DEFAULT_WAIT_S, Engine
from tocsin.sdk.hand import Hand, Tally
from tocsin.sdk.http import HttpTransport
from tocsin.sdk.jobs import Seconds
from tocsin.sdk.schedules import Declared
from tocsin.sdk.tasks import HandlerT, Tasks
from tocsin.sdk.threads import Threads
from tocsin.sdk.transport import Transport, decode

__all__ = ["Context", "QueueSource", "Worker"]

log = logging.getLogger("tocsin.worker")

# A claim's answer may be later than its wait by this much before its connection counts as dead.
ANSWER_S = 5.0


class _Job(wire.ClaimedJob, gc=False):
    """A claimed job that the garbage collector need not walk: thousands are in hand, and none is part of a cycle."""


class _Jobs(Struct):
    jobs: list[_Job]


class QueueSource:
    """Claims the task jobs of one queue that this worker has handlers for."""

    def __init__(
        self, transport: Transport, queue: str, worker: str, handlers: Sequence[str], lease_s: float | None = None
    ) -> None:
        self.name = f"queue {queue}"
        self._transport, self._path = transport, f"/v1/queues/{queue}:claim"
        self._worker, self._handlers, self._lease_s = worker, list(handlers), lease_s

    async def claim(self, count: int, wait_s: float, request_id: str) -> Sequence[wire.ClaimedJob]:
        body = wire.ClaimRequest(
            worker=self._worker,
            max=count,
            lease_s=self._lease_s,
            wait_s=wait_s,
            request_id=request_id,
            handlers=self._handlers,
        )
        answer = await self._transport.request(
            "POST", self._path, body=msgspec.json.encode(body), timeout_s=wait_s + ANSWER_S
        )
        return decode(answer.body, _Jobs).jobs


class Worker:
    """Works off the jobs of one or more queues.

    `concurrency` handlers run at once. `prefetch` more jobs may wait in this process: 0 (the default) leaves every job on
    the server until a slot is free, so that other workers can have it; some thousands are for very short handlers. With
    several queues a job may now and then be claimed for a slot that another queue has just filled; it is handed back
    untouched. Without `url` and `token`: TOCSIN_URL and TOCSIN_TOKEN.
    """

    def __init__(
        self,
        *queues: str,
        concurrency: int = 10,
        prefetch: int = 0,
        lease_s: float | None = None,
        name: str | None = None,
        grace_s: float = DEFAULT_GRACE_S,
        wait_s: float = DEFAULT_WAIT_S,
        url: str | None = None,
        token: str | None = None,
        transport: Transport | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        if not queues or len(set(queues)) != len(queues):
            raise UsageError("name the queues that the worker takes jobs from, each once: Worker('billing', 'reports')")
        if not 1 <= concurrency <= 10_000:
            raise UsageError(f"concurrency={concurrency} must be between 1 and 10,000")
        if not 0 <= prefetch <= 50_000:
            raise UsageError(f"prefetch={prefetch} must be between 0 and 50,000")
        if lease_s is not None and not 5 <= lease_s <= 600:
            raise UsageError(f"lease_s={lease_s:g} must be between 5 and 600")
        if not 0 <= wait_s <= 30:
            raise UsageError(f"wait_s={wait_s:g} must be between 0 and 30")
        self.queues = queues
        self.concurrency, self.prefetch, self.lease_s = concurrency, prefetch, lease_s
        self.grace_s, self.wait_s = grace_s, wait_s
        self._entropy = entropy or SystemEntropy()
        self._clock = clock or SystemClock()
        self.name = name or f"{socket.gethostname()[:150]}-{os.getpid()}-{self._entropy.bytes(3).hex()}"
        self._url, self._token, self._transport = url, token, transport
        self._hand = Hand()
        self._tasks = Tasks(self._hand.tally, self._clock)
        self._declarations = Declarations()
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._stop_asked = False

    def task(self, name: str) -> Callable[[HandlerT], HandlerT]:
        """Register the decorated function as the handler `name`: `handler(payload)` or `handler(payload, ctx)`."""

        def register(handler: HandlerT) -> HandlerT:
            if self._engine is not None:
                raise UsageError(f"the handler {name!r} is registered after the worker was started")
            self._tasks.register(name, handler)
            return handler

        return register

    def cron(
        self, expression: str, *, name: str | None = None, time_zone: str | None = None, **rules: Unpack[Declared]
    ) -> Callable[[HandlerT], HandlerT]:
        """Declare a schedule that runs the decorated function at the times of a cron expression, read in `time_zone` (UTC).

        Over or under `@worker.task("name")`, which names the handler; alone, the handler is called like the schedule. The
        schedule's `name` is the handler's unless given; without either both are `<queue>.<function>`. Its jobs go to `queue` (the
        worker's first). Also: `payload`, `missed_runs`, `overlap`, `start_at`, `end_at`, `max_runs`, `window`, `may_widen`,
        `priority`, `retry`, `timeout_s`, `expires_after`, `tags`, `job_name`. The server is told when the worker starts: it makes
        the schedule, changes it to this, or leaves it as it is; a pause stays. A schedule that is declared no longer stays too,
        until somebody deletes it.
        """
        return self._declare(name, {"cron": expression, "time_zone": time_zone}, rules, "@worker.cron")

    def every(
        self, interval: Seconds, *, name: str | None = None, anchor: datetime | None = None, **rules: Unpack[Declared]
    ) -> Callable[[HandlerT], HandlerT]:
        """The same with an interval of at least a second, in elapsed time; its runs are counted from `anchor`."""
        return self._declare(name, {"every": interval, "anchor": anchor}, rules, "@worker.every")

    def _declare(
        self, name: str | None, timing: dict[str, Any], rules: Declared, decorator: str
    ) -> Callable[[HandlerT], HandlerT]:
        queue = rules.get("queue", self.queues[0])

        def register(handler: HandlerT) -> HandlerT:
            if self._engine is not None:
                raise UsageError("a schedule is declared after the worker was started")
            self._declarations.add(Declaration(handler, name, queue, timing, rules, decorator))
            return handler

        return register

    @property
    def handlers(self) -> list[str]:
        """The names of the registered handlers."""
        return [*self._tasks.names, *self._declarations.names(self._tasks)]

    @property
    def tally(self) -> Tally:
        """What this worker has done since it started."""
        return self._hand.tally

    @property
    def holding(self) -> bool:
        """Whether anything is in hand: an attempt that waits, runs or is not reported yet, or a schedule not declared yet."""
        return len(self._hand) > 0 or self._declarations.pending > 0

    @property
    def connected(self) -> bool:
        """Whether the server answers its claims; for a readiness probe."""
        return self._engine is not None and self._engine.connected

    def run(self) -> None:
        """Work until SIGTERM or SIGINT. Blocks; uses uvloop if it is installed."""
        runner = asyncio.Runner(loop_factory=_loop_factory())
        try:
            runner.run(self.serve(signals=True))
        finally:
            # A handler that swallows its cancellation would keep the loop's own tidying up waiting for ever.
            if self._engine is None or not self._engine.stubborn:
                runner.close()

    async def serve(self, *, signals: bool = False) -> None:
        """Work until `stop` (with `signals`, which the main thread alone can have: or SIGTERM, SIGINT).

        Raises `Refused` if the server will not let this worker claim, or declines a schedule that it declares, and never
        because the server is away.
        """
        if self._engine is not None:
            raise UsageError("this worker is running, or has run: make a new one")
        self._declarations.settle(self._tasks)
        if not self._tasks.names:
            raise UsageError("the worker has no handlers; register one with @worker.task('name')")
        transport = self._transport or HttpTransport(self._url, self._token)
        threads = self._tasks.threads = Threads(self.concurrency)
        self._loop = asyncio.get_running_loop()
        self._engine = engine = Engine(
            [QueueSource(transport, queue, self.name, self._tasks.names, self.lease_s) for queue in self.queues],
            self._tasks.perform,
            transport,
            concurrency=self.concurrency,
            prefetch=self.prefetch,
            clock=self._clock,
            entropy=self._entropy,
            wait_s=self.wait_s,
            grace_s=self.grace_s,
            hand=self._hand,
        )
        installed = self._install_signals() if signals else []
        log.info(
            "worker %s takes jobs from %s: %d at once, %s",
            self.name,
            ", ".join(self.queues),
            self.concurrency,
            self.handlers,
        )
        if self._stop_asked:
            engine.stop()
        declaring = asyncio.create_task(
            self._declarations.declare(transport, self._clock, self._entropy), name="tocsin-declarations"
        )
        declaring.add_done_callback(self._declared)
        try:
            await engine.run()
        finally:
            declaring.cancel()
            await asyncio.wait([declaring])
            for number in installed:
                self._loop.remove_signal_handler(number)
            threads.close()
            if self._transport is None:
                await transport.close()
            self._ended.set()
            log.info("worker %s has ended: %s", self.name, self.tally)
        if not declaring.cancelled():
            declaring.result()

    def _declared(self, declaring: asyncio.Task[None]) -> None:
        """A schedule that is declined ends the worker: what runs may end, as at any other stop."""
        self._declarations.let_go()
        if declaring.cancelled() or (error := declaring.exception()) is None:
            return
        log.error("the worker ends: %s", error)
        assert self._engine is not None
        self._engine.stop()

    async def stop(self, *, now: bool = False) -> None:
        """Drain, and return when the worker has ended. A second call, or `now`, hands running jobs back at once."""
        self._stop_asked = True
        if self._engine is None:
            return
        self._engine.stop(now=now)
        await self._ended.wait()

    def ask_to_stop(self, *, now: bool = False) -> None:
        """The same from any thread, without waiting: for a worker that runs in a thread of its own."""
        self._stop_asked = True
        engine, loop = self._engine, self._loop
        if engine is not None and loop is not None and not self._ended.is_set():
            loop.call_soon_threadsafe(partial(engine.stop, now=now))

    def _install_signals(self) -> list[signal.Signals]:
        assert self._loop is not None
        if threading.current_thread() is not threading.main_thread():
            return []
        numbers = [signal.SIGTERM, signal.SIGINT]
        for number in numbers:
            self._loop.add_signal_handler(number, self._signalled, number)
        return numbers

    def _signalled(self, number: signal.Signals) -> None:
        assert self._engine is not None
        log.info("%s: draining; once more hands the running jobs back at once", number.name)
        self._engine.stop()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: less CPU for each request. It is no dependency of the SDK."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory
