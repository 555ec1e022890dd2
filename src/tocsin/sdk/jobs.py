"""`client.jobs`: create, read, change and cancel jobs."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Required, TypedDict, Unpack

import msgspec

from tocsin import wire
from tocsin.errors import UsageError
from tocsin.sdk.answers import Attempt, Items, Job
from tocsin.sdk.calls import Calls, given, path
from tocsin.sdk.transport import Answer, decode

Seconds = float | timedelta
MAX_CHUNK_BYTES = wire.MAX_BATCH_BYTES - 1024 * 1024


class Terms(TypedDict, total=False):
    """What can be said alike about a job, the jobs of a schedule and those of a declared one."""

    timeout_s: float
    payload: Any
    """Any JSON value, at most 64 KiB."""
    window: Seconds | None
    """Start any time within so long after its time: the job becomes flexible and helps to keep busy minutes free."""
    may_widen: bool
    """Over a quota, take a wider window instead of being refused."""
    priority: wire.Priority | None
    retry: wire.RetryPolicy | None
    """`wire.RetryPolicy(max_attempts=…, initial_backoff_s=…, max_backoff_s=…)`, each optional."""
    tags: Mapping[str, str] | None
    expires_after: Seconds | None
    """Not begun so long after its time: it is skipped."""


class Template(Terms, total=False):
    """The same, and what is to be done."""

    handler: str
    """Hand it to a worker that knows this handler. One of `handler`, `url` and `target` says what is to be done."""
    url: str
    """Call this address."""
    target: wire.Target
    """The same in full; `method`, `headers` and `timeout_s` are then part of it."""
    method: wire.Method
    headers: Mapping[str, str]


class Details(Template, total=False):
    """What can be said about a job, when it is made and later (`patch`)."""

    delay: Seconds | None
    """Seconds from now. One of `delay` and `run_at`; neither means now."""
    run_at: datetime | str | None
    """An instant; it must have a time zone. As text: RFC 3339."""
    name: str | None


class NewJob(Details, total=False):
    """A job to be made."""

    queue: Required[str]
    idempotency_key: str
    """A create with a key that was used before gives the job which that one made."""


class Jobs:
    """The calls about jobs."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(self, **job: Unpack[NewJob]) -> Job:
        """Make a job; when this returns it is durable.

        Arguments: `queue`; one of `handler`, `url` (with `method`, `headers`) and `target`; `payload`; `delay` or `run_at`;
        `window`, `may_widen`, `priority`, `retry`, `timeout_s`, `expires_after`, `tags`, `name`, `idempotency_key` (see `NewJob`).
        Without an `idempotency_key` the client makes one, so that it can repeat the request when the answer is lost.
        Raises `Refused`; `ServerUnavailable` means that it is not known whether the job was made.
        """
        key = job.get("idempotency_key") or self._calls.entropy.bytes(16).hex()
        answer = await self._calls.send(
            "POST", "/v1/jobs", body=msgspec.json.encode(_new(job)), headers={"Idempotency-Key": key}, repeat=True
        )
        return job_of(answer)

    async def create_batch(
        self, jobs: Iterable[NewJob], *, window: Seconds | None = None
    ) -> Sequence[wire.BatchResult]:
        """Make many jobs, in requests of up to 5,000; what became of each, in order. One bad job stops no other.

        `window` spreads them over so many seconds. A request is repeated after a lost answer only if each of its jobs has
        an `idempotency_key`; else `ServerUnavailable` is raised and the jobs of that request may or may not exist.
        """
        results: list[wire.BatchResult] = []
        for chunk, all_have_keys in _chunks(jobs):
            window_s = b"" if window is None else b',"window_s":' + msgspec.json.encode(seconds(window))
            body = b'{"jobs":[' + b",".join(chunk) + b"]" + window_s + b"}"
            answer = await self._calls.send("POST", "/v1/jobs:batch", body=body, repeat=all_have_keys)
            results += decode(answer.body, wire.BatchAnswer).results
        return results

    async def get(self, job_id: str) -> Job:
        """One job, also long after it has ended."""
        return await self._calls.get(path("jobs/", job_id), Job)

    def list(
        self,
        *,
        queue: str | None = None,
        status: str | None = None,
        schedule_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        page: int = 50,
    ) -> AsyncIterator[Job]:
        """The jobs that match everything given, newest first, fetched page by page."""
        query = [
            (name, str(value)) for name, value in given(queue=queue, status=status, schedule_id=schedule_id).items()
        ]
        query += [("tag", f"{key}:{value}") for key, value in (tags or {}).items()]
        moments = given(created_after=created_after, created_before=created_before)
        query += [(name, moment.isoformat()) for name, moment in moments.items()]
        return self._calls.pages("/v1/jobs", Job, query, page)

    async def patch(self, job_id: str, *, if_match: int | None = None, **changes: Unpack[Details]) -> Job:
        """Change a job that still waits for its time. What is left out stays, None sets the default.

        `if_match` is the version that is to be changed; another one is refused (412).
        """
        headers = None if if_match is None else {"If-Match": f'"{if_match}"'}
        body = msgspec.json.encode(_body(changes))
        answer = await self._calls.send(
            "PATCH", path("jobs/", job_id), body=body, headers=headers, repeat=if_match is None
        )
        return job_of(answer)

    async def cancel(self, job_id: str) -> Job:
        """Cancel a job. A running one gets the status CANCEL_REQUESTED, and its worker is told."""
        return job_of(await self._calls.send("DELETE", path("jobs/", job_id), repeat=True))

    async def run_now(self, job_id: str) -> Job:
        """Fire a job that waits for its time or for its next attempt."""
        return job_of(await self._calls.send("POST", path("jobs/", job_id, ":run-now"), repeat=False))

    async def attempts(self, job_id: str) -> Sequence[Attempt]:
        """Every attempt of a job, oldest first, the running one included."""
        return (await self._calls.get(path("jobs/", job_id, "/attempts"), Items[Attempt])).items


def job_of(answer: Answer) -> Job:
    """The job of an answer, with what its headers say."""
    job = decode(answer.body, Job)
    job.replayed = answer.headers.get("idempotency-replayed") == "true"
    return job


def _new(job: NewJob) -> dict[str, Any]:
    body = _body(job)
    if "target" not in body:
        raise UsageError("say what is to be done: handler='...', url='https://...' or target=...")
    body["queue"] = job["queue"]
    return body


def _body(job: Details) -> dict[str, Any]:
    _refuse_unknown(job)
    return details(job)


def details(job: Details) -> dict[str, Any]:
    """The body's fields. Only what the server could not say as well is checked here."""
    body: dict[str, Any] = {}
    plain = ("payload", "priority", "retry", "tags", "name", "run_at")
    body.update((name, job[name]) for name in plain if name in job)  # type: ignore[literal-required]
    run_at = job.get("run_at")
    if isinstance(run_at, datetime) and run_at.tzinfo is None:
        raise UsageError(f"run_at={run_at} has no time zone, so it is not an instant; use datetime(..., tzinfo=...)")
    for name, field in (("delay", "delay_s"), ("expires_after", "expires_after_s")):
        if name in job:
            value = job[name]  # type: ignore[literal-required]
            body[field] = None if value is None else seconds(value)
    if "window" in job or "may_widen" in job:
        window = job.get("window")
        timing: dict[str, Any] = {"class": "precise"} if window is None else {"class": "flexible"}
        timing |= {} if window is None else {"window_s": seconds(window)}
        body["timing"] = timing | ({"may_widen": True} if job.get("may_widen") else {})
    target = _target(job)
    if target is not None:
        body["target"] = target
    return body


def _refuse_unknown(job: Details) -> None:
    """A mistyped argument must not be ignored: a job without its time would fire at once."""
    refuse_unknown(job, NewJob.__annotations__, "a job", {"at": "run_at"})


def refuse_unknown(
    arguments: Iterable[str], known: Collection[str], whose: str, meant: Mapping[str, str] | None = None
) -> None:
    """Raise UsageError for the first argument that is not known; `meant` says what some of those stand for."""
    for name in arguments:
        if name not in known:
            close = [*difflib.get_close_matches(name.removesuffix("_s"), known, 1), *[(meant or {}).get(name, "")]]
            hint = f"did you mean {close[0]}? " if close[0] else ""
            raise UsageError(f"{name} is not an argument of {whose}; {hint}there are: {', '.join(sorted(known))}")


def _target(job: Details) -> object | None:
    ways = [name for name in ("handler", "url", "target") if name in job]
    parts = given(method=job.get("method"), headers=job.get("headers"), timeout_s=job.get("timeout_s"))
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)} contradict each other; give one")
    if "url" in job:
        return {"type": "http", "url": job["url"], **parts}
    if "handler" in job and not parts.keys() - {"timeout_s"}:
        return {"type": "task", "handler": job["handler"], **parts}
    if parts:
        raise UsageError(f"{', '.join(parts)} belong to url=... (timeout_s also to handler=...)")
    return job.get("target")


def _chunks(jobs: Iterable[NewJob]) -> Iterable[tuple[list[bytes], bool]]:
    """The jobs' JSON in parts that one request can carry, and whether every job of the part has a key."""
    chunk: list[bytes] = []
    size, all_have_keys = 0, True
    for job in jobs:
        body = _new(job)
        key = job.get("idempotency_key")
        if key is not None:
            body["idempotency_key"] = key
        encoded = msgspec.json.encode(body)
        if chunk and (len(chunk) == wire.MAX_BATCH_JOBS or size + len(encoded) > MAX_CHUNK_BYTES):
            yield chunk, all_have_keys
            chunk, size, all_have_keys = [], 0, True
        chunk.append(encoded)
        size += len(encoded) + 1
        all_have_keys = all_have_keys and key is not None
    if chunk:
        yield chunk, all_have_keys


def seconds(value: Seconds) -> float:
    """A duration as the API takes it."""
    return value.total_seconds() if isinstance(value, timedelta) else value
