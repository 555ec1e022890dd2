"""What a finished job costs on the disk."""

from msgspec import Raw

from tests.conformance.yard import PARTITIONS, Yard
from tests.unit.store.conftest import Opener
from tocsin.clock import ManualClock
from tocsin.store.port import FIRE, Success


async def test_a_finished_job_with_500_bytes_of_payload_takes_at_most_a_kilobyte(
    opener: Opener, clock: ManualClock
) -> None:
    yard = Yard(await opener(), clock)
    conn = yard.store._writer._work.conn  # type: ignore[attr-defined]
    payload = Raw(b'"' + b"x" * 498 + b'"')

    async def lives(count: int) -> int:
        clock.advance(1)
        jobs = await yard.running(count, payload=payload, name="reminder", tags={"team": "x"})
        await yard.jobs.succeed([Success(job_id=job.job_id, attempt=1) for job in jobs])
        for partition in range(PARTITIONS):
            await yard.jobs.sweep_void(partition, FIRE, 1 << 40, 10_000)
        pages, free = (conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        return (pages - free) * 4096

    first = await lives(500)
    for _ in range(4):
        last = await lives(500)
    assert (last - first) / 2_000 <= 1_000
