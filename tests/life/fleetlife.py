"""The life of a job in a fleet: the machine over several processes, one store and one near tier.

To what clients, workers, time and bad luck do comes what only a fleet has: each call and each stage at any process, partitions that
move or have two owners, processes that pause, clocks that differ, a near tier that is lost or away, and stages of several
processes between whose writes others write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.life.disk import Crashed
from tests.life.fleetworld import NODES, PROCESSES, FleetWorld, Member
from tests.life.invariant import look
from tests.life.machine import LUCK, Life, Luck
from tests.life.schedulelife import LifeOfSchedules
from tests.life.world import World
from tocsin.errors import NearUnavailable, ServerUnavailable
from tocsin.flow.count import LATEST_MS
from tocsin.flow.timekeeper import LARGEST_OFFSET_MS
from tocsin.model.job import PENDING

T = TypeVar("T")

STAGES = (
    "dispatch",
    "load",
    "rescue",
    "unpark",
    "recheck",
    "custody",
    "custody",
    "reckon",
    "count",
    "archive",
    "pulse",
)
RACERS = ("dispatch", "dispatch", "load", "rescue", "unpark", "recheck", "recheck", "custody")
NODE = st.integers(0, NODES - 1)
GOOD: Luck = ("good", 0)
# So many counts may find jobs on the move.
ROUNDS = 6


class FleetLife(Life):
    """Rules over a `FleetWorld`. Whose turn it is changes after every rule."""

    world: FleetWorld
    drift_ms = LARGEST_OFFSET_MS

    def make_world(self, seed: int) -> World:
        return FleetWorld(seed=seed, partitions=2, due_limit=6, line_limit=4, page=3, drift_ms=self.drift_ms)

    # who owns what

    @rule(partition=st.integers(0, 1), to=NODE, also=st.sampled_from((False, False, True)))
    def a_partition_moves(self, partition: int, to: int, also: bool) -> None:
        self.world.give(partition, to, also=also)

    @rule(member=NODE)
    def a_process_pauses(self, member: int) -> None:
        self.world.members[member].paused = True

    @precondition(lambda self: any(member.paused for member in self.world.members))
    @rule(name=st.sampled_from(RACERS), luck=LUCK)
    def a_process_wakes_up(self, name: str, luck: Luck) -> None:
        """Its first pass is made with what it believed when it fell asleep."""
        member = next(member for member in self.world.members if member.paused)
        self.world.turn_to(member.number)
        self._do(getattr(member, name).step(), luck)
        woken = self.world.members[member.number]
        woken.paused = False
        woken.learn()

    @rule(leader=NODE)
    def another_leads(self, leader: int) -> None:
        self.world.leader = leader

    # the near tier, clocks

    @rule()
    def the_near_tier_is_lost(self) -> None:
        self.world.shared.lose()

    @rule(away=st.sampled_from((True, False, False)))
    def the_near_tier_goes_away_or_comes_back(self, away: bool) -> None:
        self.world.shared.away = away

    @rule(member=st.integers(0, PROCESSES - 1), error_ms=st.integers(-LARGEST_OFFSET_MS, LARGEST_OFFSET_MS))
    def a_machines_clock_goes_wrong(self, member: int, error_ms: int) -> None:
        self.world.drift(self.world.members[member], min(max(error_ms, -self.drift_ms), self.drift_ms))

    # stages

    @rule(name=st.sampled_from(STAGES), times=st.sampled_from((1, 1, 3)), at=NODE, luck=LUCK)
    def step(self, name: str, times: int, at: int, luck: Luck) -> None:
        self.world.turn_to(at)
        if self.world.members[at].paused:
            return
        for _ in range(times):
            self._do(getattr(self.world.members[at], name).step(), luck)

    @rule(ms=st.sampled_from((1, 40, 999, 4_999, 13_000)))
    def tick(self, ms: int) -> None:
        """Time passes while the processes that are not paused run: they write once a second, so this is no gap for them."""
        left = ms
        while left > 0:
            self.world.clock.advance(min(left, 1_000) / 1_000)
            left -= 1_000
            for member in self.world.members:
                if not member.paused:
                    self._run(member.pulse.step())

    @rule(
        first=st.sampled_from(RACERS),
        second=st.sampled_from(RACERS),
        third=st.sampled_from(("claim", "claim", "complete", "create")),
        moves=st.lists(st.tuples(st.integers(0, 1), NODE, st.integers(0, 12)), max_size=2),
        loss=st.sampled_from((None, None, None, 3, 9)),
        luck=LUCK,
    )
    def at_once(
        self,
        first: str,
        second: str,
        third: str,
        moves: list[tuple[int, int, int]],
        loss: int | None,
        luck: Luck,
    ) -> None:
        """Two nodes and a client act at once: at every point of one the others go on, and partitions move, too. The client's
        process, or one of the nodes, has the bad luck."""
        world = self.world
        works: list[tuple[Member, Awaitable[Any]]] = [
            (member, getattr(member, name).step())
            for member, name in zip(world.members, (first, second), strict=False)
            if not member.paused
        ]
        unlucky = world.members[world.turn]
        world.turn_to(PROCESSES - 1)
        works.append((world.members[-1], self._third(third)))
        answers = self._run(self._together(works, moves, loss, unlucky, luck))
        for (member, _), answer in zip(works, answers, strict=True):
            if isinstance(answer, Crashed):
                world.turn_to(member.number)
                self._restart()
            elif isinstance(answer, ServerUnavailable):
                assert luck[0] != "good" or isinstance(answer, NearUnavailable), answer
            elif isinstance(answer, BaseException):
                raise answer
        if third == "claim" and isinstance(answers[-1], list):
            self._got(answers[-1], None)
        elif third == "create" and isinstance(answers[-1], list):
            self._got_made(answers[-1])

    def _third(self, what: str) -> Awaitable[Any]:
        if what == "complete" and self.tokens:
            return self.world.complete(self.tokens[-1].lease_token)
        if what == "create":
            return self.world.try_create()
        return self.world.claim(10, worker="w5")

    async def _together(
        self,
        works: list[tuple[Member, Awaitable[Any]]],
        moves: list[tuple[int, int, int]],
        loss: int | None,
        unlucky: Member,
        luck: Luck,
    ) -> list[Any]:
        async def moved(partition: int, to: int, points: int) -> None:
            for _ in range(points):
                await asyncio.sleep(0)
            self.world.give(partition, to)

        async def lost(points: int) -> None:
            for _ in range(points):
                await asyncio.sleep(0)
            self.world.shared.lose()

        for member in self.world.members:
            member.yields(True)
        if luck[0] == "crash":
            unlucky.fault.after(luck[1])
        try:
            others = [moved(*move) for move in moves] + ([] if loss is None else [lost(loss)])
            answers = await asyncio.gather(*(work for _, work in works), *others, return_exceptions=True)
        finally:
            unlucky.fault.clear()
            for member in self.world.members:
                member.yields(False)
        for other in answers[len(works) :]:
            assert other is None, other
        return answers[: len(works)]

    @precondition(lambda self: not self.world.shared.troubled and not any(one.paused for one in self.world.members))
    @rule(count=st.integers(1, 5), points=st.integers(0, 16))
    def a_node_dies_in_its_batch(self, count: int, points: int) -> None:
        """As soon as another node owns its partitions they fire again, the jobs in the middle of the batch included."""
        world = self.world
        for partition in range(world.partitions):
            world.give(partition, 0)
        self._run(self._takes_over(world.members[0]))
        self._got_made(self._run(world.try_create(count=count, delay_s=1)))
        world.clock.advance(1.3)
        world.turn_to(0)
        self._do(world.members[0].dispatch.step(), ("crash", points))
        for partition in range(world.partitions):
            world.give(partition, 1)
        world.turn_to(1)
        self._run(world.advance(1))
        self._run(self._all_that_is_due_has_fired())

    async def _takes_over(self, member: Member) -> None:
        """What it owns is rebuilt, and nobody else makes a pass meanwhile, so that others may take it for their own still."""
        while (await member.custody.step()).more:
            pass

    # after every rule, and at the end

    @invariant()
    def all_is_well(self) -> None:
        super().all_is_well()
        if hasattr(self, "world"):
            self.world.turn_to_any()

    def _come_to_an_end(self) -> None:
        self._run(self.world.heal())
        self._run(self.world.advance(2))
        self._run(self._all_that_is_due_has_fired())
        self._run(self._the_figures_become_those_of_the_store())
        super()._come_to_an_end()

    async def _all_that_is_due_has_fired(self) -> None:
        """Each partition has an owner that runs, so whatever was due a second ago, by whosever clock, has fired by now."""
        now = self.world.clock.now_ms() - 1_000
        late = [
            job
            for job in (await look(self.world)).jobs.values()
            if job.status in PENDING and job.due_at <= now and not job.definition.schedule_id
        ]
        assert not late, f"due, and not fired by its owner: {late}"

    async def _the_figures_become_those_of_the_store(self) -> None:
        """Soon after a count that no job has moved since, everybody knows it."""
        world = self.world
        for _ in range(ROUNDS):
            for seconds in (LATEST_MS / 1_000, 2, 2):
                world.clock.advance(seconds)
                await world.settle()
            live = {key: count for key, count in (await world.on.store.jobs.live_counts()).items() if count}
            shared = {key: count for key, count in (await world.shared.ask("counts", (), {})).items() if count}
            known = [{key: member.tally.count(*key) for key in live} for member in world.members]
            if shared == live and all(one == live for one in known):
                return
        raise AssertionError(f"the store has {live}, the near tier {shared}, the processes {known}")

    def _do(self, work: Awaitable[T], luck: Luck = GOOD) -> T | None:
        try:
            return super()._do(work, luck)
        except NearUnavailable:
            if not self.world.shared.troubled:
                raise
            return None


class FleetLifeOfSchedules(FleetLife, LifeOfSchedules):
    """The same with schedules. Clocks agree here: which timing an instant belongs to is told by the time of its edit."""

    drift_ms = 0

    async def _the_figures_become_those_of_the_store(self) -> None:
        """Jobs are always on the move here, and one that moves while the store is counted may count twice until the next count."""
