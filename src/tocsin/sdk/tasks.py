"""The handlers of a worker: how they are registered, and how one attempt is handed to one of them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tocsin import wire
from tocsin.clock import Clock
from tocsin.errors import Fatal, UsageError
from tocsin.sdk import report as reports
from tocsin.sdk.context import Context
from tocsin.sdk.hand import AnyHeld, Tally
from tocsin.sdk.report import Report
from tocsin.sdk.threads import Threads
from tocsin.sdk.transport import json_value

log = logging.getLogger("tocsin.worker")

Handler = Callable[..., Any]
HandlerT = TypeVar("HandlerT", bound=Handler)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_HANDLERS = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """One registered handler."""

    name: str
    handler: Handler
    is_async: bool
    wants_context: bool


class Tasks:
    """The handlers by name, and the `perform` of a worker's engine."""

    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tasks: dict[str, Task] = {}
        self._tally, self._clock = tally, clock
        self.threads: Threads | None = None

    @property
    def names(self) -> list[str]:
        return list(self._tasks)

    @property
    def all(self) -> list[Task]:
        return list(self._tasks.values())

    def register(self, name: str, handler: Handler) -> None:
        """Make `handler(payload)` or `handler(payload, ctx)` known as `name`."""
        if not NAME.fullmatch(name):
            raise UsageError(f"not a handler's name: {name!r}; letters, digits, '.', '_', '-', at most 128")
        if name in self._tasks:
            raise UsageError(f"the handler {name!r} is registered twice")
        if len(self._tasks) >= MAX_HANDLERS:
            raise UsageError(f"a worker has at most {MAX_HANDLERS} handlers; split it")
        self._tasks[name] = Task(name, handler, _is_async(handler), _wants_context(name, handler))

    async def perform(self, held: AnyHeld) -> Report:
        """One attempt: find its handler, read its payload, run it, report."""
        job: wire.ClaimedJob = held.job
        task = self._tasks.get(job.handler or "")
        if task is None:
            return self._unknown(job)
        try:
            payload = json_value(job.payload)
        except ValueError as exc:
            raise Fatal(f"the payload cannot be read in Python: {exc}") from exc
        if task.is_async:
            if task.wants_context:
                result = await task.handler(payload, Context(held, self._clock, asyncio.get_running_loop()))
            else:
                result = await task.handler(payload)
        else:
            result = await self._in_thread(task, payload, held)
        return reports.succeeded(result)

    async def _in_thread(self, task: Task, payload: Any, held: AnyHeld) -> Any:
        """Run a synchronous handler. It cannot be interrupted: it sees `ctx.cancelled`, and its slot waits for it."""
        assert self.threads is not None
        held.patient = True
        call = (
            partial(task.handler, payload, Context(held, self._clock, asyncio.get_running_loop()))
            if task.wants_context
            else partial(task.handler, payload)
        )
        thread = self.threads.submit(call)
        try:
            ended = await asyncio.shield(thread)
        except asyncio.CancelledError:
            held.lingering = thread
            log.warning(
                "the handler %s of job %s runs in a thread and cannot be stopped (%s); its slot is taken until it returns",
                task.name,
                held.job.job_id,
                held.stop.value if held.stop else "its slot ends",
            )
            raise
        if ended.error is not None:
            raise ended.error
        return ended.value

    def _unknown(self, job: wire.ClaimedJob) -> Report:
        """Never asked for, so this is an older or newer server: the job goes back as it came, for a worker that knows it."""
        self._tally.unknown_handlers += 1
        log.warning(
            "job %s is for the handler %r, which this worker does not know; handed back", job.job_id, job.handler
        )
        return reports.released()


def _is_async(handler: Handler) -> bool:
    call = handler.func if isinstance(handler, partial) else handler
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


def _wants_context(name: str, handler: Handler) -> bool:
    """Whether it takes a second positional argument."""
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError) as exc:
        raise UsageError(f"the handler {name!r} is not something that can be called with a payload: {exc}") from exc
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variable = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    required = [p for p in places[2:] if p.default is p.empty]
    required += [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if required or not (places or variable):
        raise UsageError(f"the handler {name!r} must be callable as handler(payload) or handler(payload, ctx)")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise UsageError(f"the handler {name!r} is a generator: calling it would not run it")
    return len(places) >= 2 or variable
