"""The schedules that a worker's code declares beside its handlers, and how the server is told of them.

    @worker.cron("0 2 * * *", time_zone="Asia/Kolkata")
    async def settle(payload): ...

Each is upserted by its name when the worker starts, while its handlers already take jobs: a server that is away delays nothing but
this, and is asked until it answers. An equal definition changes nothing there, so any number of workers may start any number of
times; somebody's pause is kept. What the server declines (a wrong expression, a missing scope) ends the worker, as it would be
declined at every further start. A crash leaves the schedules that were declared by then; the next start declares them all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

import msgspec
from msgspec import Struct

from tocsin.clock import Clock, Entropy
from tocsin.errors import Overloaded, Refused, ServerUnavailable, UsageError
from tocsin.sdk.backoff import Backoff
from tocsin.sdk.jobs import refuse_unknown
from tocsin.sdk.schedules import Declared, by_name, whole
from tocsin.sdk.tasks import NAME, Handler, Tasks
from tocsin.sdk.transport import Answer, Transport, decode

log = logging.getLogger("tocsin.worker")

MAX_PAUSE_S = 15.0
# What no repetition cures: the definition, the token or the server must be changed.
_FINAL = (400, 401, 403, 404, 405, 413, 415, 422)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One schedule as its decorator says it. Its handler may get a name later, from a decorator above."""

    handler: Handler
    name: str | None
    queue: str
    timing: Mapping[str, Any]
    rules: Declared
    decorator: str

    @property
    def own_name(self) -> str:
        """What its handler is called if nothing else names it."""
        if self.name is not None and NAME.fullmatch(self.name):
            return self.name
        function = getattr(self.handler, "__name__", None)
        if function is None:
            raise UsageError(f"{self} has no name of its own; name its handler with @worker.task('name')")
        return f"{self.queue}.{function}"

    def __str__(self) -> str:
        return f"{self.decorator} on {getattr(self.handler, '__qualname__', repr(self.handler))}"


class _Told(Struct):
    """What of the answer is worth a line in the log."""

    next_run_at: str | None = None
    paused: bool = False


class Declarations:
    """All that one worker declares."""

    def __init__(self) -> None:
        self._declared: list[Declaration] = []
        self._bodies: dict[str, tuple[Declaration, bytes]] = {}

    def add(self, declaration: Declaration) -> None:
        """Take one in. Raises UsageError for an argument that a declaration does not have."""
        refuse_unknown(declaration.rules, Declared.__annotations__, declaration.decorator)
        self._declared.append(declaration)

    @property
    def pending(self) -> int:
        """How many of those that were settled the server has not accepted yet."""
        return len(self._bodies)

    def names(self, tasks: Tasks) -> list[str]:
        """The names that `settle` would register."""
        unnamed = [each for each in self._declared if not _names_of(tasks, each.handler)]
        return list({id(each.handler): each.own_name for each in reversed(unnamed)}.values())

    def settle(self, tasks: Tasks) -> None:
        """Name every handler that no `task` named, and every schedule after its handler where it has no name of its own."""
        for each in self._declared:
            names = _names_of(tasks, each.handler)
            if not names:
                tasks.register(each.own_name, each.handler)
                names = [each.own_name]
            if len(names) > 1:
                raise UsageError(
                    f"{each} is registered as {' and '.join(names)}; declare the schedule on one of them alone"
                )
            name = each.name or names[0]
            if name in self._bodies:
                other = self._bodies[name][0]
                raise UsageError(f"{each} and {other} would both be the schedule {name!r}; give one of them name='...'")
            body = whole({**each.rules, "queue": each.queue, "handler": names[0], **each.timing})
            self._bodies[name] = each, msgspec.json.encode(body)

    async def declare(self, transport: Transport, clock: Clock, entropy: Entropy) -> None:
        """Upsert them all, one after another. Raises `Refused`, with the schedule's name, for what the server declines."""
        backoff, never = Backoff(entropy), asyncio.Event()
        while self._bodies:
            name, (declaration, body) = next(iter(self._bodies.items()))
            try:
                _told(name, await transport.request("PUT", by_name(name), body=body))
            except (Refused, ServerUnavailable) as exc:
                await clock.wait(never, _pause_s(name, declaration, exc, backoff))
                continue
            backoff.reset()
            del self._bodies[name]

    def let_go(self) -> None:
        """Nothing is pending any more: all are accepted, one was declined, or the worker ends."""
        self._bodies.clear()


def _pause_s(name: str, declaration: Declaration, failure: Refused | ServerUnavailable, backoff: Backoff) -> float:
    """How long to wait before the next try. Raises `Refused` if there is no use in one."""
    at_least_s = failure.retry_after_s if isinstance(failure, Overloaded) else 0.0
    if isinstance(failure, Refused):
        if failure.status in _FINAL:
            raise _declined(name, declaration, failure) from failure
        at_least_s = failure.retry_after_s or 1.0
    pause_s = backoff.next_s(min(at_least_s, MAX_PAUSE_S))
    log.warning("the schedule %r is not declared yet (%s); retrying in %.2g s", name, failure, pause_s)
    return pause_s


def _declined(name: str, declaration: Declaration, why: Refused) -> Refused:
    detail = f"the schedule {name!r} ({declaration}): {why.detail}"
    if why.status == 403:
        detail += f"; the worker's token needs the scope write or work:{declaration.queue} to declare it"
    return Refused(why.status, why.kind, why.title, detail, errors=why.errors, extra=why.extra)


def _told(name: str, answer: Answer) -> None:
    told = decode(answer.body, _Told)
    state = "paused" if told.paused else f"next run at {told.next_run_at}" if told.next_run_at else "no run ahead"
    log.info("the schedule %r is %s: %s", name, "made" if answer.status == 201 else "in place", state)


def _names_of(tasks: Tasks, handler: Handler) -> list[str]:
    """The names that a handler is registered under. A bound method is a new object each time it is looked up."""
    return [
        task.name
        for task in tasks.all
        if task.handler is handler or (isinstance(handler, MethodType) and task.handler == handler)
    ]
