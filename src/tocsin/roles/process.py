"""One process of Tocsin, put together: the stages of its roles over the adapters of its shape, and the API's desk.

        embedded   one process does everything; its leases are a file's lock, its near tier is memory
        fleet      role api: the desk, and what follows the ends of jobs; role node: the stages that own partitions; any number
                   of each. Every process has a session, a corrected clock, and tells the others what it has counted.

All shapes run the same stages. Ends in order: what was answered is durable already, partitions are given back last but one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from math import inf

from tocsin import telemetry
from tocsin.api.app import create_app
from tocsin.api.desk import Desk
from tocsin.clock import Clock, CorrectedClock, Entropy, ManualClock, SystemClock
from tocsin.config import Settings
from tocsin.errors import LeasesUnavailable, StoreUnavailable
from tocsin.flow.admit import Admitter
from tocsin.flow.agenda import Agenda
from tocsin.flow.archive import Archiver
from tocsin.flow.canary import Canary
from tocsin.flow.change import Changer
from tocsin.flow.claim import Claimer, SigningKeys
from tocsin.flow.complete import Completer
from tocsin.flow.coordinate import Coordinator
from tocsin.flow.count import Counter
from tocsin.flow.custody import Custodian
from tocsin.flow.define import Definer
from tocsin.flow.direct import Director
from tocsin.flow.dispatch import Dispatcher
from tocsin.flow.ending import Ender
from tocsin.flow.ends import Ends
from tocsin.flow.figures import Gauger
from tocsin.flow.fleet import Fleet
from tocsin.flow.follow import Follower
from tocsin.flow.gap import GAP_S, Gap, Pulse
from tocsin.flow.health import Health
from tocsin.flow.heartbeat import Heart
from tocsin.flow.intervene import Intervener
from tocsin.flow.load import Loader, quiet_until
from tocsin.flow.look import Reader
from tocsin.flow.occurrences import Mover
from tocsin.flow.ownership import Owner, Ownership, Renewer
from tocsin.flow.park import Parker, Unparker
from tocsin.flow.present import Presenter
from tocsin.flow.queues import QueueBook
from tocsin.flow.quotas import Limits, Quotas
from tocsin.flow.reach import Reach
from tocsin.flow.recheck import Rechecker
from tocsin.flow.reckon import Reckoner
from tocsin.flow.recover import Recoverer
from tocsin.flow.recur import Recurer
from tocsin.flow.redrive import Redriver
from tocsin.flow.rescue import Rescuer
from tocsin.flow.retell import Owed, Reteller
from tocsin.flow.shares import Sharer
from tocsin.flow.sightings import Sightings
from tocsin.flow.sweep import Sweeper
from tocsin.flow.tally import Tally
from tocsin.flow.timekeeper import Timekeeper
from tocsin.flow.tokens import LeaseTokens
from tocsin.lease.port import Leases, Registry
from tocsin.model.zones import Zones, pinned_zones
from tocsin.near.port import NearTier
from tocsin.roles.adapters import facts_of, kept, lock, open_near, open_registry, open_store
from tocsin.sdk.asgi import App
from tocsin.service import Conductor, Loop, Stage
from tocsin.store.port import Store
from tocsin.telemetry import log

DAY_MS = 86_400_000


@dataclass(slots=True, kw_only=True)
class Process:
    """A process: the API's desk and the background stages."""

    settings: Settings
    store: Store
    near: NearTier
    leases: Leases
    desk: Desk
    claimer: Claimer
    app: App
    stages: Sequence[Stage]
    recoverer: Recoverer
    custodian: Custodian
    health: Health
    clock: Clock
    entropy: Entropy
    conductor: Conductor | None
    registry: Registry | None = None
    reckoner: Reckoner | None = None
    loops: list[Loop] = field(default_factory=list)

    async def start(self) -> None:
        """Rebuild the near tier where this process owns everything, then let the stages run (with a virtual clock: when it is
        advanced). In a fleet partitions come later, and are rebuilt as they come."""
        if self.registry is None:
            while (await self.custodian.step()).more:
                pass
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
        # Firing ends first and partitions are given back next, so that another node goes on before the slow stages have ended.
        for loop in self.loops[:1]:
            await loop.stop()
        if self.registry is not None:
            await self.leases.release()
        await asyncio.gather(*(loop.stop() for loop in self.loops[1:]))
        await self.leases.release()
        if self.reckoner is not None:
            await self.reckoner.tell_last()
        if self.registry is not None:
            await self.registry.close()
        await self.near.close()
        await self.store.close()

    async def advance(self, seconds: float) -> int:
        """Let virtual time pass; the time it is then, when all due work has fired and been pushed."""
        assert self.desk.advance is not None, "only a manual clock can be advanced"
        return await self.desk.advance(seconds)


async def build(settings: Settings, clock: Clock, entropy: Entropy, zones: Zones | None = None) -> Process:
    """Put one process together; `zones` are the pinned ones if not given. Raises LeaseHeld, ConfigError, StoreError,
    ServerUnavailable."""
    async with AsyncExitStack() as stack:
        if not settings.is_fleet:
            leases: Leases = await kept(stack, await lock(settings), "release")
            store = await kept(stack, await open_store(settings, clock))
            near = await kept(stack, await open_near(settings, store, clock, entropy))
            process = await _Maker(settings, store, near, clock, entropy, zones, leases=leases).process()
        else:
            corrected = CorrectedClock(clock)
            store = await kept(stack, await open_store(settings, corrected))
            timekeeper = Timekeeper(store, corrected)
            await compare_clocks(timekeeper)
            near = await kept(stack, await open_near(settings, store, corrected, entropy))
            registry = await kept(stack, await open_registry(settings, store, corrected, entropy))
            maker = _Maker(settings, store, near, corrected, entropy, zones, registry=registry, timekeeper=timekeeper)
            process = await maker.process()
            try:
                await process.leases.acquire()
            except LeasesUnavailable as error:
                # What takes jobs and completions needs no lease; the session begins as soon as it can.
                log.warning("no_session_yet", error=str(error), next="tries again")
        stack.pop_all()
    return process


async def compare_clocks(timekeeper: Timekeeper) -> None:
    """Before anything is written or kept by the clock: a job that was accepted by one that is an hour off is an hour late."""
    try:
        await timekeeper.step()
    except StoreUnavailable as error:
        log.warning("clock_not_compared", error=str(error), next="tries again")


class _Maker:
    """Makes a process: first what its parts share, then stages, then the desk."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        near: NearTier,
        clock: Clock,
        entropy: Entropy,
        zones: Zones | None,
        *,
        leases: Leases | None = None,
        registry: Registry | None = None,
        timekeeper: Timekeeper | None = None,
    ) -> None:
        self.settings, self.store, self.near, self.clock, self.entropy = settings, store, near, clock, entropy
        self.registry, self.facts = registry, facts_of(settings, clock)
        self.virtual = isinstance(clock, ManualClock)
        jobs, rows, schedules = store.jobs, store.settings, store.schedules
        self.is_node, self.is_api = "node" in settings.roles, "api" in settings.roles
        self.timekeeper = timekeeper
        self.loops: list[Loop] = []
        self.ownership: Ownership | None = None
        self.coordinator: Coordinator | None = None
        self.reckoner: Reckoner | None = None
        if leases is None:
            assert registry is not None, "a fleet has a registry"
            leases = self.ownership = Ownership(
                registry,
                self.facts,
                clock,
                entropy,
                lost=lambda _: self.custodian.ring(),
                dispatched_s=self._dispatched_s if self.is_node else None,
                useful=lambda: not self.gap.open,
                offset_ms=lambda: self.timekeeper.offset_ms if self.timekeeper is not None else None,
            )
        self.leases = leases
        reach = self.reach = Reach(leases)
        self.tally, self.gap, self.ends = Tally(), Gap(clock, inf if self.virtual else GAP_S), Ends(clock)
        self.queues = QueueBook(rows, near, self.tally, clock)
        self.quotas = Quotas(rows, self.tally, clock, Limits(**settings.quotas.as_dict()))
        self.parker = Parker(jobs, near, self.ends, self.tally)
        self.owed = Owed()
        self.ender = Ender(jobs, near, self.ends, self.tally, clock, entropy, self.owed)
        self.agenda = Agenda(schedules, self.quotas, self.tally, zones or pinned_zones(), clock)
        self.mover = Mover(jobs, schedules, near, self.queues, self.parker, self.agenda, self.tally, clock)
        self.follower = Follower(schedules, self.mover, self.agenda, self.ends, clock)
        self.sweeper = Sweeper(jobs, schedules, self.mover, self.agenda, self.follower, reach, clock)
        self.loader = Loader(jobs, near, reach, clock)
        self.unparker = Unparker(jobs, near, reach, self.parker, clock)
        self.rechecker = Rechecker(jobs, near, reach, self.parker, clock, round(settings.recheck_delay_s * 1000))
        self.recoverer = Recoverer(jobs, near, self.parker, self.unparker, self.loader, self.rechecker, clock)
        self.custodian = Custodian(near, reach, self.recoverer, clock)
        self.sightings = Sightings(near, clock)

    async def process(self) -> Process:
        """The whole process."""
        jobs, rows, near, clock = self.store.jobs, self.store.settings, self.near, self.clock
        tokens = LeaseTokens(await rows.secret("lease-tokens", self.entropy.bytes(32)))
        claimer = Claimer(
            jobs,
            near,
            self.queues,
            tokens,
            SigningKeys(rows, clock),
            self.tally,
            clock,
            self.entropy,
            self.ends,
            SystemClock() if self.virtual else clock,
            self.sightings,
        )
        completer = Completer(jobs, near, self.ender, self.ends, self.tally, clock)
        stages = self._stages()
        conductor = None
        if isinstance(clock, ManualClock):
            conductor = Conductor(stages, clock, lambda: quiet_until(jobs, self.leases.owned()))
        else:
            canaries = self._canaries(claimer, completer, tokens)
            self.loops = [Loop(stage, clock, self.entropy) for stage in (*stages, *self._always(), *canaries)]
        health = self._health()
        telemetry.ZONE_DATA.clear()
        telemetry.ZONE_DATA.labels(self.agenda.zones.version).set(1)
        desk = await self._desk(claimer, completer, tokens, health)
        if conductor is not None:
            conducted = conductor

            async def advance(seconds: float) -> int:
                await conducted.advance(seconds)
                return clock.now_ms()

            desk = replace(desk, advance=advance)
        return Process(
            settings=self.settings,
            store=self.store,
            near=near,
            leases=self.leases,
            desk=desk,
            claimer=claimer,
            app=create_app(desk),
            stages=stages,
            recoverer=self.recoverer,
            custodian=self.custodian,
            health=health,
            clock=clock,
            entropy=self.entropy,
            conductor=conductor,
            registry=self.registry,
            reckoner=self.reckoner,
            loops=self.loops,
        )

    def _stages(self) -> list[Stage]:
        """What moves jobs on. The dispatcher is the first of a node's."""
        jobs, near, reach, clock = self.store.jobs, self.near, self.reach, self.clock
        if not self.is_node:
            return [self.follower]
        recurer = Recurer(jobs, self.store.schedules, self.mover, self.agenda, clock)
        put = self.tally.take_over if self.registry is None else near.reset_counts
        return [
            Dispatcher(jobs, near, reach, self.parker, recurer, self.tally, clock),
            self.follower,
            self.loader,
            Rescuer(jobs, near, reach, self.ender, self.gap, clock),
            self.unparker,
            self.rechecker,
            self.sweeper,
            Counter(jobs, put, clock, self._leads, lambda: self.custodian.generation),
            Archiver(jobs, self.quotas, clock, round(self.settings.retention_days * DAY_MS), self._leads),
        ]

    def _always(self) -> list[Stage]:
        """What looks at the world every few seconds. It would only slow virtual time down, in which nothing happens unasked."""
        store, near, clock = self.store, self.near, self.clock
        stages: list[Stage] = [Pulse(store, self.gap, clock, self.reach.saw), Sharer(store.settings, near, clock)]
        if self.is_node:
            stages.append(Gauger(store, near, self.leases, clock))
        if self.is_api:
            stages.append(self.sightings)
        if self.ownership is not None:
            self.reckoner = Reckoner(near, self.tally, clock)
            stages += [
                self.reckoner,
                Renewer(self.ownership),
                Reteller(store.jobs, near, self.parker, self.owed, clock),
            ]
        if self.ownership is not None and self.is_node:
            owner = Owner(self.ownership, self.custodian.gained)
            self.coordinator = Coordinator(self.ownership, store.jobs.partitions, owner.hurry)
            stages += [self.coordinator, owner, self.custodian]
        if self.timekeeper is not None:
            stages.append(self.timekeeper)
        return stages

    def _canaries(self, claimer: Claimer, completer: Completer, tokens: LeaseTokens) -> list[Stage]:
        if not (self.settings.has_canary and self.is_node):
            return []
        jobs, near, reach = self.store.jobs, self.near, self.reach
        return [Canary(jobs, near, reach, claimer, completer, tokens, self.tally, self.clock, self.entropy)]

    def _health(self) -> Health:
        checks = []
        if self.timekeeper is not None:
            checks.append(self.timekeeper.reason)
        if self.is_node and self.ownership is not None:
            checks += [self._sessionless, self._behind]
        return Health(
            self.store,
            self.gap,
            self.clock,
            None if self.virtual or not self.is_node else lambda: self.loops[0].passed_at_s,
            outdated=lambda: self.sweeper.outdated,
            checks=checks,
        )

    def _sessionless(self) -> str | None:
        if self.ownership is None or self.ownership.trusted() is not None:
            return None
        return (
            "this node has no session: what keeps the leases or the store does not answer, or the dispatcher is stuck"
        )

    def _behind(self) -> str | None:
        behind = len(self.custodian.behind())
        return f"{behind} partitions are being rebuilt in the near tier" if behind else None

    def _leads(self) -> bool:
        """Whether this process does what one does for all."""
        return self.ownership is None or (self.coordinator is not None and self.coordinator.elected)

    def _dispatched_s(self) -> float | None:
        """When this node last fired what was due; never, where its clock is so wrong that it must not."""
        if self.timekeeper is not None and not self.timekeeper.trusted:
            return None
        return self.loops[0].passed_at_s if self.loops else None

    async def _desk(self, claimer: Claimer, completer: Completer, tokens: LeaseTokens, health: Health) -> Desk:
        jobs, rows, near, clock, entropy = self.store.jobs, self.store.settings, self.near, self.clock, self.entropy
        schedules, parker, tally = self.store.schedules, self.parker, self.tally
        presenter = Presenter(jobs, schedules, self.agenda, clock)
        definer = Definer(jobs, schedules, self.mover, self.agenda, presenter, self.queues, self.quotas, clock, entropy)
        intervener = Intervener(schedules, self.mover, self.agenda)
        return Desk(
            admit=Admitter(jobs, near, parker, self.queues, self.quotas, tally, clock, entropy, self.owed),
            claim=claimer,
            tokens=tokens,
            heart=Heart(jobs, near),
            complete=completer,
            change=Changer(jobs, near, self.queues, parker, intervener, self.ends, tally, clock, self.owed),
            define=definer,
            direct=Director(
                jobs,
                self.mover,
                self.agenda,
                presenter,
                definer,
                self.queues,
                self.quotas,
                parker,
                tally,
                clock,
                entropy,
            ),
            schedules=presenter,
            redrive=Redriver(jobs, near, tally, clock),
            look=Reader(jobs),
            queues=self.queues,
            quotas=self.quotas,
            health=health,
            fleet=Fleet(self.registry, self.facts, jobs, near, self.leases, clock),
            settings=rows,
            clock=clock,
            entropy=entropy,
            cursor_secret=await rows.secret("cursors", entropy.bytes(32)),
            zone_data=self.agenda.zones.version,
            metrics=telemetry.exposition,
        )
