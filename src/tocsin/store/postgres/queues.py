"""The queues that ever had a job in one database, so that a list over all queues of a tenant knows where to look."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tocsin.model.job import Line
from tocsin.store.postgres.rows import columns
from tocsin.store.postgres.statements import block

_ADD = block("create", "queue_names")
_MOST = 100_000


class Queues:
    """Which of them are known to be written down."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    async def need(self, fetch: Callable[..., Coroutine[Any, Any, list[Any]]], lines: Iterable[Line]) -> None:
        """Write down the queues of these lines that are new here. Outside a transaction: what is known must be committed."""
        fresh = {(line.tenant, line.queue) for line in lines} - self._known
        if fresh:
            await fetch(_ADD, *columns(sorted(fresh), 2))
            if len(self._known) > _MOST:
                self._known.clear()
            self._known |= fresh
