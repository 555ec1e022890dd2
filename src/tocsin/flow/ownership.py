"""Ownership: which partitions this process may act for now. Makes a fleet's `Leases` of the registry's sessions.

        [Renewer] every 3 s ──────────── session ────────────┐
            │ gone: drop all, begin anew                      ▼
        [Owner] every second ◄── map ── (registry) ◄── map ── [coordinate]: plans, revokes; one in the fleet
            │ release what is not ours, claim what is
            ▼
        [custody] rebuilds what the claimed partitions need in the near tier; what is there already is dispatched meanwhile

What a crash leaves: the session, which stands until its time to live is over. Then everything it held is free.

**How long nobody fires for a partition** after its node has died, at worst: 10 s until the session is over + 1 s until the coordinator
looks (if it died too: until another campaigns, which plans in the same pass) + 1 s until the new owner follows the map and
claims, after which what is in Redis already fires + below 1 s for the statements = 13 s of the 15 s that are promised. A node that
stops in order ends its session itself: 2 s and the statements. A node that lives but hangs is renewed for up to 3 s more.

**Whom to trust**: a session is renewed every 3 s, and only if the dispatcher made a pass in the last 3 s, so that a node that hangs
loses its partitions to one that does not. `owned` counts from the moment the renewal was *sent*, on the clock that goes on while
a machine is suspended, and for 5 s, half the time to live: a process that was stopped owns nothing when it wakes, before it has
asked anybody. Whoever has lost a session and owns nothing has a dispatcher that passes again, since it finds nothing to do; so a new
session begins only when the store takes writes, lest a node that cannot fire be given partitions again and again.

**Two owners at once** can be all the same: one looked at `owned`, was stopped for a minute, and goes on with what it was doing. That
harms nobody, because owning only says who does the work; what may be done is decided by each write:

- fire: the job's row changes only at the version and due time that the timer names; the second finds it QUEUED already.
- push: a job stands in its line once, by its ID; and if it has been claimed meanwhile, the claim that finds it again is refused by its row.
- remove (out of a due set): what is removed has fired, or is void; and its timer still waits for the recheck.
- recheck: moves on what is alive first, then deletes exactly the timers it has read; a timer that is gone is deleted twice without harm.
  A floor only ever says that buckets have been read through, whoever read them.
- sweep (schedules): the schedule's row changes only at the serial number that was read; the second finds another and decides anew.
- archive: deletes what is past its time, which it is for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tocsin import telemetry
from tocsin.clock import Clock, Entropy
from tocsin.errors import LeasesUnavailable
from tocsin.lease.port import Assignment, Facts, Registry, SessionId, Vitals, new_session_id
from tocsin.service import Alarm
from tocsin.telemetry import log

RENEW_EVERY_S = 3.0
DISPATCHED_WITHIN_S = 3.0
TRUSTED_S = 5.0
LOOK_EVERY_S = 1.0

# Told of partitions; must not wait.
Told = Callable[[tuple[int, ...]], None]


@dataclass(slots=True, kw_only=True)
class Session:
    """A session as this process knows it: trusted until `trusted_until_s` (elapsed clock), and what it has claimed."""

    session: SessionId
    trusted_until_s: float
    renew_at_s: float
    held: set[int] = field(default_factory=set)


class Ownership:
    """This process's part of the fleet. Fulfils `tocsin.lease.port.Leases` for the stages.

    `lost` is told of partitions that are not ours any more, before they are given back: it stops work on them, without waiting.
    `dispatched_s` says when the dispatcher last made a pass (elapsed seconds), None if it never has; without it (virtual time, a
    process that dispatches nothing) the session is renewed unconditionally. `useful` says whether a new session is of use: not while
    the store takes no writes. `offset_ms` is the clock's distance from the store's.
    """

    def __init__(
        self,
        registry: Registry,
        facts: Facts,
        clock: Clock,
        entropy: Entropy,
        *,
        lost: Told,
        dispatched_s: Callable[[], float | None] | None = None,
        useful: Callable[[], bool] = lambda: True,
        offset_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.registry, self.facts, self.clock = registry, facts, clock
        self._entropy, self._lost = entropy, lost
        self._dispatched_s, self._useful, self._offset_ms = dispatched_s, useful, offset_ms
        self._session: Session | None = None
        self._stopped = False

    async def acquire(self) -> None:
        """Open the session; partitions follow when the map gives some. Raises LeasesUnavailable."""
        if self._session is None:
            await self.open()

    def owned(self) -> tuple[int, ...]:
        """The partitions that are certain to be ours at this moment."""
        session = self.trusted()
        return tuple(sorted(session.held)) if session is not None else ()

    async def release(self) -> None:
        """Give everything back at once; nothing is taken any more. A second call does nothing."""
        self._stopped = True
        session, self._session = self._session, None
        if session is None:
            return
        self._tell_lost(session.held)
        try:
            await self.registry.end(session.session)
        except LeasesUnavailable as error:
            log.warning("session_not_ended", session=session.session, error=str(error), free_in_at_most_s=10)
        else:
            log.info("session_ended", session=session.session)

    @property
    def session(self) -> Session | None:
        """The session, whether or not it can be trusted now."""
        return self._session

    def trusted(self) -> Session | None:
        """The session, if a renewal of the last seconds has succeeded."""
        session = self._session
        return session if session is not None and self.clock.elapsed_s() < session.trusted_until_s else None

    @property
    def stopped(self) -> bool:
        """Whether everything has been given back for good."""
        return self._stopped

    def dispatching(self) -> bool:
        """Whether the dispatcher has made a pass of late."""
        if self._dispatched_s is None:
            return True
        passed_s = self._dispatched_s()
        return passed_s is not None and self.clock.elapsed_s() - passed_s <= DISPATCHED_WITHIN_S

    def useful(self) -> bool:
        """Whether a new session would be of use."""
        return self._useful()

    async def open(self) -> None:
        """Begin a session, under a name of its own."""
        sent_s = self.clock.elapsed_s()
        session = new_session_id(self._entropy)
        await self.registry.open(session, self.facts, self._vitals())
        if self._stopped:
            # Stopped while the call was under way: nobody would end this session.
            await self.registry.end(session)
            return
        self._session = Session(session=session, trusted_until_s=sent_s + TRUSTED_S, renew_at_s=sent_s + RENEW_EVERY_S)
        log.info("session_opened", session=session, node=self.facts.node)

    async def renew(self, session: Session) -> bool:
        """Renew the session; if it is gone, everything is dropped at once, and False is answered."""
        sent_s = self.clock.elapsed_s()
        stands = await self.registry.renew(session.session, self._vitals())
        if stands:
            session.trusted_until_s, session.renew_at_s = sent_s + TRUSTED_S, sent_s + RENEW_EVERY_S
        elif self._session is session:
            self._session = None
            telemetry.SESSIONS_LOST.inc()
            log.warning("session_lost", session=session.session, partitions=len(session.held), next="opens a new one")
            self._tell_lost(session.held)
        return stands

    def drop(self, session: Session, partitions: set[int]) -> None:
        """Own these no longer, and stop the work on them."""
        dropped = session.held & partitions
        session.held -= dropped
        self._tell_lost(dropped)

    def _tell_lost(self, partitions: set[int]) -> None:
        if partitions:
            self._lost(tuple(sorted(partitions)))

    def _vitals(self) -> Vitals:
        return Vitals(clock_offset_ms=self._offset_ms())


@dataclass(frozen=True, slots=True)
class Renewed:
    """What one pass did."""

    opened: bool = False
    renewed: bool = False
    more: bool = False


class Renewer(Alarm):
    """Keeps the session standing, while the dispatcher is alive."""

    name = "renew"

    def __init__(self, ownership: Ownership) -> None:
        super().__init__(ownership.clock)
        self._ownership = ownership

    async def step(self) -> Renewed:
        """One renewal if it is time; a new session where there is none."""
        ownership = self._ownership
        if ownership.stopped or not ownership.dispatching():
            return Renewed()
        session = ownership.session
        if session is not None and ownership.clock.elapsed_s() < session.renew_at_s:
            return Renewed()
        if session is not None and await ownership.renew(session):
            return Renewed(renewed=True)
        if ownership.stopped or not ownership.useful():
            return Renewed()
        await ownership.open()
        return Renewed(opened=True)

    async def next_at(self) -> int | None:
        session = self._ownership.session
        return wall_ms(self._ownership.clock, session.renew_at_s) if session is not None else None


@dataclass(frozen=True, slots=True)
class Followed:
    """What one pass did."""

    released: int = 0
    claimed: int = 0
    more: bool = False


class Owner(Alarm):
    """Follows the map: gives back what is not this process's any more, claims what is.

    `gained` is told of what was claimed: whoever is told rebuilds its near state, also if it had been ours a moment before. That
    may take long, and giving back may not, so it is another stage's work.
    """

    name = "own"

    def __init__(self, ownership: Ownership, gained: Told) -> None:
        super().__init__(ownership.clock)
        self._ownership, self._gained = ownership, gained
        self._map = Assignment()
        self._look_at_s = 0.0

    def hurry(self) -> None:
        """The map has changed: look now."""
        self._look_at_s = 0.0
        self.ring()

    async def step(self) -> Followed:
        """One look at the map and at what the registry says that we hold."""
        ownership = self._ownership
        now_s, session = ownership.clock.elapsed_s(), ownership.trusted()
        telemetry.PARTITIONS_OWNED.set(len(ownership.owned()))
        if session is None or now_s < self._look_at_s:
            return Followed()
        registry = ownership.registry
        self._map = await registry.assignment(self._map.version) or self._map
        registered = {holding.partition for holding in await registry.holdings(session.session)}
        mine = {partition for partition, owner in self._map.owners.items() if owner == session.session}
        # Also what the registry has forgotten (a standby that took over behind its primary), and what a claim without an answer
        # has taken for us.
        ownership.drop(session, session.held - (mine & registered))
        surplus = sorted(registered - mine)
        if surplus:
            await registry.release(session.session, surplus)
            log.info("partitions_released", partitions=len(surplus), map_version=self._map.version)
        claimed = await self._claim(session, sorted(mine - session.held))
        self._look_at_s = now_s + LOOK_EVERY_S
        return Followed(released=len(surplus), claimed=claimed)

    async def next_at(self) -> int | None:
        return wall_ms(self._ownership.clock, self._look_at_s) if self._ownership.trusted() is not None else None

    async def _claim(self, session: Session, wanted: list[int]) -> int:
        if not wanted:
            return 0
        won = await self._ownership.registry.claim(session.session, wanted, self._map.version)
        if self._ownership.session is not session:
            # The session was lost, or everything given back, while the claim was under way: it took nothing that lasts.
            return 0
        if won:
            session.held |= won
            log.info("partitions_claimed", partitions=len(won), map_version=self._map.version)
            self._gained(tuple(sorted(won)))
        return len(won)


def wall_ms(clock: Clock, at_s: float) -> int:
    """An instant of the elapsed clock as the wall clock will show it, unless that steps."""
    return clock.now_ms() + round((at_s - clock.elapsed_s()) * 1000)
