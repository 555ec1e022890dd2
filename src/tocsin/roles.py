"""The composition root: which adapters stand behind the ports, and what a process of which role runs.

The only module that names concrete adapters. `build` puts one process together from its settings; `serve` runs it until it is told
to stop. A stop is orderly: no new work, stages end their passes, the store closes; a crash at any point is what the crash table of
`flow` is about, and the next start recovers from the file.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from math import inf
from pathlib import Path

import uvicorn

from tocsin import telemetry
from tocsin.api.app import create_app
from tocsin.api.desk import Desk
from tocsin.api.metrics import create_metrics_app
from tocsin.clock import Clock, Entropy, ManualClock, SystemClock, SystemEntropy
from tocsin.config import Settings
from tocsin.errors import ConfigError
from tocsin.executor.guard import Guard, parse_allowances
from tocsin.executor.worker import Executor
from tocsin.flow.admit import Admitter
from tocsin.flow.archive import Archiver
from tocsin.flow.change import Changer
from tocsin.flow.claim import Claimer, SigningKeys
from tocsin.flow.complete import Completer
from tocsin.flow.dispatch import Dispatcher
from tocsin.flow.ending import Ender
from tocsin.flow.gap import GAP_S, Gap, Pulse
from tocsin.flow.health import Health
from tocsin.flow.heartbeat import Heart
from tocsin.flow.load import Loader, quiet_until
from tocsin.flow.look import Reader
from tocsin.flow.park import Parker, Unparker
from tocsin.flow.queues import QueueBook
from tocsin.flow.quotas import Limits, Quotas
from tocsin.flow.recheck import Rechecker
from tocsin.flow.recover import Recoverer
from tocsin.flow.redrive import Redriver
from tocsin.flow.rescue import Rescuer
from tocsin.flow.shares import Sharer
from tocsin.flow.tally import Tally
from tocsin.flow.tokens import LeaseTokens
from tocsin.lease.local import LocalLeases
from tocsin.lease.port import Leases
from tocsin.model.ids import ALPHABET
from tocsin.model.signing import new_secret
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import NearTier
from tocsin.sdk.asgi import App, AsgiTransport
from tocsin.sdk.http import HttpTransport
from tocsin.service import Conductor, Loop, Stage
from tocsin.store.port import SigningKeyRow, Store, TenantRow, TokenRow
from tocsin.store.sqlite import Examination, examine
from tocsin.store.sqlite import open_store as open_sqlite

DEV_TENANT = "dev"
DEV_SCOPES = ("admin", "read", "write", "work:*", "operator")
EXECUTOR_TOKEN_ID = "embedded-executor"
DAY_MS = 86_400_000
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


@dataclass(slots=True, kw_only=True)
class Process:
    """One process of Tocsin, put together: the API's desk and the background stages."""

    settings: Settings
    store: Store
    near: NearTier
    leases: Leases
    desk: Desk
    app: App
    stages: Sequence[Stage]
    recoverer: Recoverer
    health: Health
    clock: Clock
    entropy: Entropy
    conductor: Conductor | None
    loops: list[Loop] = field(default_factory=list)

    async def start(self) -> None:
        """Rebuild the near tier, then let the stages run (with a virtual clock: when it is advanced)."""
        await self.recoverer.recover(self.leases.owned())
        self.health.recovered = True
        if self.conductor is not None:
            await self.conductor.settle()
            return
        for loop in self.loops:
            loop.start()

    async def stop(self) -> None:
        """End in order; everything that was answered is durable already."""
        self.health.stopping = True
        await self.near.close()
        for loop in self.loops:
            await loop.stop()
        await self.store.close()
        await self.leases.release()

    async def advance(self, seconds: float) -> int:
        """Let virtual time pass; the time it is then, when all due work has fired and been pushed."""
        assert self.conductor is not None, "only a manual clock can be advanced"
        await self.conductor.advance(seconds)
        return self.clock.now_ms()


async def open_store(settings: Settings, clock: Clock) -> Store:
    """The store of these settings, migrated; for commands that work on it without a server."""
    path = Path(settings.dsn.removeprefix("sqlite:"))
    if path.parent == settings.data:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await open_sqlite(path, clock, partitions=settings.partitions, entropy=SystemEntropy())


def examine_store(settings: Settings) -> Examination:
    """Look at the store's file without changing it, also beside a running server; for `tocsin doctor`."""
    return examine(Path(settings.dsn.removeprefix("sqlite:")))


async def build(settings: Settings, clock: Clock, entropy: Entropy) -> Process:
    """Put one process together over SQLite. Raises LeaseHeld, ConfigError, StoreError."""
    try:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"data is {settings.data}: {error.strerror}; name a folder that can be written") from error
    leases = LocalLeases(settings.data, settings.partitions)
    await leases.acquire()
    try:
        store = await open_store(settings, clock)
    except BaseException:
        await leases.release()
        raise
    near = MemoryNearTier(clock, partitions=settings.partitions)
    return await _compose(settings, store, near, leases, clock, entropy)


async def _compose(
    settings: Settings, store: Store, near: NearTier, leases: Leases, clock: Clock, entropy: Entropy
) -> Process:
    jobs, rows = store.jobs, store.settings
    virtual = isinstance(clock, ManualClock)
    tally, gap = Tally(), Gap(clock, inf if virtual else GAP_S)
    queues = QueueBook(rows, near, tally, clock)
    quotas = Quotas(rows, tally, clock, Limits(**settings.quotas.as_dict()))
    parker = Parker(jobs, near)
    ender = Ender(jobs, near, tally, clock, entropy)
    tokens = LeaseTokens(await rows.secret("lease-tokens", entropy.bytes(32)))
    dispatcher = Dispatcher(jobs, near, leases, parker, tally, clock)
    loader = Loader(jobs, near, leases, clock)
    unparker = Unparker(jobs, near, leases, clock)
    rechecker = Rechecker(jobs, near, leases, parker, clock, round(settings.recheck_delay_s * 1000))
    stages: list[Stage] = [
        dispatcher,
        loader,
        Rescuer(jobs, near, ender, gap, clock),
        unparker,
        rechecker,
        Archiver(jobs, tally, quotas, clock, round(settings.retention_days * DAY_MS)),
    ]
    conductor = (
        Conductor(stages, clock, lambda: quiet_until(jobs, leases.owned())) if isinstance(clock, ManualClock) else None
    )
    # What looks at the world every few seconds would only slow virtual time down, in which nothing happens unasked.
    always = (*stages, Pulse(store, gap, clock), Sharer(rows, near, clock))
    loops = [Loop(stage, clock, entropy) for stage in always] if conductor is None else []
    health = Health(store, gap, clock, lambda: loops[0].passed_at_s if loops else None)
    desk = Desk(
        admit=Admitter(jobs, near, parker, queues, quotas, tally, clock, entropy),
        claim=Claimer(jobs, near, queues, tokens, SigningKeys(rows, clock), tally, clock, entropy),
        tokens=tokens,
        heart=Heart(jobs, near),
        complete=Completer(jobs, near, ender, tally, clock),
        change=Changer(jobs, near, queues, parker, tally, clock),
        redrive=Redriver(jobs, near, tally, clock),
        look=Reader(jobs),
        queues=queues,
        quotas=quotas,
        health=health,
        settings=rows,
        clock=clock,
        entropy=entropy,
        cursor_secret=await rows.secret("cursors", entropy.bytes(32)),
        zone_data=zone_data_version(),
        metrics=telemetry.exposition,
        advance=(lambda seconds: process.advance(seconds)) if conductor is not None else None,
    )
    process = Process(
        settings=settings,
        store=store,
        near=near,
        leases=leases,
        desk=desk,
        app=create_app(desk),
        stages=stages,
        recoverer=Recoverer(jobs, near, parker, unparker, loader, rechecker, clock),
        health=health,
        clock=clock,
        entropy=entropy,
        conductor=conductor,
        loops=loops,
    )
    return process


def zone_data_version() -> str:
    """The version of the pinned time zone data."""
    return version("tzdata")


# --- dev --------------------------------------------------------------------------------------------------------------


async def prepare_dev(process: Process, token: str | None) -> tuple[str, str]:
    """Make the tenant `dev` with a token of all its scopes and a signing key; the token and the newest signing secret."""
    rows, now = process.store.settings, process.clock.now_ms()
    await rows.put_tenant(TenantRow(name=DEV_TENANT, created_at=now), create=True)
    text = token or made_token("dev", process.entropy)
    await rows.add_token(token_row(text, DEV_TENANT, "tocsin dev", DEV_SCOPES, now))
    keys = await rows.signing_keys(DEV_TENANT)
    if keys:
        return text, keys[0].secret
    secret = new_secret(process.entropy.bytes(32))
    key_id = f"key_{process.entropy.bytes(8).hex()}"
    await rows.add_signing_key(SigningKeyRow(key_id=key_id, tenant=DEV_TENANT, secret=secret, created_at=now))
    return text, secret


def made_token(token_id: str, entropy: Entropy) -> str:
    """A fresh token text."""
    secret = "".join(ALPHABET[byte & 31] for byte in entropy.bytes(32)).lower()
    return f"tcs_{token_id}_{secret}"


def token_row(text: str, tenant: str, name: str, scopes: tuple[str, ...], now_ms: int) -> TokenRow:
    """The stored half of a token: its ID and the hash of its secret. A text of another form stands under its own hash."""
    parts = text.split("_", 2)
    token_id, secret = (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "tcs" else ("", text)
    return TokenRow(
        token_id=token_id or sha256(text.encode()).hexdigest()[:24],
        tenant=tenant,
        name=name,
        secret_sha256=sha256(secret.encode()).digest(),
        scopes=scopes,
        created_at=now_ms,
    )


# --- the executor -----------------------------------------------------------------------------------------------------


async def embedded_executor(process: Process) -> Executor:
    """An executor in this process: it calls the API without a socket and holds nothing but a token of its own."""
    return Executor(
        AsgiTransport(process.app, await executor_token(process)),
        Guard(parse_allowances(process.settings.callback_allow)),
        concurrency=process.settings.executor_concurrency,
        grace_s=process.settings.drain_s,
        entropy=process.entropy,
    )


async def executor_token(process: Process) -> str:
    """A fresh token for the executor in this process; the last start's is void."""
    text = made_token(EXECUTOR_TOKEN_ID, process.entropy)
    now = process.clock.now_ms()
    await process.store.settings.add_token(token_row(text, DEV_TENANT, "embedded executor", ("executor",), now))
    return text


# --- running ----------------------------------------------------------------------------------------------------------


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
    uvicorn_loop = uvicorn.Config(app="", loop="auto").get_loop_factory()
    with asyncio.Runner(loop_factory=uvicorn_loop) as runner:
        runner.run(main)


async def _serve(
    settings: Settings, clock: Clock | None, dev: DevOptions | None, on_ready: Callable[[Serving], None]
) -> None:
    stop = _stop_event()
    with closing(_listen(settings.host, settings.port)) as listener:
        process = await build(settings, clock or SystemClock(), SystemEntropy())
        try:
            token, secret = (None, None) if dev is None else await prepare_dev(process, dev.token)
            async with _listening(process.app, listener), _metrics_listening(settings):
                await process.start()
                async with _calling(process):
                    gc.freeze()
                    on_ready(Serving(url=_url(listener), token=token, signing_secret=secret, data=settings.data))
                    await stop.wait()
                # Claims that wait are answered with nothing, so that their connections can end.
                await process.near.close()
        finally:
            await process.stop()


@asynccontextmanager
async def _calling(process: Process) -> AsyncIterator[None]:
    """The executor of this process, if it has one; drained at the end, before the API stops taking its reports."""
    if "executor" not in process.settings.roles:
        yield
        return
    executor = await embedded_executor(process)
    calling = asyncio.create_task(executor.serve())
    try:
        yield
    finally:
        await executor.stop(now=process.settings.drain_s == 0)
        await calling


@asynccontextmanager
async def _listening(app: App, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application; at the end requests under way are answered."""
    server = _server(app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def _metrics_listening(settings: Settings) -> AsyncIterator[None]:
    if settings.metrics_port is None:
        yield
        return
    with closing(_listen(settings.metrics_host or settings.host, settings.metrics_port)) as listener:
        async with _listening(create_metrics_app(telemetry.exposition), listener):
            yield


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _serve_executor(settings: Settings, on_ready: Callable[[Serving], None]) -> None:
    """An executor on its own: no store, only the server's address and a token of scope `executor`."""
    stop = _stop_event()
    assert settings.url is not None, "checked with the settings"
    transport = HttpTransport(settings.url, settings.token)
    executor = Executor(
        transport,
        Guard(parse_allowances(settings.callback_allow)),
        concurrency=settings.executor_concurrency,
        grace_s=settings.drain_s,
    )
    calling = asyncio.create_task(executor.serve())
    gc.freeze()
    on_ready(Serving(url=settings.url, token=None, signing_secret=None, data=settings.data))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({stopped, calling}, return_when=asyncio.FIRST_COMPLETED)
    await executor.stop()
    await calling
    await transport.close()


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
