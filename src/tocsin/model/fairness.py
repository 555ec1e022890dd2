"""Deficit round robin: how tenants share what there is (Shreedhar and Varghese, "Efficient fair queueing using deficit round
robin", 1996), with weights and with jobs as the unit.

Only tenants that have something to do are in the ring, so idle ones cost nothing and what they do not use flows on. At its
turn a tenant is credited a quantum times its weight and may take that many; what it may not take at once (the pass is full)
it takes at the start of the next pass. Over any stretch in which two tenants stay in the ring their shares differ from their
weights by at most one quantum each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

QUANTUM = 50
# A tenant's turn is worth at least one job, or a ring of tiny weights would spin without serving anybody.
LEAST_WEIGHT = 1 / QUANTUM
MOST_WEIGHT = 1_000.0


class DeficitRing:
    """The tenants that have something to do, in the order of their turns.

    `weights` is shared and read at every turn; a tenant without an entry has weight 1. Use: `turn`, take at most what it
    allows, `done`; until the pass is full or `turn` answers None.
    """

    def __init__(self, weights: dict[str, float], quantum: int = QUANTUM) -> None:
        self._weights = weights
        self._quantum = quantum
        self._deficits: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._deficits

    def __len__(self) -> int:
        return len(self._deficits)

    def __iter__(self) -> Iterator[str]:
        return iter(self._deficits)

    def join(self, tenant: str) -> None:
        """The tenant has something to do: it is last in the ring, unless it is there already."""
        if tenant not in self._deficits:
            self._deficits[tenant] = 0.0

    def leave(self, tenant: str) -> None:
        """The tenant has nothing to do; what it did not use is forfeit."""
        self._deficits.pop(tenant, None)

    def turn(self) -> tuple[str, int] | None:
        """Whose turn it is and how many jobs it may take now (at least one); None: nobody has anything to do."""
        for tenant, deficit in self._deficits.items():
            if deficit < 1.0:
                deficit += max(1.0, self._quantum * self._weights.get(tenant, 1.0))
                self._deficits[tenant] = deficit
            return tenant, int(deficit)
        return None

    def done(self, tenant: str, taken: int, *, dry: bool) -> None:
        """The tenant whose turn it is took `taken` jobs; `dry`: it has no more. It keeps its turn while it may take more."""
        if dry:
            self.leave(tenant)
            return
        rest = self._deficits[tenant] - taken
        self._deficits[tenant] = rest
        if rest < 1.0:
            self._deficits.move_to_end(tenant)


def bounded_weight(weight: float) -> float:
    """A weight as the ring can serve it."""
    return min(max(weight, LEAST_WEIGHT), MOST_WEIGHT)
