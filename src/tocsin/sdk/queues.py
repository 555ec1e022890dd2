"""`client.queues`, `client.dead` and `client.attempts`: lines of jobs, their dead letters, and the calls of workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

import msgspec

from tocsin import wire
from tocsin.errors import UsageError
from tocsin.sdk.answers import Job, Statused
from tocsin.sdk.calls import Calls, given, path
from tocsin.sdk.transport import DEFAULT_TIMEOUT_S, decode


class QueueSettings(TypedDict, total=False):
    """What can be set on a queue; None sets the default."""

    paused: bool | None
    pause_note: str | None
    pause_until: datetime | None
    lease_s: float | None
    retry: wire.RetryPolicy | None


class Queues:
    """The calls about queues."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self) -> AsyncIterator[wire.Queue]:
        """Every queue with its figures."""
        return self._calls.pages("/v1/queues", wire.Queue, [])

    async def get(self, queue: str) -> wire.Queue:
        """One queue with its settings and figures."""
        return await self._calls.get(path("queues/", queue), wire.Queue)

    async def put(self, queue: str, **settings: Unpack[QueueSettings]) -> wire.Queue:
        """Change settings of a queue, and make it if it is new. What is left out stays."""
        answer = await self._calls.send("PUT", path("queues/", queue), body=msgspec.json.encode(settings), repeat=True)
        return decode(answer.body, wire.Queue)

    async def claim(
        self,
        queue: str,
        *,
        worker: str,
        max: int = 1,
        lease_s: float | None = None,
        wait_s: float = 0.0,
        request_id: str | None = None,
        handlers: Sequence[str] | None = None,
    ) -> Sequence[wire.ClaimedJob]:
        """Take jobs by hand; `tocsin.Worker` does this, the heartbeats and the reports for you."""
        request = wire.ClaimRequest(
            worker=worker,
            max=max,
            lease_s=lease_s,
            wait_s=wait_s,
            request_id=request_id or self._calls.entropy.bytes(16).hex(),
            handlers=None if handlers is None else [*handlers],
        )
        answer = await self._calls.send(
            "POST",
            path("queues/", queue, ":claim"),
            body=wire.encode(request),
            timeout_s=DEFAULT_TIMEOUT_S + wait_s,
            repeat=True,
        )
        return decode(answer.body, wire.ClaimAnswer).jobs


class DeadLetters:
    """The calls about jobs that used up their tries or failed for good."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, queue: str) -> AsyncIterator[Job]:
        """The dead letters of a queue."""
        return self._calls.pages(path("queues/", queue, "/dead-letters"), Job, [])

    async def redrive(
        self,
        queue: str,
        *,
        job_ids: Iterable[str] | None = None,
        filter: wire.DeadFilter | Mapping[str, Any] | None = None,
        max: int = 1000,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> wire.Redriven:
        """Try dead letters again, with all their tries: those named, or those that match `filter` (`{}` is all of them)."""
        body = _selection(job_ids, filter, max, dry_run) | given(rate_per_s=rate_per_s)
        answer = await self._calls.send(
            "POST", path("queues/", queue, "/dead-letters:redrive"), json=body, repeat=dry_run
        )
        return decode(answer.body, wire.Redriven)

    async def discard(
        self,
        queue: str,
        *,
        job_ids: Iterable[str] | None = None,
        filter: wire.DeadFilter | Mapping[str, Any] | None = None,
        max: int = 1000,
        dry_run: bool = False,
    ) -> wire.Discarded:
        """Give dead letters up, selected as for `redrive`; they stay readable as long as other finished jobs."""
        body = _selection(job_ids, filter, max, dry_run)
        answer = await self._calls.send(
            "POST", path("queues/", queue, "/dead-letters:discard"), json=body, repeat=dry_run
        )
        return decode(answer.body, wire.Discarded)


class Ending(TypedDict, total=False):
    """What can be said about the end of an attempt, beside its outcome."""

    error: str
    result: Any
    retry_after_s: float


class Attempts:
    """The calls of a worker about the attempts that it has claimed, by their lease tokens. Repeats nothing by itself."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def heartbeat(self, token: str, *, progress: Any = msgspec.UNSET) -> wire.Beat:
        """Renew one lease, and keep `progress` if given."""
        body = None if progress is msgspec.UNSET else msgspec.json.encode({"progress": progress})
        answer = await self._calls.send("POST", path("attempts/", token, ":heartbeat"), body=body, repeat=False)
        return decode(answer.body, wire.Beat)

    async def complete(self, token: str, outcome: wire.ReportedOutcome, **ending: Unpack[Ending]) -> str:
        """Say how an attempt ended; the job's status after it."""
        body = {"outcome": outcome, **ending}
        answer = await self._calls.send("POST", path("attempts/", token, ":complete"), json=body, repeat=False)
        return decode(answer.body, Statused).status

    async def heartbeat_batch(self, tokens: Iterable[str]) -> Sequence[wire.Beat]:
        """Renew up to 5,000 leases; what became of each, in order."""
        answer = await self._calls.send("POST", "/v1/attempts:heartbeat", json={"tokens": [*tokens]}, repeat=False)
        return decode(answer.body, wire.HeartbeatAnswer).results

    async def complete_batch(self, items: Iterable[Mapping[str, Any]]) -> Sequence[wire.Completed]:
        """Say how up to 5,000 attempts ended: `{"token": …, "outcome": …, …}` each; the statuses, in order."""
        answer = await self._calls.send("POST", "/v1/attempts:complete", json={"items": [*items]}, repeat=False)
        return decode(answer.body, wire.CompletionAnswer).results


def _selection(
    job_ids: Iterable[str] | None, filter: wire.DeadFilter | Mapping[str, Any] | None, max: int, dry_run: bool
) -> dict[str, Any]:
    if (job_ids is None) == (filter is None):
        raise UsageError("select dead letters with job_ids=[...] or with filter={...} ({} is all of them)")
    if isinstance(filter, wire.DeadFilter):
        filter = {name: value for name, value in msgspec.structs.asdict(filter).items() if value is not None}
    return {**given(job_ids=None if job_ids is None else [*job_ids], filter=filter), "max": max, "dry_run": dry_run}
