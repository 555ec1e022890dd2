"""A process of Tocsin in a test: the real stages over a store and a near tier that can be lost, in virtual time.

A `World` is what outlives the process (the clock, the store's contents, the faults); `start` puts a process together as the
composition root does and recovers; a restart leaves everything in memory behind, as a kill does. Stages are stepped by hand, so a
test says exactly what happened in which order.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from tests.life.disk import Crashed, Disk, Fault
from tests.life.stepstore import StepStore
from tocsin import wire
from tocsin.clock import Clock, ManualClock, SeededEntropy
from tocsin.errors import Refused
from tocsin.flow.admit import Admitted, Admitter, Wanted
from tocsin.flow.agenda import Agenda
from tocsin.flow.archive import Archiver
from tocsin.flow.change import Changer
from tocsin.flow.claim import Claimer, SigningKeys
from tocsin.flow.complete import Answer, Completer
from tocsin.flow.count import Counter
from tocsin.flow.define import Definer
from tocsin.flow.direct import Director
from tocsin.flow.dispatch import Dispatcher
from tocsin.flow.ending import Ender
from tocsin.flow.ends import Ends
from tocsin.flow.follow import Follower
from tocsin.flow.gap import GAP_S, Gap, Pulse
from tocsin.flow.heartbeat import Heart
from tocsin.flow.intervene import Intervener
from tocsin.flow.load import Loader
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
from tocsin.flow.sweep import Sweeper
from tocsin.flow.tally import Tally
from tocsin.flow.tokens import LeaseTokens
from tocsin.lease.port import Leases
from tocsin.model.job import JobState
from tocsin.model.zones import Zones, pinned_zones
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import NearTier
from tocsin.service import Conductor, Stage
from tocsin.store.port import Beaten, NotYours, Store
from tocsin.store.settings import QueueRow

START = datetime(2026, 12, 5, 3, 30, tzinfo=UTC)
PARTITIONS = 4
DAY_S = 86_400
T = TypeVar("T")


class Owner:
    """The leases of a process that owns everything."""

    def __init__(self, partitions: int) -> None:
        self._owned = tuple(range(partitions))

    def owned(self) -> tuple[int, ...]:
        return self._owned

    async def acquire(self) -> None: ...

    async def release(self) -> None: ...


class Brittle:
    """A near tier around whose calls the process may die too."""

    def __init__(self, near: NearTier, fault: Fault) -> None:
        self._near, self._fault = near, fault

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._near, name)

        async def asked(*args: Any, **kwargs: Any) -> Any:
            self._fault.point(f"before near.{name}")
            answer = await call(*args, **kwargs)
            self._fault.point(f"after near.{name}")
            return answer

        return asked


class Process:
    """The stages of one process, which owns everything and goes by the world's clock unless told otherwise."""

    def __init__(
        self, world: World, store: Store, near: Any, leases: Leases | None = None, own: Clock | None = None
    ) -> None:
        clock, entropy = own or world.clock, world.entropy
        jobs, rows, leases = store.jobs, store.settings, leases or Owner(world.partitions)
        self.store, self.near, self.leases = store, near, leases
        self.tally, self.gap = Tally(), Gap(clock, world.gap_s)
        self.queues = QueueBook(rows, near, self.tally, clock)
        self.quotas = Quotas(rows, self.tally, clock, world.limits)
        self.ends, schedules = Ends(clock), store.schedules
        self.parker = Parker(jobs, near, self.ends, self.tally)
        self.ender = Ender(jobs, near, self.ends, self.tally, clock, entropy)
        self.agenda = Agenda(schedules, self.quotas, self.tally, world.zones, clock)
        self.mover = Mover(jobs, schedules, near, self.queues, self.parker, self.agenda, self.tally, clock)
        self.recur = Recurer(jobs, schedules, self.mover, self.agenda, clock)
        self.follow = Follower(schedules, self.mover, self.agenda, self.ends, clock)
        self.sweep = Sweeper(jobs, schedules, self.mover, self.agenda, self.follow, leases, clock)
        self.present = Presenter(jobs, schedules, self.agenda, clock)
        self.define = Definer(
            jobs, schedules, self.mover, self.agenda, self.present, self.queues, self.quotas, clock, entropy
        )
        self.direct = Director(
            jobs,
            self.mover,
            self.agenda,
            self.present,
            self.define,
            self.queues,
            self.quotas,
            self.parker,
            self.tally,
            clock,
            entropy,
        )
        intervener = Intervener(schedules, self.mover, self.agenda)
        self.tokens = LeaseTokens(b"0" * 32)
        self.dispatch = Dispatcher(jobs, near, leases, self.parker, self.recur, self.tally, clock)
        self.load = Loader(jobs, near, leases, clock, page=world.page)
        self.rescue = Rescuer(jobs, near, leases, self.ender, self.gap, clock)
        self.unpark = Unparker(jobs, near, leases, self.parker, clock)
        self.recheck = Rechecker(jobs, near, leases, self.parker, clock)
        self.archive = Archiver(jobs, self.quotas, clock, world.retention_s * 1000)
        self.count = Counter(jobs, self.tally.take_over, clock)
        self.pulse = Pulse(store, self.gap, clock)
        self.admit = Admitter(jobs, near, self.parker, self.queues, self.quotas, self.tally, clock, entropy)
        self.claim = Claimer(
            jobs, near, self.queues, self.tokens, SigningKeys(rows, clock), self.tally, clock, entropy, self.ends
        )
        self.heart = Heart(jobs, near)
        self.complete = Completer(jobs, near, self.ender, self.ends, self.tally, clock)
        self.change = Changer(jobs, near, self.queues, self.parker, intervener, self.ends, self.tally, clock)
        self.redrive = Redriver(jobs, near, self.tally, clock)
        self.look = Reader(jobs)
        self.recover = Recoverer(jobs, near, self.parker, self.unpark, self.load, self.recheck, clock)
        self.stages: list[Stage] = [
            self.dispatch,
            self.follow,
            self.load,
            self.rescue,
            self.unpark,
            self.recheck,
            self.sweep,
            self.count,
            self.archive,
            self.pulse,
        ]
        self.conductor = Conductor(self.stages, world.clock)


class World:
    """What outlives a process, and shorthands for what clients and workers do."""

    def __init__(
        self,
        *,
        seed: int = 1,
        partitions: int = PARTITIONS,
        due_limit: int = 200_000,
        line_limit: int = 100_000,
        page: int = 2_000,
        limits: Limits | None = None,
        zones: Zones | None = None,
        yielding: bool = False,
        start: datetime = START,
        retention_s: int = 30 * DAY_S,
        gap_s: float = GAP_S,
    ) -> None:
        self.zones = zones or pinned_zones()
        self.clock = ManualClock(start)
        self.retention_s, self.gap_s = retention_s, gap_s
        self.entropy = SeededEntropy(seed)
        self.disk, self.fault = Disk(), Fault()
        self.partitions, self.page, self.limits = partitions, page, limits
        self._due_limit, self._line_limit, self._yielding = due_limit, line_limit, yielding
        self._process: Process | None = None

    async def open_store(self) -> Store:
        """The store as a new process finds it."""
        return StepStore(self.disk, self.clock, self.partitions, self.fault, yielding=self._yielding)

    @property
    def on(self) -> Process:
        """The process that runs now."""
        assert self._process is not None, "no process runs; start one"
        return self._process

    async def boot(self) -> Process:
        """A new process, with an empty near tier, that has not recovered anything yet."""
        near = MemoryNearTier(self.clock, self.partitions, due_limit=self._due_limit, line_limit=self._line_limit)
        self._process = Process(self, await self.open_store(), Brittle(near, self.fault))
        return self._process

    async def start(self) -> Process:
        """A new process that has recovered."""
        process = await self.boot()
        await process.recover.recover(process.leases.owned())
        return process

    async def restart(self) -> Process:
        """Kill the process and start another; that takes a moment."""
        self.fault.clear()
        self.clock.advance(0.2)
        return await self.start()

    async def crash_during(self, work: Awaitable[object], point: str) -> None:
        """Do something and die at that point; the test fails if the point is not passed."""
        self.fault.at(point)
        try:
            await work
        except Crashed:
            await self.restart()
            return
        raise AssertionError(f"the process did not pass {point!r}; it passed {self.fault.passed}")

    async def settle(self) -> None:
        """All stages, until none has anything to do now."""
        await self.on.conductor.settle()

    async def advance(self, seconds: float) -> None:
        """Let time pass; all stages run when they are due."""
        await self.on.conductor.advance(seconds)

    async def jump(self, seconds: float) -> None:
        """Let time pass in one piece, as while the machine was suspended; then all stages run."""
        self.clock.advance(seconds)
        await self.settle()

    # clients

    async def create(self, tenant: str = "acme", *, key: str | None = None, **fields: Any) -> str:
        """Create a job; its ID."""
        made = (await self.try_create(tenant, key=key, **fields))[0]
        if isinstance(made, Refused):
            raise made
        return made.job_id

    async def try_create(
        self, tenant: str = "acme", *, key: str | None = None, count: int = 1, **fields: Any
    ) -> list[Admitted | Refused]:
        """Create `count` jobs of the same kind."""
        body = {"queue": "q", "target": {"type": "task", "handler": "do"}} | fields
        job = _read(body, wire.JobCreate)
        body_hash = repr(sorted(fields.items())).encode()[:16].ljust(16)
        return await self.on.admit.create(tenant, [Wanted(job=job, key=key, body_hash=body_hash)] * count)

    async def job(self, job_id: str) -> JobState:
        """The job as the store has it."""
        state = (await self.on.store.jobs.states([job_id]))[0]
        assert state is not None, f"{job_id} is not in the store"
        return state

    async def patch(self, job_id: str, tenant: str = "acme", **fields: Any) -> JobState:
        """PATCH."""
        return await self.on.change.patch(tenant, job_id, _read(fields, wire.JobPatch), None)

    async def cancel(self, job_id: str, tenant: str = "acme") -> JobState:
        """DELETE."""
        return await self.on.change.cancel(tenant, job_id)

    async def run_now(self, job_id: str, tenant: str = "acme") -> JobState:
        """:run-now"""
        return await self.on.change.run_now(tenant, job_id)

    async def redrive(self, tenant: str = "acme", queue: str = "q", **fields: Any) -> wire.Redriven:
        """Redrive all dead letters, or those that `fields` select."""
        body = fields if "job_ids" in fields or "filter" in fields else fields | {"filter": {}}
        return await self.on.redrive.redrive(tenant, queue, _read(body, wire.Redrive))

    async def discard(self, tenant: str = "acme", queue: str = "q", **fields: Any) -> wire.Discarded:
        """Discard all dead letters, or those that `fields` select."""
        body = fields if "job_ids" in fields or "filter" in fields else fields | {"filter": {}}
        return await self.on.redrive.discard(tenant, queue, _read(body, wire.DeadSelection))

    async def pause(self, paused: bool = True, tenant: str = "acme", queue: str = "q") -> None:
        """Pause or resume a queue."""
        row = await self.on.queues.get(tenant, queue)
        await self.on.queues.put(QueueRow(tenant=tenant, queue=queue, paused=paused, lease_ms=row.lease_ms))

    # owners of schedules

    async def define(
        self, tenant: str, name: str, *, template: dict[str, Any] | None = None, **fields: Any
    ) -> wire.Schedule:
        """PUT by name: make a schedule, or change it."""
        body = {"job_template": _template(template)} | fields
        return (await self.on.define.upsert(tenant, name, _read(body, wire.SchedulePut)))[0]

    async def patch_schedule(
        self, schedule_id: str, tenant: str = "acme", *, template: dict[str, Any] | None = None, **fields: Any
    ) -> wire.Schedule:
        """PATCH of a schedule."""
        body = fields if template is None else {"job_template": _template(template)} | fields
        return await self.on.define.patch(tenant, schedule_id, _read(body, wire.SchedulePatch), None)

    async def delete_schedule(self, schedule_id: str, tenant: str = "acme") -> None:
        """DELETE of a schedule."""
        await self.on.define.delete(tenant, schedule_id)

    async def skip_next(self, schedule_id: str, tenant: str = "acme") -> wire.Schedule:
        """:skip-next"""
        return await self.on.direct.skip_next(tenant, schedule_id)

    async def trigger(self, schedule_id: str, tenant: str = "acme", *, key: str | None = None) -> JobState:
        """:trigger"""
        return (await self.on.direct.trigger(tenant, schedule_id, wire.Trigger(), key, b"trigger".ljust(16)))[0]

    async def backfill(self, schedule_id: str, tenant: str = "acme", **fields: Any) -> wire.Backfilled:
        """:backfill"""
        return await self.on.direct.backfill(tenant, schedule_id, _read(fields, wire.Backfill))

    # workers

    async def claim(
        self, most: int = 1, *, worker: str = "w", tenant: str = "acme", queue: str = "q", **fields: Any
    ) -> list[wire.ClaimedJob]:
        """Claim jobs."""
        request = _read({"worker": worker, "max": most} | fields, wire.ClaimRequest)
        return await self.on.claim.claim(tenant, queue, request)

    async def claim_one(self, **fields: Any) -> wire.ClaimedJob:
        """Claim a job that must be there."""
        (job,) = await self.claim(1, **fields)
        return job

    async def beat(self, token: str, progress: bytes | None = None) -> Beaten | NotYours:
        """A heartbeat."""
        lease = self.on.tokens.read(token)
        assert lease is not None
        return (await self.on.heart.beat([(lease, progress)]))[0]

    async def complete(self, token: str, outcome: str = "succeeded", **fields: Any) -> Answer:
        """Report how an attempt ended."""
        lease = self.on.tokens.read(token)
        assert lease is not None
        report = _read({"outcome": outcome} | fields, wire.Completion)
        return (await self.on.complete.complete([(lease, report)]))[0]

    async def attempts(self, job_id: str, tenant: str = "acme") -> list[tuple[int, str | None]]:
        """The attempts of a job: number and outcome."""
        return [(attempt.attempt, attempt.outcome) for attempt in await self.on.look.attempts(tenant, job_id)]


def _template(fields: dict[str, Any] | None) -> dict[str, Any]:
    return {"queue": "q", "target": {"type": "task", "handler": "do"}} | (fields or {})


def _read(body: object, kind: type[T]) -> T:
    """A body as it comes over HTTP."""
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)
