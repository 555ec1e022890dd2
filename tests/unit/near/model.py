"""What the state machines of the near tier have in common."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from tocsin.clock import ManualClock, SeededEntropy
from tocsin.model.ids import new_ids

T = TypeVar("T")

# Few jobs, so that the same one comes again in another state.
JOBS = new_ids(24, 1_772_000_000_000, SeededEntropy(7))


def run(call: Coroutine[Any, Any, T]) -> T:
    """The answer of a call that never suspends, as those of the tier in memory."""
    try:
        call.send(None)
    except StopIteration as ended:
        return ended.value
    call.close()
    raise AssertionError("a call of the tier in memory suspended")


def fresh_clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 1, 9, tzinfo=UTC))
