"""The composition root: which adapters stand behind the ports, and what a process of which role runs.

The only module that names concrete adapters. `build` puts one process together from its settings, `serving` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from pathlib import Path

from tocsin import telemetry
from tocsin.api.app import create_app
from tocsin.api.desk import Desk
from tocsin.clock import Clock, Entropy, ManualClock, SystemClock, SystemEntropy
from tocsin.config import Settings
from tocsin.errors import ConfigError
from tocsin.executor.guard import Guard, parse_allowances
from tocsin.executor.worker import Executor
from tocsin.flow.admit import Admitter
from tocsin.flow.agenda import Agenda
from tocsin.flow.archive import Archiver
from tocsin.flow.change import Changer
from tocsin.flow.claim import Claimer, SigningKeys
from tocsin.flow.complete import Completer
from tocsin.flow.define import Definer
from tocsin.flow.direct import Director
from tocsin.flow.dispatch import Dispatcher
from tocsin.flow.ending import Ender
from tocsin.flow.ends import Ends
from tocsin.flow.figures import Gauger
from tocsin.flow.follow import Follower
from tocsin.flow.gap import GAP_S, Gap, Pulse
from tocsin.flow.health import Health
from tocsin.flow.heartbeat import Heart
from tocsin.flow.intervene import Intervener
from tocsin.flow.load import Loader, quiet_until
from tocsin.flow.look import Reader
from tocsin.flow.occurrences import Mover
from tocsin.flow.park import Parker, Unparker
from tocsin.flow.present import Presenter
from tocsin.flow.queues import QueueBook
from tocsin.flow.quotas import Limits, Quotas
from tocsin.flow.recheck import Rechecker
from tocsin.flow.recover import Recoverer
from tocsin.flow.recur import Recurer
from tocsin.flow.redrive import Redriver
from tocsin.flow.rescue import Rescuer
from tocsin.flow.shares import Sharer
from tocsin.flow.sweep import Sweeper
from tocsin.flow.tally import Tally
from tocsin.flow.tokens import LeaseTokens
from tocsin.lease.local import LocalLeases
from tocsin.lease.port import Leases
from tocsin.model.ids import ALPHABET
from tocsin.model.signing import new_secret
from tocsin.model.zones import Zones, pinned_zones
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import NearTier
from tocsin.sdk.asgi import App, AsgiTransport
from tocsin.service import Conductor, Loop, Stage
from tocsin.store.port import Store
from tocsin.store.settings import SigningKeyRow, TenantRow, TokenRow
from tocsin.store.sqlite import Examination, examine
from tocsin.store.sqlite import open_store as open_sqlite

DEV_TENANT = "dev"
DEV_SCOPES = ("admin", "read", "write", "work:*", "operator")
EXECUTOR_TOKEN_ID = "callbacks"
# No tenant can have this name, so no admin finds the token among its own and deletes it: that would stop everybody's callbacks.
EXECUTOR_TENANT = "~embedded"
DAY_MS = 86_400_000


@dataclass(slots=True, kw_only=True)
class Process:
    """One process of Tocsin, put together: the API's desk and the background stages."""

    settings: Settings
    store: Store
    near: NearTier
    leases: Leases
    desk: Desk
    claimer: Claimer
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
        self.health.recovered()
        if self.conductor is not None:
            await self.conductor.settle()
            return
        for loop in self.loops:
            loop.start()

    async def stop(self) -> None:
        """End in order; everything that was answered is durable already."""
        self.health.stopping = True
        await self.near.quiesce()
        for loop in self.loops:
            await loop.stop()
        await self.near.close()
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


async def build(settings: Settings, clock: Clock, entropy: Entropy, zones: Zones | None = None) -> Process:
    """Put one process together over SQLite; `zones` are the pinned ones if not given. Raises LeaseHeld, ConfigError, StoreError."""
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
    return await _compose(settings, store, near, leases, clock, entropy, zones)


async def _compose(
    settings: Settings,
    store: Store,
    near: NearTier,
    leases: Leases,
    clock: Clock,
    entropy: Entropy,
    zones: Zones | None,
) -> Process:
    jobs, rows = store.jobs, store.settings
    virtual = isinstance(clock, ManualClock)
    tally, gap = Tally(), Gap(clock, inf if virtual else GAP_S)
    queues = QueueBook(rows, near, tally, clock)
    quotas = Quotas(rows, tally, clock, Limits(**settings.quotas.as_dict()))
    ends = Ends(clock)
    parker = Parker(jobs, near, ends, tally)
    ender = Ender(jobs, near, ends, tally, clock, entropy)
    agenda = Agenda(store.schedules, quotas, tally, zones or pinned_zones(), clock)
    mover = Mover(jobs, store.schedules, near, queues, parker, agenda, tally, clock)
    recurer = Recurer(jobs, store.schedules, mover, agenda, clock)
    follower = Follower(store.schedules, mover, agenda, ends, clock)
    sweeper = Sweeper(jobs, store.schedules, mover, agenda, follower, leases, clock)
    presenter = Presenter(jobs, store.schedules, agenda, clock)
    definer = Definer(jobs, store.schedules, mover, agenda, presenter, queues, quotas, clock, entropy)
    tokens = LeaseTokens(await rows.secret("lease-tokens", entropy.bytes(32)))
    dispatcher = Dispatcher(jobs, near, leases, parker, recurer, tally, clock)
    loader = Loader(jobs, near, leases, clock)
    unparker = Unparker(jobs, near, leases, parker, clock)
    rechecker = Rechecker(jobs, near, leases, parker, clock, round(settings.recheck_delay_s * 1000))
    stages: list[Stage] = [
        dispatcher,
        follower,
        loader,
        Rescuer(jobs, near, leases, ender, gap, clock),
        unparker,
        rechecker,
        sweeper,
        Archiver(jobs, tally, quotas, clock, round(settings.retention_days * DAY_MS)),
    ]
    conductor = (
        Conductor(stages, clock, lambda: quiet_until(jobs, leases.owned())) if isinstance(clock, ManualClock) else None
    )
    # What looks at the world every few seconds would only slow virtual time down, in which nothing happens unasked.
    always = (*stages, Pulse(store, gap, clock), Sharer(rows, near, clock), Gauger(near, leases, clock))
    loops = [Loop(stage, clock, entropy) for stage in always] if conductor is None else []
    health = Health(
        store, gap, clock, None if virtual else lambda: loops[0].passed_at_s, outdated=lambda: sweeper.outdated
    )
    telemetry.ZONE_DATA.clear()
    telemetry.ZONE_DATA.labels(agenda.zones.version).set(1)
    claimer = Claimer(
        jobs,
        near,
        queues,
        tokens,
        SigningKeys(rows, clock),
        tally,
        clock,
        entropy,
        ends,
        SystemClock() if virtual else clock,
    )
    desk = Desk(
        admit=Admitter(jobs, near, parker, queues, quotas, tally, clock, entropy),
        claim=claimer,
        tokens=tokens,
        heart=Heart(jobs, near),
        complete=Completer(jobs, near, ender, ends, tally, clock),
        change=Changer(jobs, near, queues, parker, Intervener(store.schedules, mover, agenda), ends, tally, clock),
        define=definer,
        direct=Director(jobs, mover, agenda, presenter, definer, queues, quotas, parker, tally, clock, entropy),
        schedules=presenter,
        redrive=Redriver(jobs, near, tally, clock),
        look=Reader(jobs),
        queues=queues,
        quotas=quotas,
        health=health,
        settings=rows,
        clock=clock,
        entropy=entropy,
        cursor_secret=await rows.secret("cursors", entropy.bytes(32)),
        zone_data=agenda.zones.version,
        metrics=telemetry.exposition,
        advance=(lambda seconds: process.advance(seconds)) if conductor is not None else None,
    )
    process = Process(
        settings=settings,
        store=store,
        near=near,
        leases=leases,
        desk=desk,
        claimer=claimer,
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


# --- dev --------------------------------------------------------------------------------------------------------------


async def prepare_dev(process: Process, token: str | None) -> tuple[str, str]:
    """Make the tenant `dev` with a token of all its scopes and a signing key; the token and the newest signing secret."""
    rows, now = process.store.settings, process.clock.now_ms()
    await rows.put_tenant(TenantRow(name=DEV_TENANT, created_at=now), create=True)
    text = token or made_token("dev", process.entropy)
    await _replace_token(process, token_row(text, DEV_TENANT, "tocsin dev", DEV_SCOPES, now))
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
    await _replace_token(process, token_row(text, EXECUTOR_TENANT, "embedded executor", ("executor",), now))
    return text


async def _replace_token(process: Process, row: TokenRow) -> None:
    """Store a token in the place of the one that an earlier start made under the same ID."""
    await process.store.settings.delete_token(row.tenant, row.token_id)
    await process.store.settings.add_token(row)
