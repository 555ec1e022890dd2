"""Moving a whole installation: compared at the end, cut anywhere and repeated, and refused where it may not be."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conformance.installation import Ground, Place, everything, fill, standing, unwatched
from tests.conformance.yard import START
from tests.life.disk import Crashed
from tocsin.clock import ManualClock, SeededEntropy
from tocsin.errors import LeaseHeld, StoreError, StoreMoved
from tocsin.flow.carry import LABELS, Carried, Carrier, Permitted, permit, survey
from tocsin.model.job import TERMINAL, JobState
from tocsin.store.port import Success
from tocsin.store.settings import TenantRow
from tocsin.store.sqlite import open_store
from tocsin.store.transfer import Kind, Mark, Marks, Record, Transfer
from tocsin.wire import Status


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def ground(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Ground]:
    async with standing(request, tmp_path, clock) as made:
        yield made


class Cut:
    """A target whose process dies at the call number `left`: before it is made, or, with `after`, when it was."""

    def __init__(self, target: Transfer, left: int, *, after: bool) -> None:
        self._target, self._left, self._after = target, left, after
        self.name, self.partitions = target.name, target.partitions

    async def marks(self) -> Marks:
        return await self._target.marks()

    async def page(self, kind: Kind, after: Record | None, limit: int) -> list[Record]:
        return await self._target.page(kind, after, limit)

    async def put(self, kind: Kind, records: Sequence[Record]) -> None:
        self._strike(early=True)
        await self._target.put(kind, records)
        self._strike(early=False)

    async def arrive(self, origin: Mark) -> None:
        self._strike(early=True)
        await self._target.arrive(origin)
        self._strike(early=False)

    async def settle(self) -> None:
        self._strike(early=True)
        await self._target.settle()
        self._strike(early=False)

    async def depart(self, to: Mark) -> None:
        raise AssertionError("a target does not depart")

    async def close(self) -> None: ...

    def _strike(self, *, early: bool) -> None:
        if early is self._after:
            return
        if self._left == 0:
            raise Crashed
        self._left -= 1


async def filled(place: Place, clock: ManualClock) -> list[JobState]:
    """Fill a place; its jobs."""
    async with place.store() as store:
        await fill(store, clock)
        return await everything(store)


async def moved(source: Place, target: Place, clock: ManualClock, page: int = 500) -> Carried:
    async with source.transfer() as out, target.transfer() as into:
        return await Carrier(out, into, clock, page=page).carry()


async def test_what_goes_round_all_stores_comes_back_the_same(ground: Ground, clock: ManualClock) -> None:
    kinds = [("sqlite", 4), ("single rows", 8), ("postgresql, two shards", 64), ("postgresql", 4), ("sqlite", 1)]
    places = [await ground.place(kind, str(at), partitions) for at, (kind, partitions) in enumerate(kinds)]
    jobs = await filled(places[0], clock)
    digests = set()
    for source, target in pairwise(places):
        carried = await moved(source, target, clock, page=7)
        assert carried.permitted is Permitted.FRESH
        assert [row.label for row in carried.rows] == list(LABELS)
        assert all(row.same and row.source for row in carried.rows)
        digests.add(tuple((row.source, row.source_digest) for row in carried.rows))
    assert len(digests) == 1
    async with places[-1].store() as store:
        assert {job.job_id for job in await everything(store)} == {job.job_id for job in jobs}
        assert await unwatched(store, 1) == []


async def test_a_move_without_history_leaves_only_what_is_finished_behind(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.file("1"), ground.file("2")
    jobs = await filled(source, clock)
    async with source.transfer() as out, target.transfer() as into:
        rows = {row.label: row for row in (await Carrier(out, into, clock, history=False).carry()).rows}
    assert (rows["finished jobs"].source, rows["finished jobs"].target) == (0, 0)
    assert rows["dead letters"].target == 2
    async with target.store() as store:
        left = {job.job_id for job in await everything(store)}
    gone = {job.status for job in jobs if job.job_id not in left}
    assert gone
    assert gone < TERMINAL


async def test_a_source_is_not_served_after_it_was_moved(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.file("1"), ground.file("2")
    await filled(source, clock)
    await moved(source, target, clock)
    with pytest.raises(StoreMoved, match=r"1/tocsin\.db has been moved to sqlite:.*2/tocsin\.db; serve that one"):
        async with source.store():
            pass
    async with target.store() as store:
        assert await store.settings.tenants()


async def test_a_kept_source_is_served_as_before(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.file("1"), ground.file("2")
    jobs = await filled(source, clock)
    async with source.transfer() as out, target.transfer() as into:
        await Carrier(out, into, clock, keep_source=True).carry()
    for place in (source, target):
        async with place.store() as store:
            assert len(await everything(store)) == len(jobs)


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after it"])
async def test_a_move_cut_at_any_batch_is_ended_by_the_same_move(
    ground: Ground, clock: ManualClock, after: bool
) -> None:
    source = ground.steps("1")
    await filled(source, clock)
    cuts = 0
    while True:
        target = ground.steps(f"to {cuts}", 16)
        async with source.transfer() as out, target.transfer() as into:
            try:
                await Carrier(out, Cut(into, cuts, after=after), clock, page=5).carry()
            except Crashed:
                pass
            else:
                break
        cuts += 1
        clock.step_wall(30.0)
        await moved(source, target, clock, page=5)
        async with source.transfer() as out, target.transfer() as into:
            assert (await out.marks()).moved_to is not None
            assert (await into.marks()).arriving_from is None
            assert (await survey(into)).sums == (await survey(out)).sums
        async with target.store() as store:
            assert await unwatched(store, 16) == []
        source.disk.marks.clear()
    assert cuts == 15  # the mark, thirteen pages, and the mark's end


async def test_a_target_of_single_rows_cut_between_any_two_is_ended_by_the_same_move(
    ground: Ground, clock: ManualClock
) -> None:
    source = ground.steps("1")
    await filled(source, clock)
    target, cuts = ground.steps("2", 2), 0
    while True:
        target.fault.after(cuts * 3)
        try:
            await moved(source, target, clock)
        except Crashed:
            cuts += 1
            async with target.store() as store:
                assert await unwatched(store, 2) == []
        else:
            break
    assert cuts > 40
    async with source.transfer() as out, target.transfer() as into:
        assert (await survey(into)).sums == (await survey(out)).sums


async def test_a_store_that_has_not_wholly_arrived_is_not_served(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.file("1"), ground.file("2")
    await filled(source, clock)
    async with source.transfer() as out, target.transfer() as into:
        with pytest.raises(Crashed):
            await Carrier(out, Cut(into, 5, after=True), clock).carry()
    with pytest.raises(
        StoreMoved, match=r"from sqlite:.*1/tocsin\.db .* has not ended; repeat it \(tocsin move --from"
    ):
        async with target.store():
            pass
    async with source.store() as store:
        assert await store.settings.tenants()
    carried = await moved(source, target, clock)
    assert carried.permitted is Permitted.CUT
    async with target.store() as store:
        assert await store.settings.tenants()


async def test_a_move_that_has_ended_is_not_done_again(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.steps("1"), ground.steps("2")
    await filled(source, clock)
    await moved(source, target, clock)
    async with target.store() as store:
        await store.settings.put_tenant(TenantRow(name="later"), create=True)
    assert await moved(source, target, clock) == Carried(Permitted.ENDED)
    assert "later" in target.disk.tenants


async def test_what_went_on_at_the_source_after_a_cut_arrives_too(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.file("1"), ground.file("2", 8)
    await filled(source, clock)
    async with source.transfer() as out, target.transfer() as into:
        with pytest.raises(Crashed):
            await Carrier(out, Cut(into, 8, after=True), clock).carry()
    async with source.store() as store:
        held = [job for job in await everything(store) if job.status is Status.RUNNING]
        assert await store.jobs.succeed([Success(job_id=held[0].job_id, attempt=1)]) == [True]
    assert all(row.same for row in (await moved(source, target, clock)).rows)


async def test_what_differs_at_the_end_is_said_and_the_source_stays(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.steps("1"), ground.steps("2")
    await filled(source, clock)
    async with source.transfer() as out, target.transfer() as into:
        with pytest.raises(Crashed):
            await Carrier(out, Cut(into, 5, after=True), clock).carry()
    target.disk.tenants["stranger"] = TenantRow(name="stranger")
    with pytest.raises(StoreError, match=r"tenants: 2 read, 3 arrived.*can be served; delete steps:.*2 and repeat"):
        await moved(source, target, clock)
    assert source.disk.marks == {}
    assert set(target.disk.marks) == {"arriving_from"}


async def test_an_account_tells_equal_counts_with_other_contents_apart(ground: Ground, clock: ManualClock) -> None:
    class Forgetful(Cut):
        async def put(self, kind: Kind, records: Sequence[Record]) -> None:
            await self._target.put(kind, [TenantRow(name="other"), *records[1:]] if kind is Kind.TENANTS else records)

    source, target = ground.steps("1"), ground.steps("2")
    await filled(source, clock)
    async with source.transfer() as out, target.transfer() as into:
        with pytest.raises(StoreError, match="tenants: 2 read, 2 arrived with other contents"):
            await Carrier(out, Forgetful(into, -1, after=True), clock).carry()


async def test_a_target_that_has_something_is_refused(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.steps("1"), ground.steps("2")
    await filled(source, clock)
    async with target.store() as store:
        await store.settings.put_tenant(TenantRow(name="there"), create=True)
    with pytest.raises(StoreError, match="is not empty: it has tenants; name a store that does not exist yet"):
        await moved(source, target, clock)
    assert set(target.disk.tenants) == {"there"}
    assert target.disk.marks == {}


async def test_a_target_that_another_move_fills_is_refused(ground: Ground, clock: ManualClock) -> None:
    source, other, target = (ground.steps(name) for name in "123")
    await filled(source, clock)
    await filled(other, clock)
    async with other.transfer() as out, target.transfer() as into:
        with pytest.raises(Crashed):
            await Carrier(out, Cut(into, 5, after=True), clock).carry()
    with pytest.raises(StoreError, match=r"steps:.*2 is being moved to this target, and that has not ended"):
        await moved(source, target, clock)


async def test_a_source_that_is_not_whole_or_gone_is_refused(ground: Ground, clock: ManualClock) -> None:
    source, second, third = (ground.steps(name) for name in "123")
    await filled(source, clock)
    async with source.transfer() as out, second.transfer() as into:
        with pytest.raises(Crashed):
            await Carrier(out, Cut(into, 5, after=True), clock).carry()
    with pytest.raises(StoreMoved, match="is not whole"):
        await moved(second, third, clock)
    await moved(source, second, clock)
    with pytest.raises(StoreMoved, match=r"was moved to steps:.*2 at 2027-.*; move it on from there"):
        await moved(source, third, clock)
    async with source.transfer() as out:
        with pytest.raises(StoreMoved, match="move it on from there"):
            await permit(out, None)


async def test_a_damaged_definition_is_carried_as_it_is(ground: Ground, clock: ManualClock) -> None:
    source, target = ground.file("1"), ground.file("2")
    jobs = await filled(source, clock)
    database = sqlite3.connect(source.path)
    with database:
        database.execute("UPDATE bodies SET doc = '{\"damaged' WHERE id = ?", (jobs[0].job_id,))
    database.close()
    assert all(row.same for row in (await moved(source, target, clock)).rows)
    database = sqlite3.connect(target.path)
    assert database.execute("SELECT doc FROM bodies WHERE id = ?", (jobs[0].job_id,)).fetchall() == [('{"damaged',)]
    database.close()


async def test_a_file_that_is_open_elsewhere_is_refused(ground: Ground, clock: ManualClock) -> None:
    place = ground.file("1")
    store = await open_store(place.path, clock, partitions=4, entropy=SeededEntropy(1))
    try:
        with pytest.raises(LeaseHeld, match="is open in another process; stop its server"):
            async with place.transfer():
                pass
    finally:
        await store.close()
