"""What left the tier in memory leaves nothing behind, and what is in it costs little."""

from __future__ import annotations

import gc
import tracemalloc

from tests.unit.near.model import fresh_clock, run
from tocsin.clock import SeededEntropy
from tocsin.model.ids import new_ids
from tocsin.model.job import HTTP, Lane, Line
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import Pop, QueueGate
from tocsin.store.port import Due

COUNT = 20_000


def some(count: int, now_ms: int, line: Line, spread_ms: int = 1) -> list[Due]:
    ids = new_ids(count, now_ms, SeededEntropy(5))
    return [Due(now_ms + at * 7_919 % spread_ms, job, 1, line, 0) for at, job in enumerate(ids)]


def traced_kb() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] // 1_024


def test_a_waiting_member_costs_less_than_150_bytes_of_the_tiers_own() -> None:
    clock = fresh_clock()
    near = MemoryNearTier(clock, 16)
    dues = some(COUNT, clock.now_ms(), Line("a", "q", Lane.PRECISE, "h", ""), spread_ms=300_000)
    tracemalloc.start()
    try:
        before = traced_kb()
        run(near.offer(dues))
        assert (traced_kb() - before) * 1_024 / COUNT < 150
    finally:
        tracemalloc.stop()


def test_members_that_come_and_are_removed_leave_no_litter() -> None:
    clock = fresh_clock()
    near = MemoryNearTier(clock, 16)
    line = Line("a", "q", Lane.PRECISE, "h", "")
    kept = some(100, clock.now_ms() + 60_000, line, 1_000)
    run(near.offer(kept))
    tracemalloc.start()
    try:
        before = traced_kb()
        for round_ in range(20):
            dues = some(2_000, clock.now_ms() + 10_000 + round_, line, 30_000)
            run(near.offer(dues))
            run(near.remove([due.job_id for due in dues]))
            del dues
        assert traced_kb() - before < 1_000
    finally:
        tracemalloc.stop()
    clock.advance(120)
    assert run(near.take(range(16), clock.now_ms(), 1_000)) == sorted(kept, key=lambda due: due.due_at)


def test_one_member_that_comes_and_goes_for_ever_leaves_no_alarms() -> None:
    clock = fresh_clock()
    near = MemoryNearTier(clock, 16)
    (due,) = some(1, clock.now_ms() + 300_000, Line("a", "q", Lane.PRECISE, "h", ""))
    tracemalloc.start()
    try:
        before = traced_kb()
        for earlier in range(20_000):
            each = due._replace(due_at=due.due_at - earlier)
            run(near.offer([each]))
            run(near.remove([each.job_id]))
        assert traced_kb() - before < 500
    finally:
        tracemalloc.stop()


def test_jobs_that_come_and_are_removed_leave_no_litter_in_their_line() -> None:
    clock = fresh_clock()
    near = MemoryNearTier(clock, 16)
    line = Line("a", "q", Lane.PRECISE, "h", "")
    kept = some(100, clock.now_ms(), line, 1_000)
    run(near.configure("a", "q", QueueGate()))
    run(near.push(kept))
    tracemalloc.start()
    try:
        before = traced_kb()
        for round_ in range(20):
            dues = some(2_000, clock.now_ms() + 1 + round_, line, 30_000)
            run(near.push(dues))
            run(near.remove([due.job_id for due in dues]))
            del dues
        assert traced_kb() - before < 1_000
    finally:
        tracemalloc.stop()
    wish = Pop(request_id="r", tenant="a", queue="q", handlers=None, most=1_000, now_ms=clock.now_ms())
    assert run(near.pop(wish)).dues == sorted(kept, key=lambda due: due.due_at)


def test_a_host_per_callback_and_a_queue_per_claim_leave_no_lines() -> None:
    clock = fresh_clock()
    near = MemoryNearTier(clock, 16)
    run(near.configure("a", "q", QueueGate()))
    ids = new_ids(5_000, clock.now_ms(), SeededEntropy(5))
    tracemalloc.start()
    try:
        before = traced_kb()
        for at, job in enumerate(ids):
            run(near.push([Due(clock.now_ms(), job, 1, Line("a", "q", Lane.PRECISE, HTTP, f"h{at}"), 0)]))
            wish = Pop(request_id=job, tenant=None, queue=None, handlers=None, most=10, now_ms=clock.now_ms())
            assert len(run(near.pop(wish)).dues) == 1
            run(near.settle(job, []))
            unheard = Pop(request_id=job, tenant="a", queue=f"q{at}", handlers=None, most=10, now_ms=clock.now_ms())
            run(near.pop(unheard))
        assert traced_kb() - before < 2_500
    finally:
        tracemalloc.stop()


def test_leases_that_are_renewed_or_ended_leave_no_litter() -> None:
    near = MemoryNearTier(fresh_clock(), 16)
    tracemalloc.start()
    try:
        before = traced_kb()
        for second in range(200):
            leases = [(f"job {second} {at}", 1, second * 1_000 + 30_000) for at in range(100)]
            run(near.lease(leases))
            for renewal in range(5):
                run(near.lease([(job, 1, until + renewal) for job, _, until in leases]))
            run(near.leases_over(range(16), second * 1_000, 1_000))
            run(near.unlease([(job, 1) for job, _, _ in leases]))
        assert traced_kb() - before < 3_000
    finally:
        tracemalloc.stop()
