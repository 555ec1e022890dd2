"""What was asked for: from the bodies of the API to a schedule's spec, with everything that needs the zone, the expression or two
fields together judged. A fault is a 422 that names the field, the reason and the way out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from msgspec import UNSET, Raw, UnsetType, structs

from tocsin import wire
from tocsin.clock import datetime_of, ms_of
from tocsin.errors import Refused
from tocsin.flow.admit import invalid, merged_policy
from tocsin.flow.change import unmasked
from tocsin.model.cron import CronError
from tocsin.model.job import Retrying
from tocsin.model.schedule import UTC, Rule, Spec, cron_of
from tocsin.model.zones import UnknownZone, Zones

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class PauseWish:
    """What is asked of a pause; UNSET keeps what is."""

    paused: bool | UnsetType = UNSET
    note: str | None | UnsetType = UNSET
    until: int | None | UnsetType = UNSET


def rule_of(body: wire.SchedulePut | wire.Preview, zones: Zones, anchor: int) -> Rule:
    """When: checked and complete. `anchor` is taken where none is asked for."""
    if (body.cron is None) == (body.every_s is None):
        detail = "give cron or every_s, exactly one of them"
        raise Refused(422, "invalid", "Invalid request", detail, errors=(("/cron", detail), ("/every_s", detail)))
    zone = UTC if body.time_zone is None else body.time_zone
    try:
        zones.zone(zone)
    except UnknownZone as error:
        raise invalid("/time_zone", str(error)) from error
    if body.every_s is not None:
        asked = anchor if body.anchor is None else ms_of(body.anchor)
        return Rule(time_zone=zone, every_ms=_every_ms(body.every_s), anchor=asked)
    if body.anchor is not None:
        raise invalid("/anchor", "only an interval (every_s) has an anchor; leave it out beside cron")
    assert body.cron is not None, "one of the two is given"
    try:
        cron_of(body.cron)
    except CronError as error:
        raise invalid("/cron", str(error)) from error
    return Rule(cron=body.cron, time_zone=zone)


def spec_of(body: wire.SchedulePut, zones: Zones, now: int, old: Spec | None) -> Spec:
    """A schedule's definition, checked and complete; Refused 422."""
    start_at = None if body.start_at is None else ms_of(body.start_at)
    end_at = None if body.end_at is None else ms_of(body.end_at)
    if start_at is not None and end_at is not None and end_at < start_at:
        raise invalid("/end_at", "the end is before the start; choose a later end_at or an earlier start_at")
    return Spec(
        rule=rule_of(body, zones, _default_anchor(body, start_at, now, old)),
        anchored=body.anchor is not None,
        job=_template(body.job_template, old),
        missed=body.missed_runs or wire.MissedRuns(),
        overlap=body.overlap or "allow",
        start_at=start_at,
        end_at=end_at,
        max_runs=body.max_runs,
    )


def _default_anchor(body: wire.SchedulePut, start_at: int | None, now: int, old: Spec | None) -> int:
    """Where an interval begins that names no anchor: at its start, else where the same interval began before, else now."""
    if start_at is not None:
        return start_at
    if old is None or old.anchored or body.every_s is None or old.rule.every_ms != _every_ms(body.every_s):
        return now
    return old.rule.anchor


def patched(body: wire.SchedulePatch, old: Spec) -> wire.SchedulePut:
    """The whole definition that a patch asks for. A timing of the other kind replaces the one that was."""
    cron, every_s = _kept(body.cron, old.rule.cron), _kept(body.every_s, _every_s(old))
    if body.cron is not UNSET and body.cron is not None and body.every_s is UNSET:
        every_s = None
    if body.every_s is not UNSET and body.every_s is not None and body.cron is UNSET:
        cron = None
    anchor = body.anchor
    if anchor is UNSET:
        anchor = _moment(old.rule.anchor) if every_s is not None and old.anchored else None
    return wire.SchedulePut(
        job_template=old.job if body.job_template is UNSET else body.job_template,
        cron=cron,
        time_zone=_kept(body.time_zone, old.rule.time_zone),
        every_s=every_s,
        anchor=anchor,
        missed_runs=_kept(body.missed_runs, old.missed),
        overlap=_kept(body.overlap, old.overlap) or "allow",
        start_at=_kept(body.start_at, _moment(old.start_at)),
        end_at=_kept(body.end_at, _moment(old.end_at)),
        max_runs=_kept(body.max_runs, old.max_runs),
    )


def same(one: Spec, other: Spec) -> bool:
    """Whether two definitions ask for the same. Payloads are compared as JSON values, not as texts."""
    return one == other or (_bare(one) == _bare(other) and _value(one) == _value(other))


def pause_of(body: wire.SchedulePut | wire.SchedulePatch, now: int, *, paused: bool) -> PauseWish:
    """What a body asks of the pause of a schedule that is `paused` or not; Refused 422. A definition without `paused` keeps it."""
    wish = False if body.paused is None else body.paused
    whole = isinstance(body, wire.SchedulePut)
    note = UNSET if whole and body.pause_note is None and wish is UNSET else body.pause_note
    until = UNSET if whole and body.pause_until is None and wish is UNSET else body.pause_until
    will_be = paused if wish is UNSET else wish
    for pointer, value in (("/pause_note", note), ("/pause_until", until)):
        if value is not UNSET and value is not None and not will_be:
            raise invalid(pointer, "only a paused schedule has one; send paused: true with it")
    until_ms = ms_of(until) if isinstance(until, datetime) else until
    if isinstance(until_ms, int) and until_ms <= now:
        raise invalid(
            "/pause_until", "in the past; leave it out to pause until somebody resumes, or send paused: false"
        )
    return PauseWish(wish, note, until_ms)


def _template(asked: wire.JobTemplate, old: Spec | None) -> wire.JobTemplate:
    """A template, checked, with header values that came back masked put in place."""
    try:
        merged_policy(asked.retry, Retrying())
        target = asked.target if old is None else unmasked(asked.target, old.job.target)
    except Refused as refused:
        errors = tuple((f"/job_template{pointer}", detail) for pointer, detail in refused.errors)
        detail = "; ".join(f"{pointer}: {text}" for pointer, text in errors)
        raise Refused(refused.status, refused.kind, refused.title, detail, errors=errors) from refused
    return asked if target is asked.target else structs.replace(asked, target=target)


def _kept(asked: Kept | UnsetType, old: Kept) -> Kept:
    return old if isinstance(asked, UnsetType) else asked


def _moment(at: int | None) -> datetime | None:
    return None if at is None else datetime_of(at)


def _every_ms(every_s: float) -> int:
    return round(every_s * 1000)


def _every_s(spec: Spec) -> float | None:
    return None if spec.rule.every_ms is None else spec.rule.every_ms / 1000


def _bare(spec: Spec) -> Spec:
    return structs.replace(spec, job=structs.replace(spec.job, payload=Raw(b"null")))


def _value(spec: Spec) -> object:
    """A payload for comparison: numbers stay as they were written, so that 1, 1.0, "1" and true are four things."""
    return json.loads(bytes(spec.job.payload), parse_float=_Number, parse_int=_Number)


@dataclass(frozen=True, slots=True)
class _Number:
    text: str
