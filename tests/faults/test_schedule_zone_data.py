"""Zone data that disagree, and an update of them (F-70).

British Columbia decides not to change its clocks in November 2026 any more. One copy of the data knows that, an older one does not.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta, tzinfo
from io import BytesIO
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.faults.conftest import worker_of
from tests.faults.sites import Kept, Site, at
from tocsin.model.zones import Zones
from tocsin.telemetry import REGISTRY

VANCOUVER = "America/Vancouver"
AUTUMN, SPRING = at("2026-11-01 09:00"), at("2027-03-14 10:00")
DAILY = {"cron": "0 9 * * *", "time_zone": VANCOUVER}
DAY = timedelta(days=1)


def zone(*changes: tuple[int, int], first: int, footer: str) -> tzinfo:
    """A zone made of bytes (RFC 9636): its first offset, then instants and the offsets from then on, all in seconds."""
    offsets = list(dict.fromkeys([first, *(offset for _, offset in changes)]))
    header = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, len(changes), len(offsets), 4)

    def body(size: str) -> bytes:
        times = b"".join(struct.pack(f">{size}", instant) for instant, _ in changes)
        kinds = bytes(offsets.index(offset) for _, offset in changes)
        types = b"".join(struct.pack(">lbb", offset, 0, 0) for offset in offsets)
        return times + kinds + types + b"LMT\0"

    return ZoneInfo.from_file(
        BytesIO(header + body("l") + header + body("q") + f"\n{footer}\n".encode()), key=VANCOUVER
    )


def zones(version: str, *, changing: bool) -> Zones:
    """A copy of the data in which Vancouver changes its clocks in the winter to come, or does not."""
    autumn, spring = round(AUTUMN.timestamp()), round(SPRING.timestamp())
    made = (
        zone((autumn, -8 * 3600), (spring, -7 * 3600), first=-7 * 3600, footer="PST7")
        if changing
        else zone(first=-7 * 3600, footer="PST7")
    )

    def load(name: str) -> tzinfo:
        return {VANCOUVER: made, "UTC": UTC}[name]

    return Zones(version, load)


OLD = zones("2025b", changing=True)
NEW = zones("2026f", changing=False)
NEWEST = zones("2026g", changing=True)  # and back again


async def nothing(payload: object) -> None:
    """A handler that has nothing to do."""


async def work_until(site: Site, moment: datetime) -> None:
    """Let time pass while a worker does what there is."""
    async with site.server.running(worker_of(site.server, work=nothing)):
        await site.advance_to(moment)


def repairs() -> int:
    return round(REGISTRY.get_sample_value("tocsin_schedule_repairs_total", {"what": "zone data"}) or 0)


async def fired(kept: Kept) -> list[str]:
    """The instants that have run: month, day and hour."""
    return [instant[5:13] for instant in await kept.fired()]


def test_the_zone_made_of_bytes_is_what_it_is_to_be():
    for copy, before, after in ((OLD, -7, -8), (NEW, -7, -7)):
        place = copy.zone(VANCOUVER)
        assert (AUTUMN - timedelta(seconds=1)).astimezone(place).utcoffset() == timedelta(hours=before)
        assert AUTUMN.astimezone(place).utcoffset() == timedelta(hours=after)
        assert SPRING.astimezone(place).utcoffset() == timedelta(hours=-7)


async def test_the_version_in_use_is_visible(tmp_path):
    async with Site(tmp_path, at("2026-10-30 12:00"), zones=OLD) as site:
        assert (await site.http("GET", "/healthz")).json["zone_data"] == "2025b"
        assert (await site.http("GET", "/readyz")).json["zone_data"] == "2025b"
        assert 'tocsin_zone_data_info{version="2025b"} 1.0' in await site.metrics()
        await site.restart(zones=NEW)
        assert (await site.http("GET", "/healthz")).json["zone_data"] == "2026f"
        assert 'tocsin_zone_data_info{version="2026f"} 1.0' in await site.metrics()
        assert "2025b" not in await site.metrics()


async def test_an_update_computes_what_is_ahead_anew_once(tmp_path):
    async with Site(tmp_path, at("2026-10-30 12:00"), zones=OLD) as site:
        kept, other = await site.schedule("kept", **DAILY), await site.schedule("other", cron="0 9 * * *")
        await work_until(site, at("2026-10-31 20:00"))
        assert await kept.next_at() == "2026-11-01T17:00:00Z"
        before, revision = repairs(), (await kept.get())["revision"]
        for _ in range(3):
            await site.restart(zones=NEW)
            await site.advance(minutes=2)
            assert await kept.waiting() == ["2026-11-01T16:00:00Z"]
        assert repairs() == before + 1
        assert len(await kept.jobs("CANCELLED")) == 1, "the one that was made by the old data"
        assert len(await other.jobs("CANCELLED")) == 0
        assert (await kept.get())["revision"] == revision, "nobody has edited it"
        await work_until(site, at("2026-11-03 20:00"))
        assert await fired(kept) == ["10-30T16", "10-31T16", "11-01T16", "11-02T16", "11-03T16"]
        assert await kept.skips() == []
        await site.check()


async def test_what_has_passed_by_the_new_data_is_made_up_for_and_not_repeated(tmp_path):
    """The update comes when it is half past nine by the new data and half past eight by the old."""
    async with Site(tmp_path, at("2026-10-31 20:00"), zones=OLD) as site:
        kept = await site.schedule(**DAILY)
        await work_until(site, at("2026-11-01 16:30"))
        assert await fired(kept) == []
        await site.restart(zones=NEW)
        await site.advance(minutes=2)
        assert await fired(kept) == ["11-01T16"]
        await work_until(site, at("2026-11-02 20:00"))
        assert await fired(kept) == ["11-01T16", "11-02T16"]
        await site.check()


async def test_no_local_time_comes_twice_by_an_update(tmp_path):
    """It has been nine by the old data. By the new, nine is still to come; that was this morning's run."""
    async with Site(tmp_path, at("2026-10-31 20:00"), zones=NEW) as site:
        kept = await site.schedule(**DAILY)
        await work_until(site, at("2026-11-01 16:30"))
        assert await fired(kept) == ["11-01T16"]
        await site.restart(zones=NEWEST)
        await site.advance(minutes=2)
        assert await kept.next_at() == "2026-11-02T17:00:00Z"
        await work_until(site, at("2026-11-03 20:00"))
        assert await fired(kept) == ["11-01T16", "11-02T17", "11-03T17"]
        await site.check(since=at("2026-11-01 20:00"))


async def test_an_hourly_schedule_is_not_moved_by_an_update(tmp_path):
    async with Site(tmp_path, at("2026-11-01 05:30"), zones=OLD) as site:
        kept = await site.schedule(cron="0 * * * *", time_zone=VANCOUVER)
        await work_until(site, at("2026-11-01 08:30"))
        await site.restart(zones=NEW)
        await work_until(site, at("2026-11-01 12:30"))
        assert await fired(kept) == [f"11-01T{hour:02d}" for hour in range(6, 13)]
        await site.check()


@pytest.mark.parametrize("policy", ["run_latest", "run_all", "skip"])
@pytest.mark.parametrize("down", [timedelta(hours=3), 3 * DAY], ids=str)
async def test_an_update_after_an_outage_judges_what_was_missed_by_the_new_data(tmp_path, down: timedelta, policy: str):
    async with Site(tmp_path, at("2026-11-01 15:00"), zones=OLD) as site:
        kept = await site.schedule(**DAILY, missed_runs={"policy": policy})
        await site.restart(down, zones=NEW)
        await work_until(site, site.now + timedelta(minutes=2))
        days = [f"11-0{day}T16" for day in ([1] if down < DAY else [1, 2, 3])]
        expected = {"run_latest": days[-1:], "run_all": days, "skip": days if down < DAY else []}[policy]
        assert await fired(kept) == expected
        assert sum(count for _, _, count, _ in await kept.skips()) == len(days) - len(expected)
        await site.advance(days=1)
        assert len(await fired(kept)) == len(expected) + 1
        await site.check()


async def test_an_older_node_fires_what_is_due_and_computes_nothing(tmp_path: Path):
    async with Site(tmp_path, at("2026-10-30 12:00"), zones=NEW) as site:
        kept, other = await site.schedule("kept", **DAILY), await site.schedule("other", cron="0 * * * *")
        # A rollback: the node that comes up knows less than the one that has computed this.
        await site.restart(zones=OLD)
        await work_until(site, at("2026-10-30 18:30"))
        assert await fired(kept) == ["10-30T16"]
        assert await kept.waiting() == []
        assert len(await fired(other)) == 6, "what needs no zone goes on"
        ready = await site.http("GET", "/readyz")
        assert ready.status == 503
        assert "zone data" in ready.json["detail"] + str(ready.json["reasons"])
        # Days later nothing has been made up, and nothing is lost.
        await site.restart(at("2026-11-02 10:00") - site.now)
        await site.advance(minutes=10)
        assert await fired(kept) == ["10-30T16"]
        await site.restart(zones=NEW)
        await site.advance(minutes=2)
        assert (await site.http("GET", "/readyz")).status == 200
        assert await fired(kept) == ["10-30T16", "11-01T16"]
        assert [(count, reason) for _, _, count, reason in await kept.skips()] == [(1, "missed")]
        assert await kept.waiting() == ["2026-11-02T16:00:00Z"]
        await site.check()


async def test_an_edit_on_an_older_node_is_taken_over_by_the_newer(tmp_path):
    async with Site(tmp_path, at("2026-11-01 12:00"), zones=NEW) as site:
        kept = await site.schedule(**DAILY)
        await site.restart(zones=OLD)
        await kept.patch(cron="0 10 * * *")
        await site.restart(zones=NEW)
        await site.advance(minutes=2)
        assert await kept.waiting() == ["2026-11-01T17:00:00Z"]
        await work_until(site, at("2026-11-02 20:00"))
        assert await fired(kept) == ["11-01T17", "11-02T17"]
        await site.check(retimed=True)


async def test_a_zone_that_an_update_has_dropped_breaks_its_schedules_and_no_other(tmp_path):
    async with Site(tmp_path, at("2026-11-01 12:00"), zones=OLD) as site:
        kept, other = await site.schedule("kept", **DAILY), await site.schedule("other", cron="0 * * * *")

        def only_utc(name: str) -> tzinfo:
            return {"UTC": UTC}[name]

        await site.restart(zones=Zones("2026f", only_utc))
        await site.advance(hours=1)
        shown = await kept.get()
        assert shown["status"] == "broken"
        assert VANCOUVER in shown["broken_reason"]
        assert len(await fired(other)) == 1
        await site.put("kept", cron="0 9 * * *", time_zone="UTC")
        assert await kept.next_at() == "2026-11-02T09:00:00Z"
        await site.check(retimed=True)
