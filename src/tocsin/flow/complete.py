"""Complete: a worker reports how its attempt ended.

Successes are one batch of conditional moves; anything else is decided from the job's state and written where that state still
stands (read, decide, write; a lost race is read again). A repeated report gets the same answer for as long as the attempt is
known, a late one of a superseded attempt is refused, counted and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tocsin import telemetry, wire
from tocsin.clock import Clock
from tocsin.errors import Refused
from tocsin.flow.ending import Ender
from tocsin.flow.tally import Tally
from tocsin.flow.tokens import Lease
from tocsin.model.job import HELD, JobState, Line, Status
from tocsin.near.port import NearTier
from tocsin.store.port import Change, JobStore, NotYours, Success
from tocsin.wire import Outcome

ROUNDS = 8

Report = tuple[Lease, wire.Completion]
Answer = Status | NotYours | Refused


@dataclass(slots=True)
class _Open:
    """A report that is not settled yet, and its place in the answer."""

    at: int
    lease: Lease
    report: wire.Completion


class Completer:
    """Takes workers' reports."""

    def __init__(self, store: JobStore, near: NearTier, ender: Ender, tally: Tally, clock: Clock) -> None:
        self._store, self._near, self._ender = store, near, ender
        self._tally, self._clock = tally, clock

    async def complete(self, items: Sequence[Report]) -> list[Answer]:
        """End attempts; each answer is the job's status, why the report was not taken, or a problem."""
        answers: dict[int, Answer] = {}
        successes: list[_Open] = []
        others: list[_Open] = []
        for at, (lease, report) in enumerate(items):
            if len(bytes(report.result)) > wire.MAX_RESULT_BYTES:
                answers[at] = _too_large(len(bytes(report.result)))
            else:
                (successes if report.outcome == "succeeded" else others).append(_Open(at, lease, report))
        others += await self._succeed(successes, answers)
        for _ in range(ROUNDS):
            if not others:
                break
            others = await self._decide(others, answers)
        for item in others:
            # Every round lost to another writer of the same job; the worker asks again and finds out who won.
            answers[item.at] = NotYours.SUPERSEDED
        return [answers[at] for at in range(len(items))]

    async def _succeed(self, items: list[_Open], answers: dict[int, Answer]) -> list[_Open]:
        if not items:
            return []
        won = await self._store.succeed([_success(item) for item in items])
        done = [item for item, ok in zip(items, won, strict=True) if ok]
        await self._near.unlease([(item.lease.job_id, item.lease.attempt) for item in done])
        for item in done:
            answers[item.at] = Status.SUCCEEDED
        self._count(done)
        return [item for item, ok in zip(items, won, strict=True) if not ok]

    async def _decide(self, items: list[_Open], answers: dict[int, Answer]) -> list[_Open]:
        states = await self._store.states([item.lease.job_id for item in items])
        changes: list[Change] = []
        changing: list[_Open] = []
        for item, job in zip(items, states, strict=True):
            answer = await self._known(item, job)
            if answer is not None:
                answers[item.at] = answer
            elif job is not None:
                changes.append(self._change(item, job))
                changing.append(item)
        if not changes:
            return []
        won = await self._ender.write(changes)
        for item, change, ok in zip(changing, changes, won, strict=True):
            if ok:
                answers[item.at] = change.after.status
        return [item for item, ok in zip(changing, won, strict=True) if not ok]

    async def _known(self, item: _Open, job: JobState | None) -> Answer | None:
        """The answer for a report that changes nothing; None if its attempt is the current one."""
        lease, outcome = item.lease, Outcome(item.report.outcome)
        if job is None:
            return _refused(NotYours.UNKNOWN)
        if job.status in HELD and job.attempt == lease.attempt:
            if outcome is Outcome.CANCELLED and job.status is Status.RUNNING:
                return _not_asked_to_cancel()
            return None
        if job.attempt < lease.attempt:
            return _refused(NotYours.UNKNOWN)
        for record in await self._store.attempts(lease.job_id):
            if record.attempt == lease.attempt and record.outcome is outcome:
                return job.status
        return _refused(NotYours.SUPERSEDED)

    def _change(self, item: _Open, job: JobState) -> Change:
        report = item.report
        return self._ender.change(
            job,
            Outcome(report.outcome),
            error=report.error,
            retry_after_s=report.retry_after_s,
            result=_result(report),
            status_code=report.status_code,
            response=_response(report),
        )

    def _count(self, done: list[_Open]) -> None:
        lines: Counter[tuple[str, str]] = Counter((item.lease.tenant, item.lease.queue) for item in done)
        now = self._clock.now_ms()
        for (tenant, queue), count in lines.items():
            line = _any_line(tenant, queue)
            self._tally.moved(line, Status.RUNNING, Status.SUCCEEDED, count)
            self._tally.completed(line, now, count)
        telemetry.SUCCEEDED.inc(len(done))


def _any_line(tenant: str, queue: str) -> Line:
    from tocsin.model.job import Lane

    return Line(tenant, queue, Lane.PRECISE, "", "")


def _success(item: _Open) -> Success:
    report = item.report
    return Success(
        job_id=item.lease.job_id,
        attempt=item.lease.attempt,
        result=_result(report),
        status_code=report.status_code,
        response=_response(report),
    )


def _result(report: wire.Completion) -> bytes | None:
    result = bytes(report.result)
    return None if result == b"null" else result


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
