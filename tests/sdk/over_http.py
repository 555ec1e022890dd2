"""An ASGI application on a real port of the loopback, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn


@contextlib.contextmanager
def served(make_app: Callable[[], Callable[..., Any]]) -> Iterator[str]:
    """The address of the application that `make_app` makes, inside its event loop."""
    ready, state = threading.Event(), {}

    async def main() -> None:
        config = uvicorn.Config(
            make_app(), port=0, interface="asgi3", lifespan="off", log_level="critical", timeout_keep_alive=75
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        state["server"] = server
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        state["port"] = server.servers[0].sockets[0].getsockname()[1]
        ready.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"http://127.0.0.1:{state['port']}"
    finally:
        state["server"].force_exit = state["server"].should_exit = True
        thread.join(10)
        assert not thread.is_alive()
