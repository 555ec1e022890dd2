"""Sweep: every active schedule has one occurrence ahead, whatever has happened; what is wrong with one is no other's misfortune."""

import asyncio
import sqlite3
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from msgspec import structs

from tests.flow.ledgers import all_jobs, sound, state_of
from tests.flow.recurring import TENANT, change, define, jobs_of, put, skips_of
from tests.life.sqliteworld import SqliteWorld
from tests.life.world import World
from tocsin import roles
from tocsin.clock import ManualClock, SystemEntropy
from tocsin.config import Settings
from tocsin.errors import Refused
from tocsin.flow.health import Health
from tocsin.flow.horizon import due_of
from tocsin.model.schedule import encode
from tocsin.model.zones import Zones
from tocsin.store.port import Change
from tocsin.store.schedules import Move, Moved
from tocsin.telemetry import REGISTRY
from tocsin.wire import Status

MINUTELY = {"cron": "* * * * *"}
NINE = {"cron": "0 9 * * *", "time_zone": "America/Vancouver"}


def _repairs(what):
    return REGISTRY.get_sample_value("tocsin_schedule_repairs_total", {"what": what}) or 0


def _status(status):
    return REGISTRY.get_sample_value("tocsin_schedules", {"status": status})


def zones(version, hours):
    """Zone data by which every zone is so far from UTC."""
    return Zones(version, lambda name: timezone(timedelta(hours=hours)))


async def sweep(world):
    """One round of the sweep, now."""
    world.on.sweep._next_at = world.on.sweep._round_at = 0
    while (await world.on.sweep.step()).more:
        pass


async def rewrite(world, schedule_id, *, spec=None, look_at=None, **changes):
    """Write what no step would: fields of a schedule's state, or its whole texts."""
    row, state = await state_of(world, schedule_id)
    text = changes.pop("state", None)
    after = structs.replace(
        row,
        serial=row.serial + 1,
        spec=row.spec if spec is None else spec,
        state=encode(structs.replace(state, **changes)) if text is None else text,
        look_at=row.look_at if look_at is None else look_at,
    )
    move = Move(schedule_id=schedule_id, serial=row.serial, after=after)
    assert await world.on.store.schedules.move([move]) == [Moved.WON]


# --- repairs ----------------------------------------------------------------------------------------------------------


async def test_a_job_that_is_missing_is_made_again(world):
    made = await define(world, **MINUTELY)
    (job,) = await jobs_of(world, made)
    del world.disk.jobs[job.job_id]
    await world.on.near.remove([job.job_id])
    before = _repairs("job missing")
    await world.advance(200)
    assert _repairs("job missing") == before + 1
    await sound(world, made.schedule_id, since=world.clock.now_ms() - 100_000)
    assert [one[3] for one in await skips_of(world, made)] in ([], ["missed"])
    assert len(await world.claim(10)) >= 1


async def test_an_occurrence_whose_job_is_lost_is_made_again_once_and_fires(tmp_path):
    world = SqliteWorld(tmp_path)
    await world.start()
    made = await define(world, cron="0 * * * *")
    (lost,) = await jobs_of(world, made)
    await world.stop()
    with sqlite3.connect(tmp_path / "tocsin.db") as file:
        file.execute("DELETE FROM jobs WHERE id = ?", (lost.job_id,))
    file.close()
    before = _repairs("job missing")
    await world.start()
    await world.advance(40 * 60)
    assert _repairs("job missing") == before + 1
    assert [job.status for job in await jobs_of(world, made)] == [Status.QUEUED, Status.SCHEDULED]
    assert await skips_of(world, made) == []
    await world.stop()


async def test_a_job_that_has_moved_on_by_itself_is_passed_over(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    (job,) = await jobs_of(world, made)
    await world.on.store.jobs.fire([due_of(job)])
    before = _repairs("job moved on")
    await world.advance(200)
    assert _repairs("job moved on") == before + 1
    first, *_ = await jobs_of(world, made)
    assert first.job_id == job.job_id
    await sound(world, made.schedule_id, since=world.clock.now_ms() - 200_000)


async def test_one_that_was_cancelled_past_its_schedule_is_a_skip(any_world):
    world = any_world
    made = await define(world, cron="0 * * * *")
    (job,) = await jobs_of(world, made)
    after = replace(job, status=Status.CANCELLED, finished_at=world.clock.now_ms())
    await world.on.store.jobs.change([Change(before=job, after=after)])
    await sweep(world)
    assert [(count, why) for _, _, count, why in await skips_of(world, made)] == [(1, "skipped_by_user")]
    await sound(world, made.schedule_id)


async def test_one_that_has_none_ahead_gets_one_and_what_passed_meanwhile_is_missed(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    (job,) = await jobs_of(world, made)
    after = replace(job, status=Status.CANCELLED, finished_at=world.clock.now_ms())
    await world.on.store.jobs.change([Change(before=job, after=after)])
    await rewrite(world, made.schedule_id, next_at=None, job_id=None, fire_at=None)
    world.clock.advance(300)
    await sweep(world)
    await world.settle()
    assert [(count, why) for _, _, count, why in await skips_of(world, made)] == [(4, "missed")]
    await sound(world, made.schedule_id, since=world.clock.now_ms() - 300_000)


async def test_a_pause_whose_end_has_come_ends(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    await change(world, made, paused=True, pause_until="2026-12-05T03:40:30Z", cron="0 * * * *")
    await world.advance(640)
    assert (await world.on.present.get(TENANT, made.schedule_id)).status == "active"
    await world.advance(120)
    row, state = await state_of(world, made.schedule_id)
    assert (row.status, state.pause_until) == ("active", None)
    await sound(world, made.schedule_id)


async def test_a_sweep_that_somebody_else_is_ahead_of_has_mended_nothing():
    world = World(yielding=True)
    await world.start()
    made = await define(world, **MINUTELY)
    (job,) = await jobs_of(world, made)
    await world.on.store.jobs.fire([due_of(job)])
    before = _repairs("job moved on")
    row, _ = await state_of(world, made.schedule_id)
    mended = await asyncio.gather(*(world.on.sweep._look([row]) for _ in range(4)))
    assert sum(mended) == 1
    assert _repairs("job moved on") == before + 1
    await sound(world, made.schedule_id)


async def test_a_sweep_that_looks_while_things_go_well_writes_nothing(any_world):
    world = any_world
    made = [await define(world, f"s{number}", **MINUTELY) for number in range(5)]
    await world.advance(60)
    rows = [await state_of(world, one.schedule_id) for one in made]
    await sweep(world)
    assert [await state_of(world, one.schedule_id) for one in made] == rows


async def test_the_counts_by_status_are_shown(any_world):
    world = any_world
    await define(world, "a", **MINUTELY)
    paused = await define(world, "b", **MINUTELY)
    await change(world, paused, paused=True)
    broken = await define(world, "c", **MINUTELY)
    await rewrite(world, broken.schedule_id, spec="{")
    await define(world, "d", **MINUTELY, end_at="2020-01-01T00:00:00Z")
    await sweep(world)
    await sweep(world)
    assert [_status(status) for status in ("active", "paused", "finished", "broken")] == [1, 1, 1, 1]


async def test_skips_are_counted_once_by_their_reasons(any_world):
    def skips(reason):
        return REGISTRY.get_sample_value("tocsin_schedule_skips_total", {"reason": reason}) or 0

    world, reasons = any_world, ("overlap", "missed", "paused", "skipped_by_user")
    before = {reason: skips(reason) for reason in reasons}
    made = await define(world, **MINUTELY, overlap="forbid")
    await world.advance(300)
    await world.on.direct.skip_next(TENANT, made.schedule_id)
    await change(world, made, paused=True)
    await world.advance(180)
    await change(world, made, paused=False)
    assert {reason: skips(reason) - before[reason] for reason in reasons} == {
        "overlap": 4,
        "missed": 0,
        "paused": 2,
        "skipped_by_user": 1,
    }
    assert sum(count for _, _, count, _ in await skips_of(world, made)) == 7


# --- broken -----------------------------------------------------------------------------------------------------------

JOB = '"job":{"queue":"q","target":{"type":"task","handler":"do"}}'
GARBAGE: dict[str, dict[str, Any]] = {
    "spec": {"spec": "garbage"},
    "spec of another time": {"spec": '{"rule":{"cron":"* * * * *"},"job":{"queue":"q"}}'},
    "state": {"state": "[]"},
    "cron": {"spec": f'{{"rule":{{"cron":"x"}},{JOB}}}'},
    "interval": {"spec": f'{{"rule":{{"every_ms":0}},{JOB}}}'},
    "no rule": {"spec": f'{{"rule":{{}},{JOB}}}'},
    "zone": {"spec": f'{{"rule":{{"cron":"* * * * *","time_zone":"Mars/Olympus"}},{JOB}}}'},
    "instant": {"next_at": 2**62, "job_id": None},
    "offset": {"offset_s": 2**60},
}


async def test_a_row_that_cannot_be_read_hides_none_of_those_behind_it(any_world, monkeypatch):
    monkeypatch.setattr("tocsin.flow.sweep.BATCH", 2)
    kept = {(await define(any_world, f"kept {n}", **MINUTELY)).schedule_id for n in range(12)}
    store = any_world.on.store.schedules
    seen: set[str] = set()
    walk, unreadable = store.walk, min(kept)

    async def without_it(partition, after, limit):
        page = [row for row in await walk(partition, after, limit) if row.schedule_id != unreadable]
        seen.update(row.schedule_id for row in page)
        return page

    store.walk = without_it
    await sweep(any_world)
    assert seen == kept - {unreadable}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("what", GARBAGE)
async def test_one_that_is_broken_stops_nobody_and_can_be_mended_or_deleted(any_world, what, restart):
    world = any_world
    bad, worse = await define(world, "bad", **MINUTELY), await define(world, "worse", **MINUTELY)
    good = await define(world, "good", **MINUTELY)
    since = world.clock.now_ms()
    for one in (bad, worse):
        await rewrite(world, one.schedule_id, **GARBAGE[what])
    if restart:
        await world.restart()
    await world.advance(200)
    await sound(world, good.schedule_id, since=since)
    page, _ = await world.on.present.page(TENANT, None, None, None, 10)
    assert {one.name for one in page} == {"bad", "worse", "good"}
    if what != "offset":
        row = (await world.on.store.schedules.get([bad.schedule_id]))[0]
        assert row is not None
        assert row.status == "broken"
    shown = await put(world, "bad", **MINUTELY)
    assert (shown.status, shown.broken_reason, shown.schedule_id) == ("active", None, bad.schedule_id)
    await world.advance(60)
    await sound(world, bad.schedule_id)
    await world.on.define.delete(TENANT, worse.schedule_id)
    await sound(world, worse.schedule_id)
    assert await world.on.store.schedules.named(TENANT, ["worse"]) == [None]


async def test_one_whose_definition_cannot_be_read_is_not_patched(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    await rewrite(world, made.schedule_id, spec="garbage")
    with pytest.raises(Refused, match="PUT the whole definition"):
        await change(world, made, overlap="forbid")
    with pytest.raises(Refused, match="broken"):
        await world.on.direct.skip_next(TENANT, made.schedule_id)


async def test_a_broken_one_can_be_mended_by_a_patch_of_what_is_wrong(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    row, _ = await state_of(world, made.schedule_id)
    await rewrite(world, made.schedule_id, spec=row.spec.replace('"* * * * *"', '"x"'))
    await sweep(world)
    shown = await change(world, made, cron="*/5 * * * *")
    assert (shown.status, shown.next_run_at) == ("active", "2026-12-05T03:35:00Z")
    await sound(world, made.schedule_id)


async def test_an_occurrence_that_waits_when_one_breaks_fires_all_the_same(any_world):
    world = any_world
    made = await define(world, **MINUTELY)
    await rewrite(world, made.schedule_id, spec="garbage")
    await world.restart()
    await world.advance(60)
    assert len(await world.claim(10)) == 1


# --- zone data --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["step", "sqlite"])
async def zoned(request, tmp_path):
    """A world in which every zone is seven hours behind UTC."""
    data = zones("2026f", -7)
    made = World(zones=data) if request.param == "step" else SqliteWorld(tmp_path, zones=data)
    await made.start()
    yield made
    await made.on.store.close()


async def test_newer_zone_data_moves_what_is_ahead_once(zoned):
    world = zoned
    made = await define(world, **NINE)
    other = await define(world, "utc", cron="0 9 * * *")
    assert made.next_run_at == "2026-12-05T16:00:00Z"
    before = _repairs("zone data")
    world.zones = zones("2026g", -8)
    await world.restart()
    await world.settle()
    await sweep(world)
    assert (await world.on.present.get(TENANT, made.schedule_id)).next_run_at == "2026-12-05T17:00:00Z"
    assert _repairs("zone data") == before + 1
    assert (await state_of(world, other.schedule_id))[0].serial == 1
    await world.jump(86_400)
    fired = [job for job in await jobs_of(world, made) if job.status is Status.QUEUED]
    assert [job.definition.occurrence_at for job in fired] == [1_796_490_000_000]
    await sound(world, made.schedule_id)


async def test_newer_zone_data_that_changes_nothing_is_noted_and_moves_nothing(zoned):
    world = zoned
    made = await define(world, **NINE)
    before = _repairs("zone data")
    world.zones = zones("2026g", -7)
    await world.restart()
    await world.settle()
    _, state = await state_of(world, made.schedule_id)
    assert (state.zone_data, len(await jobs_of(world, made))) == ("2026g", 1)
    assert _repairs("zone data") == before


async def test_an_older_node_fires_what_is_due_computes_nothing_and_says_so(zoned):
    world = zoned
    made = await define(world, **NINE)
    world.zones = zones("2026a", -8)
    await world.restart()
    await world.settle()
    assert (await state_of(world, made.schedule_id))[0].serial == 1
    assert world.on.sweep.outdated
    await world.jump(13 * 3600)
    row, state = await state_of(world, made.schedule_id)
    assert (row.status, state.owing, state.next_at) == ("active", True, None)
    assert [job.status for job in await jobs_of(world, made)] == [Status.QUEUED]
    health = Health(world.on.store, world.on.gap, world.clock, None, outdated=lambda: world.on.sweep.outdated)
    health.recovered()
    assert [reason for reason in await health.reasons() if "zone data" in reason]
    world.zones = zones("2026f", -7)
    await world.restart()
    await world.settle()
    assert (await world.on.present.get(TENANT, made.schedule_id)).next_run_at == "2026-12-06T16:00:00Z"
    assert not world.on.sweep.outdated
    await sound(world, made.schedule_id)


async def test_a_node_is_out_of_date_only_as_long_as_there_is_something_newer(zoned):
    world = zoned
    made = await define(world, **NINE)
    world.zones = zones("2026a", -8)
    await world.restart()
    await world.settle()
    assert world.on.sweep.outdated
    await world.on.define.delete(TENANT, made.schedule_id)
    for _ in range(62):
        await world.jump(60)
    assert not world.on.sweep.outdated


async def test_a_local_time_that_fired_by_the_old_data_does_not_fire_by_the_new(zoned):
    world = zoned
    made = await define(world, **NINE)
    await world.jump(13 * 3600)
    world.zones = zones("2026g", -8)
    await world.restart()
    await world.settle()
    await world.jump(25 * 3600)
    fired = [job.definition.occurrence_at for job in await jobs_of(world, made) if job.status is Status.QUEUED]
    assert fired == [1_796_486_400_000, 1_796_486_400_000 + 25 * 3_600_000]
    assert await skips_of(world, made) == []


async def test_one_that_by_newer_data_was_due_already_is_not_lost(zoned):
    world = zoned
    made = await define(world, **NINE)
    await world.jump(11 * 3600 + 1800)  # 15:00Z, an hour before
    world.zones = zones("2026g", -6)
    world.clock.advance(600)
    await world.restart()
    await world.settle()
    fired = [job.definition.occurrence_at for job in await jobs_of(world, made) if job.status is Status.QUEUED]
    assert fired == [1_796_486_400_000 - 3_600_000]
    await sound(world, made.schedule_id)


async def test_a_zone_that_is_gone_from_the_data_breaks_those_that_need_it(zoned):
    world = zoned
    made, other = await define(world, **NINE), await define(world, "utc", **MINUTELY)

    def load(name):
        raise KeyError(name)

    world.zones = Zones("2026g", lambda name: UTC if name == "UTC" else load(name))
    await world.restart()
    await world.settle()
    shown = await world.on.present.get(TENANT, made.schedule_id)
    assert shown.status == "broken"
    assert shown.broken_reason is not None
    assert "America/Vancouver" in shown.broken_reason
    await world.advance(120)
    await sound(world, other.schedule_id)
    assert len([job for job in await all_jobs(world, other.schedule_id) if job.status is Status.QUEUED]) == 2


async def test_a_server_shows_its_zone_data(tmp_path):
    process = await roles.build(Settings(data=tmp_path), ManualClock(), SystemEntropy(), zones("2031x", 0))
    try:
        await process.start()
        assert REGISTRY.get_sample_value("tocsin_zone_data_info", {"version": "2031x"}) == 1
        assert process.desk.zone_data == "2031x"
        assert await process.health.reasons() == []
        sweeper = next(stage for stage in process.stages if stage.name == "sweep")
        sweeper.outdated = True  # type: ignore[attr-defined]
        (reason,) = await process.health.reasons()
        assert "zone data" in reason
    finally:
        await process.stop()
