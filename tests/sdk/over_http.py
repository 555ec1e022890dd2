"""An ASGI application on a real port of the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn


@contextlib.asynccontextmanager
async def served_here(app: Callable[..., Any]) -> AsyncIterator[str]:
    """The address of `app`, served by the running event loop."""
    options: dict[str, Any] = {
        "interface": "asgi3",
        "lifespan": "off",
        "log_level": "critical",
        "timeout_keep_alive": 75,
    }
    server = Quiet(uvicorn.Config(app, port=0, **options))
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.force_exit = server.should_exit = True
        await serving


@contextlib.contextmanager
def served(make_app: Callable[[], Callable[..., Any]]) -> Iterator[str]:
    """The address of the application that `make_app` makes, served by an event loop in a thread of its own."""
    ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    urls: list[str] = []
    ended = asyncio.Event()

    async def main() -> None:
        async with served_here(make_app()) as url:
            loops.append(asyncio.get_running_loop())
            urls.append(url)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield urls[0]
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(10)
        assert not thread.is_alive()


class Quiet(uvicorn.Server):
    """A server that leaves the test's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
