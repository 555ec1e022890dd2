"""`client.schedules`: define, preview, change, pause and run recurring jobs.

    client.schedules.upsert(
        "nightly-report", cron="0 2 * * *", time_zone="Asia/Kolkata", queue="reports", handler="reports.settle"
    )

A definition is said in the words of a job (`handler=`, `payload=`, `retry=`, …) and those of a schedule (`cron=` or `every=`, …).
It may be written in a program that starts often: an upsert of what is there already changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, cast

import msgspec
from msgspec import UNSET

from tocsin import wire
from tocsin.errors import Refused, UsageError
from tocsin.sdk.answers import Job, Schedule
from tocsin.sdk.calls import Calls, given, path
from tocsin.sdk.jobs import Seconds, Template, Terms, details, job_of, refuse_unknown, seconds
from tocsin.sdk.transport import Answer, decode


class Rules(TypedDict, total=False):
    """What can be said about a schedule beside its times and its target."""

    queue: str
    job_name: str | None
    """The name of its jobs; the schedule has its own."""
    missed_runs: wire.MissedPolicy | wire.MissedRuns | None
    """What becomes of runs that nothing was there to start: `"run_latest"` (default), `"run_all"`, `"skip"`, or in full."""
    overlap: wire.Overlap | None
    """What becomes of a run while an earlier one goes on: `"allow"` (default), `"forbid"`, `"replace"`."""
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None


class Declared(Terms, Rules, total=False):
    """What a worker can say of a schedule beside its handler."""


class Definition(Template, Rules, total=False):
    """What can be said about a schedule: when it runs, and what each run's job is."""

    cron: str | None
    """Five fields or a word such as `@daily`. One of `cron` and `every`."""
    time_zone: str | None
    """The IANA name of the zone that `cron` is read in, such as `Asia/Kolkata`; default UTC."""
    every: Seconds | None
    """An interval of at least a second, in elapsed time."""
    anchor: datetime | None
    """An instant that the interval's runs are counted from; default: `start_at`, or when the schedule is made."""


class Change(Definition, total=False):
    """The same and its pause."""

    paused: bool | None
    pause_note: str | None
    pause_until: datetime | None


class Schedules:
    """The calls about schedules."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(self, name: str, **definition: Unpack[Change]) -> Schedule:
        """Make a schedule; its name must be new (409 otherwise). Not repeated by itself; `upsert` may be.

        Arguments: `queue`; one of `handler`, `url` (with `method`, `headers`) and `target`; one of `cron` (with `time_zone`) and
        `every` (with `anchor`); `missed_runs`, `overlap`, `start_at`, `end_at`, `max_runs`, `paused`, `pause_note`, `pause_until`;
        and for its jobs `payload`, `window`, `may_widen`, `priority`, `retry`, `timeout_s`, `expires_after`, `tags`, `job_name`.
        """
        body = {"name": name, **whole(definition)}
        return _schedule(await self._calls.send("POST", "/v1/schedules", json=body, repeat=False))

    async def upsert(self, name: str, **definition: Unpack[Change]) -> Schedule:
        """Make the schedule of this name, or give it this definition; an equal one changes nothing.

        The arguments are those of `create`, and what is left out gets its default; only a pause stays where `paused` is left out.
        """
        return _schedule(await self._calls.send("PUT", by_name(name), json=whole(definition), repeat=True))

    async def get(self, schedule_id: str) -> Schedule:
        """One schedule, with its next five runs."""
        return await self._calls.get(path("schedules/", schedule_id), Schedule)

    async def get_by_name(self, name: str) -> Schedule:
        """The schedule of this name. Raises `Refused` (404) if there is none."""
        async for schedule in self.list(name=name):
            if schedule.name == name:
                return schedule
        raise Refused(404, "not-found", "Not found", f"there is no schedule named {name!r}")

    def list(
        self, *, status: wire.ScheduleStatus | None = None, name: str | None = None, page: int = 50
    ) -> AsyncIterator[Schedule]:
        """The schedules that match everything given, newest first, fetched page by page."""
        query = [(key, str(value)) for key, value in given(status=status, name=name).items()]
        return self._calls.pages("/v1/schedules", Schedule, query, page)

    async def update(self, schedule_id: str, *, if_match: int | None = None, **changes: Unpack[Change]) -> Schedule:
        """Change a schedule. What is left out stays, None sets the default.

        What its jobs are is replaced whole: with any argument of the job template, `queue` and `handler`, `url` or `target` are
        needed. `if_match` is the revision that is to be changed; another one is refused (412).
        """
        headers = None if if_match is None else {"If-Match": f'"{if_match}"'}
        answer = await self._calls.send(
            "PATCH", path("schedules/", schedule_id), json=_body(changes), headers=headers, repeat=if_match is None
        )
        return _schedule(answer)

    async def pause(self, schedule_id: str, *, note: str | None = None, until: datetime | None = None) -> Schedule:
        """Stop starting runs, for good or `until` an instant; started ones go on. Pausing again replaces note and end."""
        return await self.update(schedule_id, paused=True, pause_note=note, pause_until=until)

    async def resume(self, schedule_id: str) -> Schedule:
        """Start runs again, from the next one on."""
        return await self.update(schedule_id, paused=False, pause_note=None, pause_until=None)

    async def delete(self, schedule_id: str) -> None:
        """Delete a schedule and cancel its waiting job; started ones go on."""
        await self._calls.send("DELETE", path("schedules/", schedule_id), repeat=False)

    def jobs(self, schedule_id: str, *, page: int = 50) -> AsyncIterator[Job]:
        """Its jobs, the newest occurrence first, fetched page by page."""
        return self._calls.pages(path("schedules/", schedule_id, "/jobs"), Job, [], page)

    def skips(self, schedule_id: str, *, page: int = 50) -> AsyncIterator[wire.Skip]:
        """Its occurrences that did not run, as ranges with their reasons, the newest first."""
        return self._calls.pages(path("schedules/", schedule_id, "/skips"), wire.Skip, [], page)

    async def trigger(self, schedule_id: str, *, payload: Any = UNSET, idempotency_key: str | None = None) -> Job:
        """Run it once now, beside its plan, also while it is paused. Without `payload` the template's is taken.

        Without an `idempotency_key` the client makes one, so that it can repeat the request when the answer is lost.
        """
        key = idempotency_key or self._calls.entropy.bytes(16).hex()
        body = None if payload is UNSET else msgspec.json.encode({"payload": payload})
        answer = await self._calls.send(
            "POST",
            path("schedules/", schedule_id, ":trigger"),
            body=body,
            headers={"Idempotency-Key": key},
            repeat=True,
        )
        return job_of(answer)

    async def skip_next(self, schedule_id: str) -> Schedule:
        """Leave out the next run; each call leaves out one more."""
        return _schedule(await self._calls.send("POST", path("schedules/", schedule_id, ":skip-next"), repeat=False))

    async def backfill(
        self,
        schedule_id: str,
        start: datetime,
        end: datetime,
        *,
        max: int = 1_000,
        order: Literal["oldest_first", "newest_first"] = "oldest_first",
        concurrency: int = 1,
    ) -> wire.Backfilled:
        """Run every occurrence of a past stretch, `start` included, `end` (at most now) not; more than `max` is refused."""
        body = {
            "from": _instant("start", start),
            "to": _instant("end", end),
            "max": max,
            "order": order,
            "concurrency": concurrency,
        }
        answer = await self._calls.send("POST", path("schedules/", schedule_id, ":backfill"), json=body, repeat=False)
        return decode(answer.body, wire.Backfilled)

    async def preview(
        self,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        time_zone: str | None = None,
        anchor: datetime | None = None,
        after: datetime | None = None,
        count: int = 5,
    ) -> wire.Previewed:
        """When such a schedule would run after `after` (default: now), explained, without making one."""
        body = given(
            cron=cron,
            every_s=None if every is None else seconds(every),
            time_zone=time_zone,
            anchor=_instant("anchor", anchor),
            after=_instant("after", after),
        )
        body["count"] = count
        answer = await self._calls.send("POST", "/v1/schedules:preview", json=body, repeat=True)
        return decode(answer.body, wire.Previewed)


def by_name(name: str) -> str:
    """The path that a schedule is upserted at."""
    return path("schedules/by-name/", name)


def whole(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a create or an upsert: a whole definition. Raises UsageError for what the server could not say as well."""
    body = _body(definition)
    if "job_template" not in body:
        raise UsageError("say what is to be done: queue='...' and handler='...', url='https://...' or target=...")
    # A default is said by leaving the field out.
    return {field: value for field, value in body.items() if value is not None}


def _schedule(answer: Answer) -> Schedule:
    schedule = decode(answer.body, Schedule)
    schedule.made = answer.status == 201
    return schedule


def _body(definition: Mapping[str, Any]) -> dict[str, Any]:
    refuse_unknown(definition, Change.__annotations__, "a schedule", {"interval": "every", "tz": "time_zone"})
    plain = ("cron", "time_zone", "overlap", "max_runs", "paused", "pause_note")
    body = {name: definition[name] for name in plain if name in definition}
    for name in ("anchor", "start_at", "end_at", "pause_until"):
        if name in definition:
            body[name] = _instant(name, definition[name])
    if "every" in definition:
        every = definition["every"]
        body["every_s"] = None if every is None else seconds(every)
    if "missed_runs" in definition:
        missed = definition["missed_runs"]
        body["missed_runs"] = {"policy": missed} if isinstance(missed, str) else missed
    template = _template(definition)
    if template is not None:
        body["job_template"] = template
    return body


def _template(definition: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the jobs are, or None if nothing is said about that."""
    said = {name: definition[name] for name in Template.__annotations__ if name in definition}
    if "job_name" in definition:
        said["name"] = definition["job_name"]
    if not said and "queue" not in definition:
        return None
    template = details(cast(Any, said))
    if "target" not in template or "queue" not in definition:
        raise UsageError(
            "a schedule's jobs are said as a whole: queue='...' with handler='...', url='https://...' or target=..."
        )
    return {"queue": definition["queue"], **template}


def _instant(name: str, value: datetime | None) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.utcoffset() is None):
        raise UsageError(
            f"{name}={value!r} is not an instant; give a datetime with a time zone: datetime(..., tzinfo=...)"
        )
    return value
