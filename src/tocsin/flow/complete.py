"""Complete: a worker reports how its attempt ended.

Successes are one batch of conditional moves; anything else is decided from the job's state and written where that state still
stands (read, decide, write; a lost race is read again). A repeated report gets the same answer for as long as the attempt is
known, a late one of a superseded attempt is refused, counted and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tocsin import telemetry, wire
from tocsin.clock import Clock
from tocsin.errors import Refused
from tocsin.flow.ending import Ender
from tocsin.flow.ends import Ends
from tocsin.flow.tally import Tally
from tocsin.flow.telling import told
from tocsin.flow.tokens import Lease
from tocsin.model.job import HELD, JobState, Status
from tocsin.near.port import NearTier
from tocsin.store.port import Change, JobStore, NotYours, Success
from tocsin.wire import Outcome

ROUNDS = 8

Report = tuple[Lease, wire.Completion]
Answer = Status | NotYours | Refused


class Completer:
    """Takes workers' reports."""

    def __init__(self, store: JobStore, near: NearTier, ender: Ender, ends: Ends, tally: Tally, clock: Clock) -> None:
        self._store, self._near, self._ender, self._ends = store, near, ender, ends
        self._tally, self._clock = tally, clock

    async def complete(self, items: Sequence[Report]) -> list[Answer]:
        """End attempts; each answer is the job's status, why the report was not taken, or a problem."""
        answers: list[Answer | None] = [None] * len(items)
        successes: list[int] = []
        others: list[int] = []
        for at, (_, report) in enumerate(items):
            if len(report.result) > wire.MAX_RESULT_BYTES:
                answers[at] = _too_large(len(report.result))
            else:
                (successes if report.outcome == "succeeded" else others).append(at)
        others += await self._succeed(items, successes, answers)
        for _ in range(ROUNDS):
            if not others:
                break
            others = await self._decide(items, others, answers)
        # Where every round was lost to another writer of the same job, nothing is known yet about this report.
        return [_contended() if answer is None else answer for answer in answers]

    async def _succeed(self, items: Sequence[Report], places: list[int], answers: list[Answer | None]) -> list[int]:
        """Move the successes; the places of those that were not held at their attempt."""
        if not places:
            return []
        won = await self._store.succeed([_success(*items[at]) for at in places])
        done = [items[at][0] for at, ok in zip(places, won, strict=True) if ok]
        await told("ended", self._near.unlease([(lease.job_id, lease.attempt) for lease in done]))
        self._ends.tell(lease.job_id for lease in done)
        self._count(done)
        left = []
        for at, ok in zip(places, won, strict=True):
            if ok:
                answers[at] = Status.SUCCEEDED
            else:
                left.append(at)
        return left

    async def _decide(self, items: Sequence[Report], places: list[int], answers: list[Answer | None]) -> list[int]:
        """Read, decide, write; the places of those whose write was lost to another."""
        states = await self._store.states([items[at][0].job_id for at in places])
        changes: list[Change] = []
        changing: list[int] = []
        for at, job in zip(places, states, strict=True):
            lease, report = items[at]
            answers[at] = await self._known(lease, report, job)
            if answers[at] is None and job is not None:
                changes.append(self._change(report, job))
                changing.append(at)
        if not changes:
            return []
        won = await self._ender.write(changes)
        for at, change, ok in zip(changing, changes, won, strict=True):
            if ok:
                answers[at] = change.after.status
        return [at for at, ok in zip(changing, won, strict=True) if not ok]

    async def _known(self, lease: Lease, report: wire.Completion, job: JobState | None) -> Answer | None:
        """The answer for a report that changes nothing; None if its attempt is the current one."""
        outcome = Outcome(report.outcome)
        if job is None:
            return _refused(NotYours.UNKNOWN)
        if job.status in HELD and job.attempt == lease.attempt:
            if outcome is Outcome.CANCELLED and job.status is Status.RUNNING:
                return _not_asked_to_cancel()
            return None
        if job.attempt < lease.attempt:
            return _refused(NotYours.UNKNOWN)
        if job.attempt == lease.attempt and job.outcome is outcome:
            # The last attempt's outcome stands on the job: a whole batch that is repeated costs no query per report.
            return job.status
        for record in await self._store.attempts(lease.job_id):
            if record.attempt == lease.attempt and record.outcome is outcome:
                return job.status
        return _refused(NotYours.SUPERSEDED)

    def _change(self, report: wire.Completion, job: JobState) -> Change:
        return self._ender.change(
            job,
            Outcome(report.outcome),
            error=report.error,
            retry_after_s=report.retry_after_s,
            result=_result(report),
            status_code=report.status_code,
            response=_response(report),
        )

    def _count(self, done: Sequence[Lease]) -> None:
        now = self._clock.now_ms()
        for (tenant, queue), count in Counter([lease[:2] for lease in done]).items():
            self._tally.succeeded(tenant, queue, now, count)
        telemetry.SUCCEEDED.inc(len(done))


def _success(lease: Lease, report: wire.Completion) -> Success:
    return Success(
        job_id=lease.job_id,
        attempt=lease.attempt,
        result=_result(report),
        status_code=report.status_code,
        response=_response(report),
    )


def _result(report: wire.Completion) -> bytes | None:
    return None if len(report.result) == 4 and bytes(report.result) == b"null" else bytes(report.result)


def _response(report: wire.Completion) -> bytes | None:
    return None if report.response is None else wire.encode(report.response)


def _refused(why: NotYours) -> NotYours:
    telemetry.REFUSED.labels(f"completion {why.value}").inc()
    return why


def _too_large(size: int) -> Refused:
    return Refused(
        413,
        "result-too-large",
        "Result too large",
        f"the result has {size} bytes, at most {wire.MAX_RESULT_BYTES} are kept; the attempt is still open:"
        " store the result elsewhere and report a reference",
    )


def _not_asked_to_cancel() -> Refused:
    detail = "the outcome `cancelled` needs a cancel request; report `released` to hand the job back"
    return Refused(422, "invalid", "Invalid request", detail, errors=(("/outcome", detail),))


def _contended() -> Refused:
    return Refused(
        503,
        "overloaded",
        "Too many changes at once",
        f"the job was changed by others {ROUNDS} times meanwhile; report again",
        retry_after_s=1.0,
    )
