"""The numbers that stand for statuses, outcomes and timer kinds in a store file. Part of the file format: never renumber."""

from __future__ import annotations

from tocsin.store.port import FIRE, WATCH, TimerKind
from tocsin.wire import Outcome, ScheduleStatus, Status

SCHEDULED, QUEUED, RUNNING, CANCEL_REQUESTED, RETRYING, SUCCEEDED, DEAD, CANCELLED, SKIPPED = range(1, 10)

STATUS: dict[int, Status] = {
    SCHEDULED: Status.SCHEDULED,
    QUEUED: Status.QUEUED,
    RUNNING: Status.RUNNING,
    CANCEL_REQUESTED: Status.CANCEL_REQUESTED,
    RETRYING: Status.RETRYING,
    SUCCEEDED: Status.SUCCEEDED,
    DEAD: Status.DEAD,
    CANCELLED: Status.CANCELLED,
    SKIPPED: Status.SKIPPED,
}
STATUS_CODE: dict[Status, int] = {status: code for code, status in STATUS.items()}

OUTCOME: dict[int, Outcome] = {
    1: Outcome.SUCCEEDED,
    2: Outcome.RETRYABLE_FAILURE,
    3: Outcome.FATAL_FAILURE,
    4: Outcome.CANCELLED,
    5: Outcome.RELEASED,
    6: Outcome.LOST,
    7: Outcome.TIMED_OUT,
}
OUTCOME_CODE: dict[Outcome, int] = {outcome: code for code, outcome in OUTCOME.items()}

KIND_CODE: dict[TimerKind, int] = {FIRE: 0, WATCH: 1}

SCHEDULE_STATUS: dict[int, ScheduleStatus] = {1: "active", 2: "paused", 3: "finished", 4: "broken"}
SCHEDULE_STATUS_CODE: dict[ScheduleStatus, int] = {status: code for code, status in SCHEDULE_STATUS.items()}
