"""Serving: runs one process of Tocsin until it is told to stop.

Binds the address first, puts the process together, rebuilds the near tier, then serves. A stop is orderly: the executor drains, waiting
claims are answered, requests under way end, stages end their passes, the store closes. A crash at any point is what the crash
table of `flow` is about; the next start recovers from the file.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from tocsin import telemetry
from tocsin.api.metrics import create_metrics_app
from tocsin.api.probes import CachedHealth
from tocsin.clock import Clock, SystemClock, SystemEntropy
from tocsin.config import Settings
from tocsin.executor.guard import Guard, parse_allowances
from tocsin.executor.worker import Executor
from tocsin.roles import Process, build, embedded_executor, prepare_dev
from tocsin.sdk.asgi import App
from tocsin.sdk.http import HttpTransport

SWITCH_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What `tocsin dev` adds: a tenant with a token, and perhaps a clock that stands still."""

    token: str | None = None
    manual_clock: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where a server is reached, and with what; token and secret only in dev."""

    url: str
    token: str | None
    signing_secret: str | None
    data: Path


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: stopping is in this module's order."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def serve(
    settings: Settings,
    *,
    clock: Clock | None = None,
    dev: DevOptions | None = None,
    on_ready: Callable[[Serving], None],
) -> None:
    """Run one process until SIGTERM or SIGINT. `on_ready` is called once it can be used."""
    telemetry.set_up_logs(settings.log_format, settings.log_level)
    # Batches make many short-lived objects and no cycles: let the collector look less often, and not at what a start made.
    gc.set_threshold(100_000, 50, 100)
    # The writer's thread asks for Python's global lock after every statement; at the default of 5 ms a busy event loop would
    # keep it waiting for longer than the statements take.
    sys.setswitchinterval(SWITCH_S)
    main = (
        _serve_executor(settings, on_ready)
        if settings.roles == {"executor"}
        else _serve(settings, clock, dev, on_ready)
    )
    uvicorn_loop = uvicorn.Config(app="", loop="auto", log_config=None).get_loop_factory()
    with asyncio.Runner(loop_factory=uvicorn_loop) as runner:
        runner.run(main)


async def _serve(
    settings: Settings, clock: Clock | None, dev: DevOptions | None, on_ready: Callable[[Serving], None]
) -> None:
    stop = _stop_event()
    with _bound(settings) as listener:
        process = await build(settings, clock or SystemClock(), SystemEntropy())
        try:
            token, secret = (None, None) if dev is None else await prepare_dev(process, dev.token)
            health = CachedHealth(process.health, process.clock)
            async with _listening(process.app, listener), _metrics_listening(settings, health):
                await process.start()
                async with _calling(process, stop):
                    gc.freeze()
                    url = settings.node_name if listener is None else _url(listener)
                    on_ready(Serving(url=url, token=token, signing_secret=secret, data=settings.data))
                    await stop.wait()
                # Claims that wait are answered with nothing, so that their connections can end.
                await process.near.quiesce()
        finally:
            await process.stop()


@contextmanager
def _bound(settings: Settings) -> Iterator[socket.socket | None]:
    """The API's listener, where this process has an API."""
    if "api" not in settings.roles:
        yield None
        return
    with closing(_listen(settings.host, settings.port)) as listener:
        yield listener


@asynccontextmanager
async def _calling(process: Process, stop: asyncio.Event) -> AsyncIterator[None]:
    """The executor of this process, if it has one; drained at the end, before the API stops taking its reports.

    One that ends by itself ends the process: a server that makes no callbacks must not look well.
    """
    if "executor" not in process.settings.roles:
        yield
        return
    transport = None
    if "api" in process.settings.roles:
        executor = await embedded_executor(process)
    else:
        transport, executor = _executor(process.settings)
    calling = asyncio.create_task(executor.serve())
    calling.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        await executor.stop(now=process.settings.drain_s == 0)
        await calling
        if transport is not None:
            await transport.close()


@asynccontextmanager
async def _listening(app: App, listener: socket.socket | None) -> AsyncIterator[None]:
    """Serve an application; at the end requests under way are answered."""
    if listener is None:
        yield
        return
    server = _server(app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def _metrics_listening(settings: Settings, health: CachedHealth | None = None) -> AsyncIterator[None]:
    if settings.metrics_port is None:
        yield
        return
    with closing(_listen(settings.metrics_host or settings.host, settings.metrics_port)) as listener:
        async with _listening(create_metrics_app(telemetry.exposition, health), listener):
            yield


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _serve_executor(settings: Settings, on_ready: Callable[[Serving], None]) -> None:
    """An executor on its own: no store, only the server's address and a token of scope `executor`."""
    stop = _stop_event()
    transport, executor = _executor(settings)
    async with _metrics_listening(settings):
        calling = asyncio.create_task(executor.serve())
        gc.freeze()
        on_ready(Serving(url=settings.url or "", token=None, signing_secret=None, data=settings.data))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, calling}, return_when=asyncio.FIRST_COMPLETED)
        await executor.stop()
        await calling
    await transport.close()


def _executor(settings: Settings) -> tuple[HttpTransport, Executor]:
    """An executor that works for a server elsewhere, and its connection."""
    assert settings.url is not None, "checked with the settings"
    transport = HttpTransport(settings.url, settings.token)
    return transport, Executor(
        transport,
        Guard(parse_allowances(settings.callback_allow)),
        concurrency=settings.executor_concurrency,
        grace_s=settings.drain_s,
    )


def _server(app: App) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http="httptools",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=5,
            timeout_keep_alive=75,
            backlog=2048,
        )
    )


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    return stop


def _listen(host: str, port: int) -> socket.socket:
    """Bind before anything else is opened, so that a port in use is said at once. Raises OSError with the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)}: {host}:{port}") from error
    listener.set_inheritable(False)
    return listener
