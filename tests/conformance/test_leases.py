"""The suite of the lease port: who owns the partitions, and that it is never two.

An adapter joins by a factory in `ADAPTERS`: (folder) -> a maker of processes' leases over one common set of 4 partitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tocsin.errors import LeaseHeld
from tocsin.lease.local import LocalLeases
from tocsin.lease.port import Leases

PARTITIONS = 4


def local(folder: Path) -> Callable[[], Leases]:
    return lambda: LocalLeases(folder, PARTITIONS)


ADAPTERS: dict[str, Callable[[Path], Callable[[], Leases]]] = {"local": local}


@pytest.fixture(params=sorted(ADAPTERS))
async def process(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], Leases]]:
    """Makes the leases of one more process; all are released at the end."""
    make_one = ADAPTERS[request.param](tmp_path)
    made: list[Leases] = []

    def make() -> Leases:
        made.append(make_one())
        return made[-1]

    yield make
    for leases in made:
        await leases.release()


async def test_a_process_owns_nothing_before_it_has_acquired(process: Callable[[], Leases]) -> None:
    leases = process()
    assert leases.owned() == ()
    await leases.acquire()
    assert leases.owned() == (0, 1, 2, 3)


async def test_acquiring_twice_changes_nothing(process: Callable[[], Leases]) -> None:
    leases = process()
    await leases.acquire()
    await leases.acquire()
    assert leases.owned() == (0, 1, 2, 3)


async def test_a_second_process_is_refused_and_owns_nothing(process: Callable[[], Leases]) -> None:
    first, second = process(), process()
    await first.acquire()
    with pytest.raises(LeaseHeld):
        await second.acquire()
    assert second.owned() == ()
    assert first.owned() == (0, 1, 2, 3)


async def test_what_is_released_can_be_acquired_by_another(process: Callable[[], Leases]) -> None:
    first, second = process(), process()
    await first.acquire()
    await first.release()
    await first.release()
    assert first.owned() == ()
    await second.acquire()
    assert second.owned() == (0, 1, 2, 3)
    with pytest.raises(LeaseHeld):
        await first.acquire()
