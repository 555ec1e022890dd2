"""What owners do beside a schedule's own course."""

import pytest

from tests.flow.recurring import TENANT, define
from tests.life.sqliteworld import SqliteWorld
from tocsin import wire
from tocsin.errors import Refused


async def test_a_trigger_that_is_repeated_when_its_job_is_archived_is_told_so(tmp_path):
    world = SqliteWorld(tmp_path)
    await world.start()
    made = await define(world, cron="@yearly")
    asked = (TENANT, made.schedule_id, wire.Trigger(), "k", b"0" * 16)
    job, replayed = await world.on.direct.trigger(*asked)
    assert not replayed
    await world.complete((await world.claim_one()).lease_token)
    again, replayed = await world.on.direct.trigger(*asked)
    assert (again.job_id, replayed) == (job.job_id, True)
    assert await world.on.store.jobs.archive(world.clock.now_ms() + 1, 10) == 1
    with pytest.raises(Refused) as gone:
        await world.on.direct.trigger(*asked)
    assert gone.value.status == 404
    await world.stop()
