"""After an outage what was missed is made up for beside what falls due."""

from tests.flow.recurring import define, jobs_of
from tocsin.wire import Status


async def test_what_is_caught_up_with_is_spread_also_after_a_step_of_the_clock(any_world, monkeypatch):
    world = any_world
    monkeypatch.setattr("tocsin.flow.agenda.CATCH_UP_PER_S", 0.01)  # one in a hundred seconds
    for names in (("one", "two", "three"), ("four", "five", "six")):
        made = [await define(world, name, cron="* * * * *") for name in names]
        await world.jump(600)
        newest = [(await jobs_of(world, one))[-2] for one in made]
        assert sorted(job.status for job in newest) == [Status.QUEUED, Status.SCHEDULED, Status.SCHEDULED]
        assert sorted(job.fire_at - world.clock.now_ms() for job in newest) == [0, 100_000, 200_000]
        world.clock.step_wall(-7_200)


async def test_a_schedule_that_is_to_run_all_no_more_is_soon_on_time_again(any_world):
    world = any_world
    made = await define(world, cron="* * * * *", missed_runs={"policy": "run_all"})
    await world.jump(600)
    await world.patch_schedule(made.schedule_id, missed_runs={"policy": "run_latest"})
    for _ in range(3):
        await world.jump(60)
    for _ in range(60):
        world.clock.advance(10)
        await world.settle()
        while claimed := await world.claim(10):
            for job in claimed:
                await world.complete(job.lease_token)
            await world.settle()
    last = [job for job in await jobs_of(world, made) if job.status is Status.SUCCEEDED][-1]
    assert last.queued_at == last.definition.occurrence_at
