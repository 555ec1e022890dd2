"""Several nodes of a fleet in one process, on one clock that the test moves, over a registry that they share.

After every step of every node it is checked what must never be otherwise: a partition is in one session's hands in the registry, and
no two nodes that may be trusted own it. A revoked session's node is the exception: it hears of that at its next renewal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tests.life.memoryregistry import Book, MemoryRegistry
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import LeasesUnavailable
from tocsin.flow.coordinate import Coordinator
from tocsin.flow.ownership import Owner, Ownership, Renewer
from tocsin.lease.port import SESSION_TTL_S, Facts, Registry, SessionId
from tocsin.service import Stage

PARTITIONS = 8
# How long a loop rests at most.
TICK_S = 0.5


class Node:
    """One process: its stages, and what they told it."""

    def __init__(self, fleet: Fleet, registry: Registry, name: str, number: int, roles: tuple[str, ...]) -> None:
        self.registry, self.name = registry, name
        self.clock = fleet.clock
        self.lost: list[int] = []
        self.gained: list[int] = []
        self.paused = self.hung = False
        self.useful = True
        self.stuck: set[str] = set()  # the stages that make no pass
        self._passed_s = self.clock.elapsed_s()
        self.ownership = Ownership(
            registry,
            Facts(node=name, roles=roles, version="1", started_at=self.clock.now_ms()),
            self.clock,
            SeededEntropy(number),
            lost=self.lost.extend,
            dispatched_s=lambda: self._passed_s,
            useful=lambda: self.useful,
        )
        self.own = Owner(self.ownership, self.gained.extend)
        self.coordinate = Coordinator(self.ownership, PARTITIONS, self.own.hurry)
        self.stages: Sequence[Stage] = [Renewer(self.ownership), self.coordinate, self.own]

    @property
    def session(self) -> SessionId | None:
        """The session's ID."""
        session = self.ownership.session
        return session.session if session is not None else None

    def owned(self) -> set[int]:
        """What it would find if it looked now."""
        return set(self.ownership.owned())

    def dispatch(self) -> None:
        """A pass of the dispatcher, unless that hangs."""
        if not self.hung:
            self._passed_s = self.clock.elapsed_s()


class Fleet:
    """Nodes, their clock and their registry. `make` opens one more way to the registry, `advance` lets its time pass."""

    def __init__(
        self, make: Callable[[], Awaitable[Registry]], clock: ManualClock, advance: Callable[[float], Awaitable[None]]
    ) -> None:
        self._make, self.clock, self._advance = make, clock, advance
        self.nodes: list[Node] = []
        self._count = 0
        self.watch: Registry | None = None
        # Sessions that the registry has ended and whose nodes may not know it yet.
        self.revoked: set[SessionId] = set()

    async def start(self, name: str | None = None, roles: tuple[str, ...] = ("node",)) -> Node:
        """One more node; it has its session."""
        self._count += 1
        node = Node(self, await self._make(), name or f"n{self._count}", self._count, roles)
        self.watch = self.watch or await self._make()
        await node.ownership.acquire()
        self.nodes.append(node)
        return node

    def kill(self, node: Node) -> None:
        """It is no more, and says nothing to anybody."""
        self.nodes.remove(node)

    async def run(self, seconds: float, until: Callable[[], bool] | None = None) -> float:
        """Let time pass, at most until something is so; the seconds that passed."""
        start_s = self.clock.elapsed_s()
        while True:
            await self.settle()
            passed_s = self.clock.elapsed_s() - start_s
            if (until is not None and until()) or passed_s >= seconds:
                return passed_s
            await self._advance(TICK_S)

    async def settle(self) -> None:
        """A pass of every stage of every node that runs."""
        for node in list(self.nodes):
            if node.paused:
                continue
            node.dispatch()
            for stage in node.stages:
                if stage.name in node.stuck:
                    continue
                try:
                    while (await stage.step()).more:
                        self.check_owners()
                except LeasesUnavailable:
                    continue  # as the loop does: the next pass tries again
                self.check_owners()
            await self.check_holders()

    def check_owners(self) -> set[tuple[int, SessionId | None]]:
        """No two own a partition, at any instant; what is owned, and by whom."""
        owned = [
            (partition, node.session)
            for node in self.nodes
            if node.session not in self.revoked
            for partition in node.ownership.owned()
        ]
        assert len({partition for partition, _ in owned}) == len(owned), f"two own a partition: {sorted(owned)}"
        return set(owned)

    async def check_holders(self) -> None:
        """What is owned is held in the registry, by one session."""
        assert self.watch is not None
        try:
            holdings = await self.watch.holdings()
        except LeasesUnavailable:
            return
        assert len({holding.partition for holding in holdings}) == len(holdings), "two hold a partition"
        assert self.check_owners() <= {(holding.partition, holding.session) for holding in holdings}, (
            "owned but not held"
        )

    def all_owned(self, without: Node | None = None) -> bool:
        """Whether every partition has an owner; `without` a node that is not counted."""
        return set().union(*(node.owned() for node in self.nodes if node is not without)) == set(range(PARTITIONS))

    async def chief(self) -> Node:
        """The node that coordinates."""
        assert self.watch is not None
        session = await self.watch.coordinator()
        return next(node for node in self.nodes if node.session == session)


def memory_fleet() -> tuple[Fleet, Book]:
    """A fleet over the registry in memory, and its book."""
    clock = ManualClock()
    book = Book(clock, SESSION_TTL_S)

    async def make() -> Registry:
        return MemoryRegistry(book)

    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    return Fleet(make, clock, advance), book
