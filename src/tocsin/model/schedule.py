"""A schedule: what was asked for (`Spec`), what has been done about it (`State`), and when its occurrences fall (`Plan`).

The cursor of a schedule (`State.passed_at`) is the instant up to which everything is decided: each occurrence until then has
become a job or a skip. An active schedule has exactly one occurrence ahead of it, as a job that waits for its time; what moves it
on, and what becomes of an occurrence that is due, is decided in `model.recurrence`. Times are milliseconds since 1970 UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import Struct

from tocsin.model.cron import Cron
from tocsin.model.timing import CronTiming, IntervalTiming, Run, Timing
from tocsin.model.zones import Zones
from tocsin.wire import JobTemplate, MissedRuns, Overlap, SkipReason

UTC = "UTC"


class Rule(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """When: a cron expression in a zone, or every so many milliseconds of elapsed time from an anchor."""

    cron: str | None = None
    time_zone: str = UTC
    every_ms: int | None = None
    anchor: int = 0

    @property
    def zoned(self) -> bool:
        """Whether the answer depends on zone data."""
        return self.cron is not None and self.time_zone != UTC


class Spec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was asked for. `anchored`: the anchor was asked for, too, not taken from the creation. `start_at` and `end_at` both
    belong to the time in which the schedule runs."""

    rule: Rule
    job: JobTemplate
    anchored: bool = False
    missed: MissedRuns = MissedRuns()
    overlap: Overlap = "allow"
    start_at: int | None = None
    end_at: int | None = None
    max_runs: int | None = None

    @property
    def leading(self) -> bool:
        """Whether something may wait for the end of one of its jobs: an occurrence that is held, or the next of a backlog."""
        return self.overlap != "allow" or self.missed.policy == "run_all"


class Held(Struct, frozen=True, array_like=True):
    """An occurrence that was due and waits for another run to end: its job is SCHEDULED."""

    at: int
    job_id: str


class Backlog(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Occurrences that run one after another (`concurrency` at a time): those that were missed, or a backfill.

    What is left lies in (`low`, `high`) by `rule`, which is the schedule's as it was when the backlog began; `without` are
    occurrences in there that are decided. `going` are the jobs that have been started and have not ended.
    """

    kind: Literal["schedule", "backfill"]
    name: str
    rule: Rule
    low: int
    high: int
    left: int
    newest_first: bool = False
    concurrency: int = 1
    without: tuple[int, ...] = ()
    going: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        return not self.left and not self.going


class Stretch(Struct, frozen=True, array_like=True):
    """The latest skip, as long as nothing has run since: the next one with the same reason makes it longer."""

    first: int
    last: int
    count: int
    reason: SkipReason


class State(Struct, omit_defaults=True, kw_only=True):
    """What has been done about a schedule.

    `next_at` is the instant of the occurrence ahead, `job_id` its job, `fire_at` when that fires (inside its window), `offset_s` the
    zone's offset there and `zone_data` the version that it was computed with. `passed_at` is the cursor, `passed_local` the last
    occurrence that is decided on the zone's clocks: after a change of the zone's data no local time may come twice. `decided` are
    occurrences later than the cursor that are decided already. `owing`: the occurrence ahead is still to be computed, by a node
    with newer zone data. `runs` counts scheduled occurrences that have fired or are sure to. `paused_from` is the first occurrence
    that a pause takes out.
    """

    created_at: int
    updated_at: int
    next_at: int | None = None
    job_id: str | None = None
    fire_at: int | None = None
    offset_s: int = 0
    zone_data: str = ""
    passed_at: int | None = None
    passed_local: int | None = None
    decided: tuple[int, ...] = ()
    owing: bool = False
    runs: int = 0
    last_at: int | None = None
    last_job: str | None = None
    paused_from: int | None = None
    pause_note: str | None = None
    pause_until: int | None = None
    broken: str | None = None
    held: tuple[Held, ...] = ()
    backlogs: tuple[Backlog, ...] = ()
    stretch: Stretch | None = None


_SPEC, _STATE = msgspec.json.Decoder(Spec), msgspec.json.Decoder(State)
_ENCODER = msgspec.json.Encoder()


def encode(value: Spec | State) -> str:
    """The stored text of a schedule's half."""
    return _ENCODER.encode(value).decode()


def decode_spec(text: str) -> Spec:
    """The spec of a stored text; msgspec.DecodeError if it is damaged."""
    return _SPEC.decode(text)


def decode_state(text: str) -> State:
    """The state of a stored text; msgspec.DecodeError if it is damaged."""
    return _STATE.decode(text)


@dataclass(frozen=True, slots=True)
class Plan:
    """When a schedule's occurrences fall, between its start and its end, but for those that are decided already (`without`)."""

    timing: Timing
    start_at: int | None = None
    end_at: int | None = None
    without: frozenset[int] = frozenset()

    def next(self, after: int) -> Run | None:
        """The first occurrence after that instant; None: there is no more."""
        run = self.timing.next(after if self.start_at is None else max(after, self.start_at - 1))
        while run is not None and run.at in self.without:
            run = self.timing.next(run.at)
        return None if run is None or (self.end_at is not None and run.at > self.end_at) else run

    def last(self, before: int) -> Run | None:
        """The newest occurrence before that instant."""
        run = self.timing.last(before if self.end_at is None else min(before, self.end_at + 1))
        while run is not None and run.at in self.without:
            run = self.timing.last(run.at)
        return None if run is None or (self.start_at is not None and run.at < self.start_at) else run

    def count(self, after: int, until: int) -> int:
        """How many occurrences lie in (after, until]."""
        low = after if self.start_at is None else max(after, self.start_at - 1)
        high = until if self.end_at is None else min(until, self.end_at)
        return self.timing.count(low, high) - sum(low < at <= high for at in self.without) if high > low else 0

    def but(self, decided: Iterable[int]) -> Plan:
        """The same without these instants, as far as they are occurrences."""
        whole = replace(self, without=frozenset()) if self.without else self
        without = frozenset(at for at in decided if (run := whole.next(at - 1)) is not None and run.at == at)
        return replace(whole, without=without) if without else whole

    def newest(self, after: int, until: int, most: int) -> int:
        """An instant so that at most `most` occurrences, the newest, lie in (it, until]; not before `after`. By halving, so that
        a thousand or a million that are dropped cost the same."""
        low, high = after, until
        if self.count(low, until) <= most:
            return low
        while high - low > 1:
            middle = (low + high) // 2
            if self.count(middle, until) <= most:
                high = middle
            else:
                low = middle
        return high

    def oldest(self, after: int, until: int, most: int) -> int:
        """An instant so that at most `most` occurrences, the oldest, lie in (after, it]; not after `until`."""
        low, high = after, until
        if self.count(after, high) <= most:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            if self.count(after, middle) <= most:
                low = middle
            else:
                high = middle
        return low


@lru_cache(maxsize=20_000)
def cron_of(text: str) -> Cron:
    """A parsed expression; CronError says what is wrong with it."""
    return Cron.parse(text)


def timing_of(rule: Rule, zones: Zones) -> Timing:
    """A rule made ready to compute; CronError or UnknownZone if that cannot be."""
    if rule.every_ms is not None:
        return IntervalTiming(rule.every_ms, rule.anchor)
    return _cron_timing(rule.cron or "", rule.time_zone, zones)


@lru_cache(maxsize=20_000)
def _cron_timing(text: str, zone: str, zones: Zones) -> Timing:
    return CronTiming(cron_of(text), zones.zone(zone))


def plan_of(spec: Spec, zones: Zones) -> Plan:
    """A schedule's plan; CronError or UnknownZone if it cannot be computed."""
    return Plan(timing_of(spec.rule, zones), spec.start_at, spec.end_at)


@lru_cache(maxsize=64)
def older(one: str, other: str) -> bool:
    """Whether a version of the zone data is older than another: `2026f` than `2026g`, `2026z` than `2026za`."""
    return _parts(one) < _parts(other)


def _parts(version: str) -> list[tuple[int, str]]:
    return [(len(part), part) for part in re.findall(r"[0-9]+|[a-z]+", version)]
