"""What this process takes of the due sets, in fair order."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.clock import Clock
from tocsin.model.timer import Due
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.scripts import Scripts
from tocsin.near.redis.wakes import Wakes


class Taker:
    """Takes what is due."""

    def __init__(self, scripts: Scripts, keys: Keys, wakes: Wakes, clock: Clock, weights: dict[str, float]) -> None:
        raise NotImplementedError

    async def take(self, partitions: Sequence[int], now_ms: int, most: int) -> list[Due]:
        raise NotImplementedError

    async def next_due(self, partitions: Sequence[int]) -> int | None:
        raise NotImplementedError

    async def wait(self, timeout_s: float) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        raise NotImplementedError

    def forget(self, partitions: Sequence[int]) -> None:
        raise NotImplementedError
