"""What is wrong with one schedule is no other's misfortune."""

from tests.flow.recurring import TENANT, define, jobs_of
from tocsin.store.settings import QueueRow
from tocsin.wire import Status


async def test_a_queue_whose_longest_wait_has_become_shorter_than_a_template_asks_stops_nobody(any_world):
    world = any_world
    odd = await define(world, "odd", cron="* * * * *", template={"queue": "odd", "retry": {"initial_backoff_s": 100}})
    other = await define(world, "other", cron="* * * * *")
    await world.on.queues.put(QueueRow(tenant=TENANT, queue="odd", max_backoff_s=5.0))
    await world.advance(130)
    for made in (odd, other):
        assert [job.status for job in await jobs_of(world, made)] == [Status.QUEUED, Status.QUEUED, Status.SCHEDULED]
    retry = (await jobs_of(world, odd))[-1].definition.retry
    assert (retry.initial_backoff_s, retry.max_backoff_s) == (100.0, 100.0)


async def test_a_template_that_asks_for_a_longest_wait_below_the_queues_first_gets_that(any_world):
    world = any_world
    await world.on.queues.put(QueueRow(tenant=TENANT, queue="q", initial_backoff_s=60.0))
    made = await define(world, cron="* * * * *", template={"retry": {"max_backoff_s": 20}})
    retry = (await jobs_of(world, made))[-1].definition.retry
    assert (retry.initial_backoff_s, retry.max_backoff_s) == (20.0, 20.0)
