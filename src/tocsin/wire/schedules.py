"""Schedules: how one is defined, previewed, changed and shown."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from tocsin.wire.basics import (
    DAY_S,
    HORIZON_S,
    Expiry,
    FreeName,
    Moment,
    Name,
    Priority,
    Tags,
    _null,
)
from tocsin.wire.jobs import RetryPolicy, Target, Timing

MAX_EVERY_S = 3_660 * DAY_S
MAX_PREVIEW = 100
MAX_CATCH_UP = 10_000
MAX_BACKFILL = 10_000

Cron = Annotated[str, Meta(min_length=1, max_length=500)]
ZoneName = Annotated[str, Meta(min_length=1, max_length=100)]
Every = Annotated[float, Meta(ge=1, le=MAX_EVERY_S)]
Note = Annotated[str, Meta(max_length=1000)]
MissedPolicy = Literal["run_latest", "run_all", "skip"]
Overlap = Literal["allow", "forbid", "replace"]
SkipReason = Literal["paused", "overlap", "deadline", "missed", "catch_up_limit", "skipped_by_user", "expired", "quota"]
ScheduleStatus = Literal["active", "paused", "finished", "broken"]


class JobTemplate(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What each occurrence's job is made of: a job without a time of its own."""

    queue: Name
    target: Target
    name: FreeName | None = None
    timing: Timing | None = None
    priority: Priority | None = None
    payload: Raw = field(default_factory=_null)
    retry: RetryPolicy | None = None
    expires_after_s: Expiry | None = None
    tags: Tags | None = None


class MissedRuns(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What becomes of occurrences that were not looked at before their successor was due."""

    policy: MissedPolicy = "run_latest"
    starting_deadline_s: Annotated[float, Meta(gt=0, le=HORIZON_S)] | None = None
    max_catch_up: Annotated[int, Meta(ge=1, le=MAX_CATCH_UP)] = 100


class SchedulePut(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `PUT /v1/schedules/by-name/{name}`: the whole definition. A pause is kept where `paused` is absent, so that a
    program that declares its schedules at every start undoes nobody's pause. `name` may repeat the name of the path."""

    job_template: JobTemplate
    name: FreeName | None = None
    cron: Cron | None = None
    time_zone: ZoneName | None = None
    every_s: Every | None = None
    anchor: Moment | None = None
    missed_runs: MissedRuns | None = None
    overlap: Overlap | None = "allow"
    start_at: Moment | None = None
    end_at: Moment | None = None
    max_runs: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    paused: bool | None | UnsetType = UNSET
    pause_note: Note | None = None
    pause_until: Moment | None = None

    def __post_init__(self) -> None:
        # Null is the default here too; nobody behind the reader has to ask.
        if self.overlap is None:
            self.overlap = "allow"
        if self.paused is None:
            self.paused = False


class ScheduleCreate(SchedulePut, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/schedules`."""

    name: FreeName


class SchedulePatch(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `PATCH /v1/schedules/{id}`: absent keeps, null sets the default, each field is replaced whole."""

    job_template: JobTemplate | UnsetType = UNSET
    cron: Cron | None | UnsetType = UNSET
    time_zone: ZoneName | None | UnsetType = UNSET
    every_s: Every | None | UnsetType = UNSET
    anchor: Moment | None | UnsetType = UNSET
    missed_runs: MissedRuns | None | UnsetType = UNSET
    overlap: Overlap | None | UnsetType = UNSET
    start_at: Moment | None | UnsetType = UNSET
    end_at: Moment | None | UnsetType = UNSET
    max_runs: Annotated[int, Meta(ge=1, le=2**53)] | None | UnsetType = UNSET
    paused: bool | None | UnsetType = UNSET
    pause_note: Note | None | UnsetType = UNSET
    pause_until: Moment | None | UnsetType = UNSET


class Preview(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/schedules:preview`. `after` is exclusive and defaults to now."""

    cron: Cron | None = None
    time_zone: ZoneName | None = None
    every_s: Every | None = None
    anchor: Moment | None = None
    after: Moment | None = None
    count: Annotated[int, Meta(ge=1, le=MAX_PREVIEW)] = 5


class Run(Struct, kw_only=True):
    """A run to come. `local` is the same instant in the schedule's zone. `note`: `gap` for the make-up run of a local time that
    the zone skips, `repeat` for a local time that the zone goes through twice."""

    at: str
    local: str
    note: str | None = None


class Previewed(Struct, kw_only=True):
    """The answer of a preview."""

    runs: list[Run]
    explanation: str
    hints: list[str]


class Schedule(Struct, kw_only=True):
    """A schedule as answers show it. Times are RFC 3339 text in UTC; header values of the template's target are masked."""

    schedule_id: str
    name: str
    revision: int
    status: str
    broken_reason: str | None
    cron: str | None
    time_zone: str | None
    every_s: float | None
    anchor: str | None
    job_template: JobTemplate | None
    missed_runs: MissedRuns
    overlap: str
    start_at: str | None
    end_at: str | None
    max_runs: int | None
    paused: bool
    pause_note: str | None
    pause_until: str | None
    next_run_at: str | None
    next_runs: list[Run]
    explanation: str
    hints: list[str]
    runs: int
    last_run_at: str | None
    last_status: str | None
    created_at: str
    updated_at: str


class Skip(Struct, kw_only=True):
    """A range of occurrences that did not run."""

    from_: str = field(name="from")
    to: str
    count: int
    reason: str
    recorded_at: str
    detail: str | None


class Trigger(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/schedules/{id}:trigger`; without a payload the template's is taken."""

    payload: Raw | UnsetType = UNSET


class Backfill(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/schedules/{id}:backfill`: every occurrence of `[from, to)`, `to` at most now."""

    from_: Moment = field(name="from")
    to: Moment
    max: Annotated[int, Meta(ge=1, le=MAX_BACKFILL)] = 1_000
    order: Literal["oldest_first", "newest_first"] = "oldest_first"
    concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 1


class Backfilled(Struct, kw_only=True):
    """The answer of a backfill: how many occurrences will run."""

    backfill_id: str
    count: int
