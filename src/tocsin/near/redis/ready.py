"""The ready half of the tier: lines, hands, the executor's pops, waiting claims, and what all processes know together."""

from __future__ import annotations

from tocsin.clock import Clock
from tocsin.near.port import Pop, Popped
from tocsin.near.redis.callbacks import Callbacks
from tocsin.near.redis.hands import Hands
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.known import Known
from tocsin.near.redis.lines import Lines
from tocsin.near.redis.programs import Programs
from tocsin.near.redis.scripts import Scripts
from tocsin.near.redis.waits import Waits
from tocsin.near.redis.wakes import Wakes


class ReadyLines:
    """The lines of an installation, by their parts."""

    def __init__(
        self,
        scripts: Scripts,
        keys: Keys,
        wakes: Wakes,
        clock: Clock,
        weights: dict[str, float],
        *,
        line_limit: int,
        tenant_limit: int,
    ) -> None:
        programs = Programs(scripts, clock)
        self.known = Known(scripts, keys, clock)
        self.waits = Waits(programs, keys, wakes, clock)
        self.lines = Lines(programs, keys, self.waits, line_limit=line_limit, tenant_limit=tenant_limit)
        self.hands = Hands(programs, keys, self.waits)
        self._callbacks = Callbacks(programs, keys, self.hands, self.waits, weights)

    async def pop(self, wish: Pop) -> Popped:
        """Take jobs for a request: a queue's tasks, or callbacks of all."""
        return await (self._callbacks.pop(wish) if wish.queue is None else self.hands.pop(wish))
