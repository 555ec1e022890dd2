"""Ready lines in Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tocsin.clock import Clock
from tocsin.model.job import Line
from tocsin.model.timer import Due
from tocsin.near.port import CountKey, Pop, Popped, QueueGate, WorkerSeen
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.scripts import Scripts
from tocsin.near.redis.wakes import Wakes


class ReadyLines:
    """The lines of an installation. Hears `keys.ready_channel`."""

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
        return

    async def push(self, dues: Sequence[Due], *, unpark: bool = False) -> list[Due]:
        raise NotImplementedError

    async def pop(self, wish: Pop) -> Popped:
        raise NotImplementedError

    async def settle(self, request_id: str, claimed: Sequence[tuple[str, int]]) -> None:
        raise NotImplementedError

    async def unpop(self, request_id: str) -> None:
        raise NotImplementedError

    async def wait(self, wish: Pop, timeout_s: float) -> bool:
        raise NotImplementedError

    async def remove(self, job_ids: Sequence[str]) -> None:
        return

    async def configure(self, tenant: str, queue: str, gate: QueueGate) -> None:
        raise NotImplementedError

    async def set_parked(self, line: Line, partition: int, parked: bool) -> None:
        raise NotImplementedError

    async def lines_with_room(self, partitions: Sequence[int]) -> list[Line]:
        raise NotImplementedError

    async def add_counts(self, changes: Mapping[CountKey, int]) -> None:
        raise NotImplementedError

    async def counts(self) -> dict[CountKey, int]:
        raise NotImplementedError

    async def reset_counts(self, counts: Mapping[CountKey, int]) -> None:
        raise NotImplementedError

    async def note_workers(self, seen: Sequence[WorkerSeen]) -> None:
        raise NotImplementedError

    async def workers(self) -> list[WorkerSeen]:
        raise NotImplementedError

    async def ready_count(self, tenant: str, queue: str) -> tuple[int, int | None]:
        raise NotImplementedError

    async def figures(self) -> tuple[int, int]:
        """How many jobs are in lines, and how many in hand, of all."""
        return 0, 0

    def quiesce(self) -> None:
        """Wake every waiting claim; later waits return False at once."""
        return
