"""The safety net under schedules: what the sweep finds and mends."""

import sqlite3

from tests.flow.recurring import define, jobs_of, skips_of
from tests.life.sqliteworld import SqliteWorld
from tocsin.telemetry import REGISTRY
from tocsin.wire import Status


def _repairs(what):
    return REGISTRY.get_sample_value("tocsin_schedule_repairs_total", {"what": what}) or 0


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
