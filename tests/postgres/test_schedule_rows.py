"""What no database can hold is refused by itself, and a damaged row spoils no other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.conformance.yard import Yard, fired, skip, step
from tocsin.clock import ManualClock
from tocsin.store.numbers import number_of
from tocsin.store.postgres import PostgresStore
from tocsin.store.schedules import Move, Moved, ScheduleFilter, ScheduleRow
from tocsin.store.settings import TenantRow, TokenRow
from tocsin.wire import Status

MINUTE_MS = 60_000


@pytest.fixture
def yard(store: PostgresStore, clock: ManualClock) -> Yard:
    return Yard(store, clock)


@pytest.mark.parametrize(
    "changes",
    [{"look_at": 2**63}, {"revision": 2**70}, {"spec": "\ud800", "revision": 2}, {"state": "\udfff"}],
    ids=["look_at", "revision", "spec", "state"],
)
async def test_a_move_that_cannot_be_held_is_refused_and_the_others_are_made(
    yard: Yard, store: PostgresStore, changes: dict[str, Any]
) -> None:
    begun = [await yard.begun(f"s{number}") for number in range(5)]
    moves = [fired(row, job, yard.occurrence(row, MINUTE_MS)) for row, job in begun]
    row, job = begun[3]
    moves[3] = fired(row, job, yard.occurrence(row, MINUTE_MS), **changes)
    assert await yard.schedules.move(moves) == [*[Moved.WON] * 3, Moved.REFUSED, Moved.WON]
    assert (await yard.row(row.schedule_id), await yard.status(job.job_id)) == (row, Status.SCHEDULED)
    assert await yard.jobs.states([moves[3].jobs[0].job_id]) == [None]
    assert store.jobs.refused == 1
    assert await yard.move(fired(row, job)) is Moved.WON


async def test_a_job_that_cannot_be_held_has_its_move_refused(yard: Yard) -> None:
    row, job = await yard.begun()
    strange = structs.replace(yard.occurrence(row, MINUTE_MS), definition="\0")
    assert await yard.move(fired(row, job, strange)) is Moved.REFUSED
    assert (await yard.row(row.schedule_id), await yard.status(job.job_id)) == (row, Status.SCHEDULED)


async def test_an_id_that_no_schedule_can_have_is_refused(yard: Yard) -> None:
    row = yard.schedule(schedule_id="sch_1")
    assert await yard.move(Move(schedule_id="sch_1", serial=0, after=row)) is Moved.REFUSED
    await yard.schedules.add_skips([structs.replace(skip(row, 1), schedule_id="sch_1")])
    assert await yard.schedules.skips("sch_1", None, 10) == []


DAMAGE = {
    "no spec": "DELETE FROM specs WHERE schedule = $1",
    "spec": "UPDATE specs SET spec = '\\xff' WHERE schedule = $1",
    "state": "UPDATE schedules SET state = '\\xff' WHERE number = $1",
}


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_row_that_cannot_be_read_is_passed_over_and_counted(yard: Yard, store: PostgresStore, how: str) -> None:
    rows: list[ScheduleRow] = []
    for number in range(3):
        yard.clock.advance(0.001)
        rows.append((await yard.begun(f"s{number}"))[0])
    await store.databases.home.bulk.fetch(DAMAGE[how], number_of(rows[1].schedule_id))
    whole = [rows[2], rows[0]]
    assert await yard.schedules.get([row.schedule_id for row in rows]) == [rows[0], None, rows[2]]
    assert await yard.schedules.named("acme", ["s0", "s1", "s2"]) == [rows[0], None, rows[2]]
    assert await yard.schedules.list_schedules(ScheduleFilter(tenant="acme"), None, 10) == whole
    found = await yard.schedules.overdue(range(4), yard.now + 10 * MINUTE_MS, 10)
    assert sorted(found, key=whole.index) == whole
    assert store.jobs.unreadable == 4
    (job,) = await yard.schedules.waiting(rows[1].schedule_id)
    assert await yard.schedules.of_jobs([job.job_id]) == [(job, None)]


async def test_the_detail_of_a_skip_is_kept_as_far_as_a_database_can_hold_it(yard: Yard) -> None:
    row, _ = await yard.begun()
    await yard.schedules.add_skips([skip(row, 1, detail="a\0b")])
    assert [one.detail for one in await yard.schedules.skips(row.schedule_id, None, 10)] == ["a\ufffdb"]


async def test_a_damaged_skip_and_damaged_settings_spoil_no_other(yard: Yard, store: PostgresStore) -> None:
    row, _ = await yard.begun()
    kept = skip(row, 2)
    await yard.schedules.add_skips([skip(row, 1), kept])
    for name in ("a", "b"):
        await store.settings.put_tenant(TenantRow(name=name), create=True)
        token = TokenRow(token_id=name, tenant="t", name="", secret_sha256=b"s" * 32, scopes=("read",), created_at=1)
        await store.settings.add_token(token)
    fetch = store.databases.home.bulk.fetch
    await fetch("UPDATE skips SET reason = 'boredom' WHERE first = 1")
    await fetch("UPDATE tenants SET quotas = '{' WHERE name = 'a'")
    await fetch("UPDATE tokens SET scopes = 'null' WHERE token_id = 'a'")
    assert await yard.schedules.skips(row.schedule_id, None, 10) == [kept]
    assert [one.name for one in await store.settings.tenants()] == ["b"]
    assert [one.token_id for one in await store.settings.tokens()] == ["b"]
    assert await store.settings.token("a") is None
    assert store.jobs.unreadable == 4


async def test_a_new_spec_is_written_and_an_ordinary_step_leaves_it_alone(yard: Yard, store: PostgresStore) -> None:
    row, job = await yard.begun()
    written = "SELECT xmin::text FROM specs WHERE schedule = $1"
    before = await store.databases.home.reads.fetch(written, number_of(row.schedule_id))
    assert await yard.move(fired(row, job, state="on")) is Moved.WON
    assert await store.databases.home.reads.fetch(written, number_of(row.schedule_id)) == before
    after = step(await yard.row(row.schedule_id), spec="other")
    assert await yard.move(Move(schedule_id=row.schedule_id, serial=2, after=after)) is Moved.WON
    assert await store.databases.home.reads.fetch(written, number_of(row.schedule_id)) != before
    assert await yard.row(row.schedule_id) == after
