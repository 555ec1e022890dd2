"""The threads in which synchronous handlers run.

They are daemons, unlike those of `concurrent.futures`: the interpreter would wait at its exit for a handler that never
returns, and a worker must end within its grace time. Its job has been handed back by then.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a call ended. An exception travels as a value: a future refuses to carry `StopIteration`."""

    value: Any
    error: BaseException | None


class Threads:
    """At most `count` threads, each started when it is first needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, call: Callable[[], Any]) -> asyncio.Future[Ended]:
        """Run `call` in a thread; the future belongs to the running loop and is never an error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ended] = loop.create_future()
        self._calls.put((call, loop, future))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, name=f"tocsin-handler-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self) -> None:
        """Let every thread end after its current call; waits for none."""
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, loop, future = item
            try:
                ended = Ended(call(), None)
            except BaseException as exc:  # noqa: BLE001 - handed to the slot, which is the handlers' boundary
                ended = Ended(None, exc)
            self._idle.release()
            del item, call
            try:
                loop.call_soon_threadsafe(_settle, future, ended)
            except RuntimeError:
                return  # the loop has ended, and with it whoever waited
            del future, ended


_Call = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Ended]"]


def _settle(future: asyncio.Future[Ended], ended: Ended) -> None:
    if not future.done():
        future.set_result(ended)
