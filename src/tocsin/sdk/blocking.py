"""The synchronous face of something asynchronous: a thread with an event loop, and methods that wait for its answers.

`forward` and `each` turn a coroutine method or an async iterator of a group of calls into a blocking one with the same
signature, so that the synchronous client has no code of its own and type checkers still know every argument.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from tocsin.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")
Last = Callable[[], Coroutine[Any, Any, None]]
LAST_S = 5.0


class Blocking:
    """Runs coroutines on an event loop of its own thread, from any thread; `last` is run when it ends.

    The thread starts with the first call and ends with `close`, with this object or with the interpreter. In a process that
    was forked from one in which it ran, a new one is started. With `loop`, that loop (of another thread) is used instead.
    """

    def __init__(self, last: Last, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._last, self._given = last, loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` there and wait for it. An interrupt (Ctrl-C) cancels it."""
        try:
            loop = self._running()
        except UsageError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Run `last` and end the thread. Closing twice is fine."""
        if self._closed:
            return
        if self._given is not None:
            self.call(self._last())
        self._closed = True
        if self._finalizer is not None and self._pid == os.getpid():
            self._finalizer()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise UsageError("this client is closed; make a new one")
        loop = self._given or self._own()
        if _current_loop() is loop:
            raise UsageError("a blocking call on the event loop that it waits for would never return; use AsyncClient")
        return loop

    def _own(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            # Forked: threads do not survive that, and the lock may have been held by one of them.
            self._pid, self._loop, self._lock = os.getpid(), None, threading.Lock()
            if self._finalizer is not None:
                self._finalizer.detach()
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=(loop,), name="tocsin-client", daemon=True)
                thread.start()
                self._loop, self._finalizer = loop, weakref.finalize(self, _end, loop, thread, os.getpid(), self._last)
            return self._loop


class Group:
    """A group of calls of the synchronous client: `calls` is the asynchronous one that it stands for."""

    def __init__(self, calls: Any, blocking: Blocking) -> None:
        self._calls, self._blocking = calls, blocking


def forward(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The blocking form of a coroutine method."""

    def blocking(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._blocking.call(method(self._calls, *args, **kwargs))

    return _named(blocking, method)


def each(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The blocking form of a method that gives an async iterator."""

    def blocking(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        iterator, done = method(self._calls, *args, **kwargs), object()
        while (item := self._blocking.call(_next(iterator, done))) is not done:
            yield item  # type: ignore[misc]

    return _named(blocking, method)


async def _next(iterator: AsyncIterator[T], done: object) -> T | object:
    return await anext(iterator, done)


def _named(blocking: T, method: Any) -> T:
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(blocking, attribute, getattr(method, attribute))
    # For help(); not __wrapped__, which would make it look like a coroutine function.
    blocking.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return blocking


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int, last: Last) -> None:
    if pid != os.getpid() or loop.is_closed():
        return
    loop.call_soon_threadsafe(_finish, loop, last)
    if thread is not threading.current_thread():
        thread.join(LAST_S)


def _finish(loop: asyncio.AbstractEventLoop, last: Last) -> None:
    loop.create_task(last()).add_done_callback(lambda _: loop.stop())
