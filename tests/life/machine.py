"""The life of a job as a state machine: everything that clients, workers, time and bad luck do, in any order.

The rules call the real stages over a real near tier. A crash may fall between any two row writes and around every call of the
near tier; the store may fail; memory may be lost; clocks may step. After every rule the whole store is looked at
(`invariant.py`), and at the end time goes on with a worker that completes everything: what was accepted must come to an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.life.disk import Crashed
from tests.life.invariant import Ledger, look
from tests.life.world import World
from tocsin import wire
from tocsin.errors import Refused, ServerUnavailable, StoreUnavailable
from tocsin.flow.admit import Admitted
from tocsin.model.job import TERMINAL
from tocsin.store.port import NotYours
from tocsin.wire import Status

T = TypeVar("T")

TENANTS = ("acme", "bolt")
DELAYS_S = (0.0, 0.4, 3, 30, 61, 200, 301, 430, 900, 7200, 90_000, 4_000_000)
TICKS_MS = (1, 40, 999, 1_000, 4_999, 13_000, 33_000, 61_000)
JUMPS_S = (90, 400, 3_700, 86_400, 800_000)
OUTCOMES = ("succeeded", "retryable_failure", "fatal_failure", "cancelled", "released")
STEPS = ("dispatch", "load", "rescue", "unpark", "recheck", "archive", "pulse")
# What happens to the one call of a rule: mostly nothing; the process dies or the store fails at its n-th point.
LUCK = st.one_of(
    st.just(("good", 0)),
    st.just(("good", 0)),
    st.tuples(st.just("crash"), st.integers(0, 24)),
    st.tuples(st.just("fail once"), st.integers(0, 12)),
    st.just(("fail", 0)),
)
Luck = tuple[str, int]
# A job that is due ends within this time of everything being well again: a recheck below the floor may be an hour off.
PATIENCE_MS = 4_000_000


class Life(RuleBasedStateMachine):
    """Rules over a `World`; subclasses choose its store."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world: World
        self.ledger: Ledger
        self.accepted: list[str] = []
        self.tokens: list[wire.ClaimedJob] = []
        self.handed: dict[tuple[str, int], str] = {}
        self.requests: dict[str, list[tuple[str, int]]] = {}
        self.keys: dict[tuple[str, str], str] = {}

    def make_world(self, seed: int) -> World:
        """A world whose limits are small, so that cuts and parked jobs are common."""
        return World(seed=seed, partitions=2, due_limit=6, line_limit=4, page=3)

    @initialize(seed=st.integers(0, 2**16), flood_s=st.sampled_from((None, 0, 20, 400)), paused=st.booleans())
    def begin(self, seed: int, flood_s: float | None, paused: bool) -> None:
        """A few jobs, one of them running; perhaps a flood that fits neither its line nor its due set."""
        self.world = self.make_world(seed)
        self.ledger = Ledger(self.world)
        self._run(self.world.start())
        for tenant, delay_s in (("acme", 0), ("acme", 5), ("bolt", 0)):
            self._got_made(self._run(self.world.try_create(tenant, delay_s=delay_s)))
        self._run(self.ledger.check(self.accepted))
        self._got(self._run(self.world.claim()), None)
        self._run(self.world.pause(paused))
        if flood_s is not None:
            self._got_made(self._run(self.world.try_create(count=14, delay_s=flood_s)))

    # clients

    @rule(
        tenant=st.sampled_from(TENANTS),
        delay_s=st.sampled_from(DELAYS_S),
        window_s=st.sampled_from((None, None, 3, 600)),
        expires_after_s=st.sampled_from((None, None, None, 5, 120)),
        priority=st.sampled_from((None, "high", "low")),
        max_attempts=st.integers(1, 4),
        timeout_s=st.sampled_from((3600, 3600, 20)),
        callback=st.sampled_from((False, False, True)),
        count=st.sampled_from((1, 1, 1, 2, 5)),
        key=st.sampled_from((None, None, None, "k1", "k2", "k3")),
        luck=LUCK,
    )
    def create(
        self,
        tenant: str,
        delay_s: float,
        window_s: float | None,
        expires_after_s: float | None,
        priority: str | None,
        max_attempts: int,
        timeout_s: float,
        callback: bool,
        count: int,
        key: str | None,
        luck: Luck = ("good", 0),
    ) -> None:
        target: dict[str, Any] = {"type": "task", "handler": "do", "timeout_s": timeout_s}
        if callback:
            target = {"type": "http", "url": "https://example.test/hook", "timeout_s": 20}
        fields: dict[str, Any] = {
            "target": target,
            "delay_s": delay_s,
            "expires_after_s": expires_after_s,
            "priority": priority,
            "retry": {"max_attempts": max_attempts, "initial_backoff_s": 5, "max_backoff_s": 300},
        }
        if window_s is not None:
            fields["timing"] = {"class": "flexible", "window_s": window_s}
        made = self._do(self.world.try_create(tenant, key=key, count=1 if key else count, **fields), luck)
        self._got_made(made, (tenant, key) if key else None)

    def _got_made(self, made: list[Admitted | Refused] | None, key: tuple[str, str] | None = None) -> None:
        for answer in made or ():
            if isinstance(answer, Refused):
                assert key is not None, answer
                assert answer.status == 409, answer
                continue
            assert answer.replayed <= (key is not None)
            if key is not None:
                bound = self.keys.get(key)
                assert bound in (None, answer.job_id) or not answer.replayed, "a key must stand for one job"
                self.keys[key] = answer.job_id
            if answer.job_id not in self.accepted:
                self.accepted.append(answer.job_id)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), what=st.sampled_from(("time", "time", "payload", "priority", "target", "nothing")), luck=LUCK)
    def patch(self, data: st.DataObject, what: str, luck: Luck) -> None:
        job_id = self._pick(data)
        choices: dict[str, dict[str, Any]] = {
            "time": {"delay_s": data.draw(st.sampled_from(DELAYS_S), label="delay")},
            "payload": {"payload": {"n": 1}},
            "priority": {"priority": "high"},
            "target": {"target": {"type": "task", "handler": "other"}},
            "nothing": {"name": None},
        }
        fields = choices[what]
        self._wish(self.world.patch(job_id, self.ledger.tenant(job_id), **fields), luck)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), luck=LUCK)
    def cancel(self, data: st.DataObject, luck: Luck) -> None:
        job_id = self._pick(data)
        job = self._wish(self.world.cancel(job_id, self.ledger.tenant(job_id)), luck)
        if job is not None:
            assert job.status in (Status.CANCELLED, Status.CANCEL_REQUESTED)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), luck=LUCK)
    def run_now(self, data: st.DataObject, luck: Luck) -> None:
        job_id = self._pick(data)
        self._wish(self.world.run_now(job_id, self.ledger.tenant(job_id)), luck)

    @rule(tenant=st.sampled_from(TENANTS), rate=st.sampled_from((None, 0.5, 10)), luck=LUCK)
    def redrive(self, tenant: str, rate: float | None, luck: Luck) -> None:
        fields: dict[str, Any] = {} if rate is None else {"rate_per_s": rate}
        self._do(self.world.redrive(tenant, **fields), luck)

    @rule(tenant=st.sampled_from(TENANTS), luck=LUCK)
    def discard(self, tenant: str, luck: Luck) -> None:
        self._do(self.world.discard(tenant, max=1), luck)

    @rule(tenant=st.sampled_from(TENANTS), paused=st.sampled_from((False, False, True)))
    def pause(self, tenant: str, paused: bool) -> None:
        self._do(self.world.pause(paused, tenant))

    # workers

    @rule(
        tenant=st.sampled_from(TENANTS),
        most=st.sampled_from((1, 2, 10)),
        worker=st.sampled_from(("w1", "w2")),
        request=st.sampled_from((None, None, "r1", "r2")),
        lease_s=st.sampled_from((None, 5, 600)),
        luck=LUCK,
    )
    def claim(
        self, tenant: str, most: int, worker: str, request: str | None, lease_s: float | None, luck: Luck
    ) -> None:
        fields: dict[str, Any] = {"request_id": request, "lease_s": lease_s}
        self._got(self._do(self.world.claim(most, worker=worker, tenant=tenant, **fields), luck), request)

    @rule(most=st.sampled_from((1, 10)), luck=LUCK)
    def claim_callbacks(self, most: int, luck: Luck) -> None:
        request = wire.ClaimRequest(worker="executor", max=most)
        self._got(self._do(self.world.on.claim.claim_callbacks(request), luck), None)

    @rule(outcome=st.sampled_from(OUTCOMES), luck=LUCK)
    def all_run(self, outcome: str, luck: Luck) -> None:
        """What is ready is claimed by a worker whose attempts all end the same way."""
        for tenant in TENANTS:
            jobs = self._do(self.world.claim(10, worker="w3", tenant=tenant))
            self._got(jobs, None)
            for job in jobs or ():
                self._report(job, outcome, None, luck)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), progress=st.sampled_from((None, b'{"at":1}')), luck=LUCK)
    def heartbeat(self, data: st.DataObject, progress: bytes | None, luck: Luck) -> None:
        held = data.draw(st.sampled_from(self.tokens), label="attempt")
        answer = self._do(self.world.beat(held.lease_token, progress), luck)
        if answer is not None and not isinstance(answer, NotYours):
            self.ledger.must_hold(held.job_id, held.attempt)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), after=st.sampled_from((None, 0, 7.5, 1e9)), luck=LUCK)
    def complete(self, data: st.DataObject, outcome: str, after: float | None, luck: Luck) -> None:
        self._report(data.draw(st.sampled_from(self.tokens), label="attempt"), outcome, after, luck)

    def _report(self, held: wire.ClaimedJob, outcome: str, after: float | None, luck: Luck) -> None:
        answer = self._do(self.world.complete(held.lease_token, outcome, error="why", retry_after_s=after), luck)
        if isinstance(answer, Status):
            self._run(self.ledger.must_be_recorded(held.job_id, held.attempt, outcome))

    # time and the stages

    @rule(ms=st.sampled_from(TICKS_MS))
    def tick(self, ms: int) -> None:
        """Time passes while the process runs: it writes once a second, so this is no gap."""
        left = ms
        while left > 0:
            self.world.clock.advance(min(left, 1_000) / 1_000)
            left -= 1_000
            self._do(self.world.on.pulse.step())

    @rule(seconds=st.sampled_from(JUMPS_S))
    def nothing_runs_for_a_while(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule(name=st.sampled_from(STEPS), times=st.sampled_from((1, 1, 3)), luck=LUCK)
    def step(self, name: str, times: int, luck: Luck) -> None:
        for _ in range(times):
            self._do(getattr(self.world.on, name).step(), luck)

    @rule(luck=LUCK)
    def settle(self, luck: Luck) -> None:
        self._do(self.world.settle(), luck)

    @rule(seconds=st.sampled_from((1, 35, 130)), luck=LUCK)
    def time_passes_and_all_runs(self, seconds: float, luck: Luck) -> None:
        self._do(self.world.advance(seconds), (luck[0], luck[1] * 8))

    @rule(seconds=st.sampled_from((-3_600, -30, -2, 2, 30, 3_600, 28_800)))
    def the_clock_steps(self, seconds: float) -> None:
        self.world.clock.step_wall(seconds)

    # bad luck

    @rule()
    def crash(self) -> None:
        self._restart()

    # after every rule, and at the end

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "world"):
            self._run(self.ledger.check(self.accepted))

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self._come_to_an_end()
        finally:
            self._run(self._close())
            self.loop.close()

    async def _close(self) -> None:
        if hasattr(self, "world"):
            self.world.fault.clear()
            await self.world.on.store.close()

    def _come_to_an_end(self) -> None:
        """Everything works from here on; time passes and a worker completes whatever it gets."""
        self.world.fault.clear()
        for tenant in TENANTS:
            self._run(self.world.pause(False, tenant))
        patience_until = 0
        while waiting := self._run(self._unfinished()):
            now = self.world.clock.now_ms()
            if min(waiting) > max(now, patience_until - PATIENCE_MS) + 10_000:
                self.world.clock.advance_to(min(waiting))
                patience_until = self.world.clock.now_ms() + PATIENCE_MS
            else:
                patience_until = patience_until or now + PATIENCE_MS
                assert now < patience_until, "an accepted job has not come to an end"
                self.world.clock.advance(4.0)
            self._run(self.world.settle())
            self._run(self._work())

    async def _unfinished(self) -> list[int]:
        jobs = [job for job in (await look(self.world)).jobs.values() if job.status not in TERMINAL]
        return [job.due_at for job in jobs]

    async def _work(self) -> bool:
        """Claim and complete what is ready; whether there was anything."""
        got: list[wire.ClaimedJob] = [
            *await self.world.on.claim.claim_callbacks(wire.ClaimRequest(worker="e", max=100))
        ]
        for tenant in TENANTS:
            got += await self.world.claim(100, worker="last", tenant=tenant)
        for job in got:
            assert await self.world.complete(job.lease_token) is Status.SUCCEEDED
        return bool(got)

    # inside

    def _run(self, work: Awaitable[T]) -> T:
        async def main() -> T:
            return await work

        return self.loop.run_until_complete(main())

    def _do(self, work: Awaitable[T], luck: Luck = ("good", 0)) -> T | None:
        """Do something that a crash or a failing store may end; None if it did."""
        fault, (what, points) = self.world.fault, luck
        match what:
            case "crash":
                fault.after(points)
            case "fail once":
                fault.after(points, StoreUnavailable("once"))
            case "fail":
                fault.always(StoreUnavailable("always"))
            case _:
                pass
        try:
            return self._run(work)
        except Crashed:
            self._restart()
        except ServerUnavailable:
            if what == "good":
                raise  # the store failed by itself
        finally:
            fault.clear()
        return None

    def _wish(self, work: Awaitable[T], luck: Luck) -> T | None:
        """As `_do`, for a wish that the job's state may forbid."""
        try:
            return self._do(work, luck)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
            return None

    def _restart(self) -> None:
        self._run(self.world.restart())

    def _got(self, jobs: list[Any] | None, request: str | None) -> None:
        for job in jobs or ():
            name = (job.job_id, job.attempt)
            assert request is not None or name not in self.handed, "an attempt was handed out twice"
            self.handed[name] = job.lease_token
            self.tokens.append(job)
            self.ledger.must_hold(job.job_id, job.attempt)
            self.ledger.same_key(job.job_id, job.idempotency_key)

    def _pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.accepted), label="job")
