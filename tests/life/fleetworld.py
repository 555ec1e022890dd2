"""A fleet in a test: several processes in one event loop and in virtual time, over one store and one near tier.

Each process has what it has in a real fleet: its own clock, corrected by what it measured; its own figures, told to the others; its
own leases, custody and gap. Who owns what is decided by the test, at any moment, and two may own the same. A paused process
makes no pass while time goes on, and still believes what it believed when it wakes up.

The world's shorthands for clients and workers speak to the process whose turn it is (`on`). What concerns something durable
must be answered also while the near tier is away.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.life.disk import Disk, Fault
from tests.life.sharednear import Server, SharedNear, View, Way
from tests.life.stepstore import StepStore
from tests.life.world import Process, World
from tocsin.clock import Clock, CorrectedClock, ManualClock
from tocsin.errors import NearUnavailable
from tocsin.flow.count import Counter
from tocsin.flow.custody import Custodian
from tocsin.flow.reckon import Reckoner
from tocsin.flow.timekeeper import LARGEST_OFFSET_MS, Timekeeper
from tocsin.service import Stage
from tocsin.store.port import Store

T = TypeVar("T")

NODES = 2
# The last one is of the role api: it owns nothing, ever.
PROCESSES = NODES + 1
# Time goes on in pieces of this size, so that nobody sees a gap where all run.
PIECE_S = 2.0


class MachineClock:
    """A machine's own clock, which shows `ahead_ms` more than the store's server's."""

    def __init__(self, there: ManualClock, ahead_ms: int = 0) -> None:
        self._there, self.ahead_ms = there, ahead_ms
        self.elapsed_s, self.wait = there.elapsed_s, there.wait

    def now_ms(self) -> int:
        return self._there.now_ms() + self.ahead_ms


class SharedStepStore(StepStore):
    """The store as one of several processes sees it: times are its own, and the server has a clock."""

    def __init__(self, disk: Disk, clock: Clock, partitions: int, fault: Fault, server: Clock) -> None:
        super().__init__(disk, clock, partitions, fault)
        self._server = server

    async def now_ms(self) -> int:
        return self._server.now_ms()


@dataclass(slots=True)
class Believed:
    """The leases of a process as it knows them. `gained`: what it is still to be told that it has come to own."""

    partitions: tuple[int, ...] = ()
    gained: set[int] = field(default_factory=set)

    def owned(self) -> tuple[int, ...]:
        return self.partitions

    async def acquire(self) -> None: ...

    async def release(self) -> None: ...


class Member(Process):
    """One process of the fleet. `owns` is what is really its own."""

    def __init__(
        self, world: FleetWorld, number: int, store: Store, view: View, fault: Fault, clock: CorrectedClock
    ) -> None:
        self.number, self.fault, self.corrected = number, fault, clock
        self.believed, self.owns = Believed(), set[int]()
        self.paused = False
        self._view = view
        super().__init__(world, store, view, self.believed, clock)
        self.custody = Custodian(self.near, self.believed, self.recover, clock)
        self.timekeeper = Timekeeper(store, clock)
        self.reckon = Reckoner(self.near, self.tally, clock)
        self.count = Counter(
            store.jobs, self.near.reset_counts, clock, lambda: world.leader == number, lambda: self.custody.generation
        )
        always: list[Stage] = [self.timekeeper, self.reckon, self.pulse]
        node: list[Stage] = [
            self.custody,
            self.dispatch,
            self.load,
            self.rescue,
            self.unpark,
            self.recheck,
            self.sweep,
            self.count,
            self.archive,
        ]
        self.stages = [*node[:2], self.follow, *node[2:], *always] if self.is_node else [self.follow, *always]

    @property
    def is_node(self) -> bool:
        """Whether it may own partitions."""
        return self.number < NODES

    def learn(self) -> None:
        """Learn what it owns now."""
        self.believed.partitions = tuple(sorted(self.owns))
        if self.believed.gained:
            self.custody.gained(tuple(sorted(self.believed.gained)))
            self.believed.gained.clear()

    @property
    def way(self) -> Way:
        """Its way to the near tier."""
        return self._view.way

    def yields(self, on: bool) -> None:
        """Whether others may act at every point that this process passes."""
        self._view.yielding = on
        if isinstance(self.store, StepStore):
            self.store.yielding = on


class FleetWorld(World):
    """What outlives the processes, and the processes. `drift_ms`: by how much their corrected clocks may be wrong."""

    def __init__(self, *, drift_ms: int = LARGEST_OFFSET_MS, **options: Any) -> None:
        super().__init__(**options)
        self.shared = self.make_near()
        self._chance, self._drift_ms = random.Random(self.entropy.bytes(8)), drift_ms
        self.members: list[Member] = []
        self.leader = 0

    def make_near(self) -> Server:
        """The near tier's server."""
        return SharedNear(self.clock, self.partitions, due_limit=self._due_limit, line_limit=self._line_limit)

    # processes

    async def start(self) -> Process:
        """All processes, each partition with one owner, all of it recovered."""
        self.members = [await self._make(number) for number in range(PROCESSES)]
        self.turn_to(0)
        for partition in range(self.partitions):
            self.give(partition, partition % NODES)
        await self.settle()
        return self.on

    async def restart(self) -> Process:
        """Kill the process whose turn it is and start another in its place. What it owned is free, or another's at once."""
        self.clock.advance(0.2)
        dead = self.members[self.turn]
        await self.bury(dead)
        self.members[self.turn] = await self._make(self.turn)
        self.turn_to(self.turn)
        if self._chance.random() < 0.5:
            for partition in dead.owns:
                self.give(partition, self._chance.randrange(NODES))
        return self.on

    def turn_to(self, number: int) -> None:
        """The process that clients, workers and faults meet from now on."""
        self.turn = number
        self._process, self.fault = self.members[number], self.members[number].fault

    def turn_to_any(self) -> None:
        """As chance has it."""
        self.turn_to(self._chance.randrange(len(self.members)))

    def give(self, partition: int, to: int, *, also: bool = False) -> None:
        """A partition comes to a node; unless `also`, from whoever had it, who learns it at once if it runs."""
        for member in self.members:
            if member.number == to:
                member.owns.add(partition)
                member.believed.gained.add(partition)
            elif not also:
                member.owns.discard(partition)
            if not member.paused:
                member.learn()

    def drift(self, member: Member, error_ms: int) -> None:
        """Its machine's clock has gone wrong since it was measured, so the corrected one is off by that much."""
        own = member.corrected.own
        assert isinstance(own, MachineClock)
        own.ahead_ms = error_ms - member.corrected.offset_ms

    async def heal(self) -> None:
        """From now on everything works, everybody runs, and each partition has one owner: a new one, or, as chance has it, the one
        that it had, which then has to see for itself what was lost."""
        self.shared.away = False
        stays = self._chance.random() < 0.5
        for member in self.members:
            member.fault.clear()
            member.paused = False
            await member.timekeeper.step()
            self.drift(member, 0)
        self.turn_to(0)
        for partition in range(self.partitions):
            owners = [member for member in self.members if partition in member.owns]
            if not stays or len(owners) != 1:
                self.give(partition, self._chance.randrange(NODES))
        for member in self.members:
            member.learn()

    async def open_for(self, clock: Clock, fault: Fault) -> Store:
        """The store as a process with that clock finds it."""
        return SharedStepStore(self.disk, clock, self.partitions, fault, self.clock)

    async def open_near(self, clock: Clock) -> Way:
        """The near tier as a process with that clock finds it."""
        return self.shared

    async def bury(self, member: Member) -> None:
        """A process is no more."""

    async def _make(self, number: int) -> Member:
        ahead_ms = self._chance.randint(-LARGEST_OFFSET_MS, LARGEST_OFFSET_MS)
        clock, fault = CorrectedClock(MachineClock(self.clock, ahead_ms)), Fault()
        clock.offset_ms = -ahead_ms
        view = View(await self.open_near(clock), fault)
        member = Member(self, number, await self.open_for(clock, fault), view, fault, clock)
        self.drift(member, self._chance.randint(-self._drift_ms, self._drift_ms))
        return member

    # time

    async def settle(self) -> None:
        """All stages of all processes that run, until none has anything to do now."""
        busy = True
        while busy:
            busy = False
            for member in self.members:
                for stage in member.stages if not member.paused else ():
                    busy |= await self._passes(stage)

    async def _passes(self, stage: Stage) -> bool:
        """A stage's passes as its loop makes them: one that the near tier does not let it make is tried again later."""
        worked = False
        try:
            while (await stage.step()).more:
                worked = True
        except NearUnavailable:
            if not self.shared.troubled:
                raise
        return worked

    async def advance(self, seconds: float) -> None:
        """Let time pass; all stages run."""
        left_s = seconds
        while left_s > 0:
            self.clock.advance(min(left_s, PIECE_S))
            left_s -= PIECE_S
            await self.settle()

    # clients and workers: what is durable is answered, whatever the near tier does

    async def try_create(self, tenant: str = "acme", **fields: Any) -> Any:
        return await _answered(super().try_create(tenant, **fields))

    async def patch(self, job_id: str, tenant: str = "acme", **fields: Any) -> Any:
        return await _answered(super().patch(job_id, tenant, **fields))

    async def cancel(self, job_id: str, tenant: str = "acme") -> Any:
        return await _answered(super().cancel(job_id, tenant))

    async def run_now(self, job_id: str, tenant: str = "acme") -> Any:
        return await _answered(super().run_now(job_id, tenant))

    async def redrive(self, tenant: str = "acme", queue: str = "q", **fields: Any) -> Any:
        return await _answered(super().redrive(tenant, queue, **fields))

    async def pause(self, paused: bool = True, tenant: str = "acme", queue: str = "q") -> None:
        await _answered(super().pause(paused, tenant, queue))

    async def beat(self, token: str, progress: bytes | None = None) -> Any:
        return await _answered(super().beat(token, progress))

    async def complete(self, token: str, outcome: str = "succeeded", **fields: Any) -> Any:
        return await _answered(super().complete(token, outcome, **fields))

    async def define(self, tenant: str, name: str, **fields: Any) -> Any:
        return await _answered(super().define(tenant, name, **fields))

    async def patch_schedule(self, schedule_id: str, tenant: str = "acme", **fields: Any) -> Any:
        return await _answered(super().patch_schedule(schedule_id, tenant, **fields))

    async def delete_schedule(self, schedule_id: str, tenant: str = "acme") -> None:
        await _answered(super().delete_schedule(schedule_id, tenant))

    async def skip_next(self, schedule_id: str, tenant: str = "acme") -> Any:
        return await _answered(super().skip_next(schedule_id, tenant))

    async def trigger(self, schedule_id: str, tenant: str = "acme", **fields: Any) -> Any:
        return await _answered(super().trigger(schedule_id, tenant, **fields))

    async def backfill(self, schedule_id: str, tenant: str = "acme", **fields: Any) -> Any:
        return await _answered(super().backfill(schedule_id, tenant, **fields))


async def _answered(work: Awaitable[T]) -> T:
    try:
        return await work
    except NearUnavailable as error:
        raise AssertionError("what is durable was not answered, because the near tier is away") from error
