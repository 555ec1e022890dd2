"""Due sets in Redis."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.model.timer import Due, TimerKey
from tocsin.near.port import Cut
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.scripts import Scripts
from tocsin.near.redis.take import Taker


class DueSets:
    """Members that wait for their time; `limit` is the most that a tenant keeps per partition and lane."""

    def __init__(self, scripts: Scripts, keys: Keys, taker: Taker, limit: int) -> None:
        raise NotImplementedError

    async def return_taken(self, partitions: Sequence[int]) -> None:
        raise NotImplementedError

    async def offer(self, dues: Sequence[Due]) -> list[Due]:
        raise NotImplementedError

    async def drop(self, dues: Sequence[Due]) -> None:
        raise NotImplementedError

    async def restore(self, dues: Sequence[Due]) -> None:
        raise NotImplementedError

    async def remove(self, job_ids: Sequence[str]) -> None:
        raise NotImplementedError

    async def cuts(self, partitions: Sequence[int]) -> list[Cut]:
        raise NotImplementedError

    async def move_cut(self, cut: Cut, from_time: int | None, after: TimerKey | None) -> None:
        raise NotImplementedError

    async def count(self, partitions: Sequence[int]) -> int:
        raise NotImplementedError
