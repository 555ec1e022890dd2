"""The life of a job: its states, which event may lead where, and what a job is made of.

The table of states is `LEADS_TO`; the stages of `flow/` write only what it allows and name, in every write, the state and the
version or attempt that they leave from. So no write can revive a finished job.

Two numbers guard a job against the past. `version` grows whenever the pending timer is replaced, so an older timer is void.
`attempt` grows at every claim and never decreases: it is the fencing token that a stale worker fails on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from tocsin.clock import rfc3339
from tocsin.wire import HttpTarget, Outcome, Status, Target, TaskTarget, Timing

NULL = Raw(b"null")
# A boost moves a job ahead of jobs that fell due up to so much earlier; as time passes the others overtake: ageing.
PRIORITY_BOOST_MS = {1: 300_000, 0: 0, -1: -300_000}
PRIORITY = {"high": 1, "normal": 0, "low": -1}
PRIORITY_NAME = {value: name for name, value in PRIORITY.items()}
HTTP = ""  # the handler of a line of callbacks

FINISHED = frozenset({Status.SUCCEEDED, Status.CANCELLED, Status.SKIPPED})
TERMINAL = FINISHED | {Status.DEAD}
WAITING = frozenset({Status.SCHEDULED, Status.QUEUED, Status.RETRYING})
PENDING = frozenset({Status.SCHEDULED, Status.RETRYING})
HELD = frozenset({Status.RUNNING, Status.CANCEL_REQUESTED})
LIVE = WAITING | HELD
# Fired and not over: what the next occurrence of the same schedule may overlap with.
GOING = LIVE - {Status.SCHEDULED}


class Event(Enum):
    """What can happen to a job."""

    FIRE = "fire"
    RUN_NOW = "run now"
    PATCH = "patch"
    CANCEL = "cancel"
    SKIP = "skip"
    CLAIM = "claim"
    SUCCEED = "succeed"
    RETRY = "retry"
    RELEASE = "release"
    DIE = "die"
    END_CANCELLED = "end cancelled"
    REDRIVE = "redrive"
    DISCARD = "discard"


S = Status
LEADS_TO: dict[Event, dict[Status, frozenset[Status]]] = {
    Event.FIRE: {S.SCHEDULED: frozenset({S.QUEUED}), S.RETRYING: frozenset({S.QUEUED})},
    Event.RUN_NOW: {S.SCHEDULED: frozenset({S.QUEUED}), S.RETRYING: frozenset({S.QUEUED})},
    Event.PATCH: {S.SCHEDULED: frozenset({S.SCHEDULED, S.QUEUED})},
    Event.CANCEL: {
        S.SCHEDULED: frozenset({S.CANCELLED}),
        S.QUEUED: frozenset({S.CANCELLED}),
        S.RETRYING: frozenset({S.CANCELLED}),
        S.RUNNING: frozenset({S.CANCEL_REQUESTED}),
    },
    Event.SKIP: {S.SCHEDULED: frozenset({S.SKIPPED}), S.QUEUED: frozenset({S.SKIPPED})},
    Event.CLAIM: {S.QUEUED: frozenset({S.RUNNING})},
    Event.SUCCEED: {S.RUNNING: frozenset({S.SUCCEEDED}), S.CANCEL_REQUESTED: frozenset({S.SUCCEEDED})},
    Event.RETRY: {S.RUNNING: frozenset({S.RETRYING})},
    Event.RELEASE: {S.RUNNING: frozenset({S.RETRYING})},
    Event.DIE: {S.RUNNING: frozenset({S.DEAD})},
    Event.END_CANCELLED: {S.CANCEL_REQUESTED: frozenset({S.CANCELLED})},
    Event.REDRIVE: {S.DEAD: frozenset({S.RETRYING})},
    Event.DISCARD: {S.DEAD: frozenset({S.DEAD})},
}


def allowed(event: Event, before: Status, after: Status) -> bool:
    """Whether the table of states lets `event` lead from `before` to `after`."""
    return after in LEADS_TO[event].get(before, frozenset())


class Lane(IntEnum):
    """Precise goes before flexible, always."""

    PRECISE = 0
    FLEXIBLE = 1


class Line(NamedTuple):
    """The ready line that a job waits in: whose, which queue, how urgent, who can do it, what can hold it.

    `handler` is a task's handler or `HTTP` for callbacks; `hold` is what can stop these jobs alone (for a callback its
    `scheme://host:port`). `suspect` lines hold jobs whose last attempt was lost: they are handed out alone.
    """

    tenant: str
    queue: str
    lane: Lane
    handler: str
    hold: str
    suspect: bool = False


class Retrying(Struct, frozen=True, array_like=True):
    """A job's retry policy with nothing left open: attempts, then seconds."""

    max_attempts: int = 6
    initial_backoff_s: float = 10.0
    max_backoff_s: float = 600.0


class Definition(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was asked for: the part of a job that only a PATCH changes. Stored as JSON, the payload as it was sent.

    `run_at` is what was asked and `key_at` the first fire time, both in milliseconds; `key_at` makes the run's idempotency key
    and never changes. `made_at` is given where the ID does not tell it: for a schedule's job, whose ID has its occurrence's time.
    """

    target: Target
    run_at: int
    key_at: int
    payload: Raw = NULL
    name: str | None = None
    timing: Timing = Timing()
    retry: Retrying = Retrying()
    expires_after_s: float | None = None
    tags: dict[str, str] = {}
    traceparent: str | None = None
    schedule_id: str | None = None
    occurrence_at: int | None = None
    origin: str = "api"
    made_at: int | None = None

    @property
    def timeout_ms(self) -> int:
        """How long one attempt may take."""
        return round(self.target.timeout_s * 1000)


_DECODER = msgspec.json.Decoder(Definition)
_ENCODER = msgspec.json.Encoder()


def encode_definition(definition: Definition) -> str:
    """The stored text of a definition."""
    return _ENCODER.encode(definition).decode()


def decode_definition(text: str | bytes) -> Definition:
    """The definition of a stored text."""
    return _DECODER.decode(text)


def handler_of(target: Target) -> str:
    """The handler that a target's line is named by."""
    return target.handler if isinstance(target, TaskTarget) else HTTP


def idempotency_key(job_id: str, key_at_ms: int) -> str:
    """The key that every attempt of a run carries: the job and its first fire time in whole seconds."""
    return f"{job_id}@{rfc3339(key_at_ms - key_at_ms % 1000)}"


def ready_score(due_ms: int, priority: int) -> int:
    """A job's place in its ready line: smaller is earlier. The boost is constant, so waiting jobs age by themselves."""
    return due_ms - PRIORITY_BOOST_MS.get(priority, 0)


@dataclass(slots=True, kw_only=True)
class JobState:
    """A job's changing part as the store holds it. Times in milliseconds since 1970 UTC.

    `losses` and `releases` count consecutive ones; `lease_ms` is the length that this attempt's heartbeats renew by.
    `dead_at`/`finished_at` are None until then. `handed_at` is the due time of the attempt that is (or was last) claimed.
    """

    job_id: str
    line: Line
    priority: int
    status: Status
    version: int
    attempt: int
    tries: int
    due_at: int
    fire_at: int
    created_at: int
    queued_at: int | None = None
    started_at: int | None = None
    claimed_at: int | None = None
    lease_until: int | None = None
    lease_ms: int | None = None
    beaten_at: int | None = None
    worker: str | None = None
    losses: int = 0
    releases: int = 0
    expires_at: int | None = None
    finished_at: int | None = None
    last_error: str | None = None
    progress: bytes | None = None
    result: bytes | None = None
    outcome: Outcome | None = None
    definition: Definition


def expired(status: Status, attempt: int, expires_at: int | None, now_ms: int) -> bool:
    """Whether a waiting job has expired: only before its first claim."""
    return expires_at is not None and attempt == 0 and status in WAITING and now_ms >= expires_at


__all__ = [
    "FINISHED",
    "GOING",
    "HELD",
    "HTTP",
    "LEADS_TO",
    "LIVE",
    "NULL",
    "PENDING",
    "PRIORITY",
    "PRIORITY_BOOST_MS",
    "PRIORITY_NAME",
    "TERMINAL",
    "WAITING",
    "Definition",
    "Event",
    "HttpTarget",
    "JobState",
    "Lane",
    "Line",
    "Outcome",
    "Retrying",
    "Status",
    "allowed",
    "decode_definition",
    "encode_definition",
    "expired",
    "handler_of",
    "idempotency_key",
    "ready_score",
]
