"""What outlives a process in the tests of a job's life, and the faults that end one.

`Disk` is a set of plain tables: rows by key, nothing else. `StepStore` works on it without transactions, one conditional write of
one row at a time, and passes a *point* before and after each of them. A `Fault` is asked at every point and may end the process
there (`Crashed`) or let the store fail (`StoreUnavailable`); what was written before it stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tocsin.model.job import JobState
from tocsin.store.port import AttemptRecord, Due, TimerKey, TimerKind
from tocsin.store.schedules import Move, ScheduleRow, SkipRow
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow
from tocsin.store.transfer import Mark


class Crashed(BaseException):
    """The process died here. Not an Exception: nothing in Tocsin may survive it."""


class Fault:
    """Decides at every point whether the process dies or the store fails there; keeps the points that were passed."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._left: int | None = None
        self._name: str | None = None
        self._error: BaseException = Crashed()
        self._always: Exception | None = None

    def after(self, points: int, error: BaseException | None = None) -> None:
        """Strike at the point number `points` from now (0: the next one)."""
        self._left, self._name, self._error = points, None, error or Crashed(f"{points} points on")

    def at(self, name: str, error: BaseException | None = None) -> None:
        """Strike when the point `name` is passed next."""
        self._left, self._name, self._error = None, name, error or Crashed(name)

    def always(self, error: Exception | None) -> None:
        """Strike at every point, until told otherwise by None."""
        self._always = error

    def clear(self) -> None:
        """Forget what was planned and what was passed."""
        self.passed.clear()
        self._left = self._name = self._always = None

    @property
    def planned(self) -> bool:
        """Whether a strike is still to come."""
        return self._left is not None or self._name is not None

    def point(self, name: str) -> None:
        """A point is passed."""
        if self._always is not None:
            raise self._always
        if self._left is not None:
            if self._left == 0:
                self._left = None
                raise self._error
            self._left -= 1
        elif self._name == name:
            self._name = None
            raise self._error
        self.passed.append(name)

    def writes(self) -> list[str]:
        """The row writes that were made, in order: the names of their tables."""
        return [name.split()[1] for name in self.passed if name.startswith("after ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job's row. `gone`: a dead letter that was discarded and is on its way out; `expired`: it ended by its expiry;
    `status_code`/`response`: of a success."""

    job: JobState
    gone: bool = False
    expired: bool = False
    status_code: int | None = None
    response: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """What an idempotency key is bound to."""

    body_hash: bytes
    job_id: str
    bound_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owing:
    """A schedule's row with what its last move still owes. `row` None: it is deleted and goes when all is paid."""

    row: ScheduleRow | None
    owes: Move | None


ParkKey = tuple[str, str, int, str, str, bool, int, str, int]


@dataclass(slots=True)
class Disk:
    """The tables."""

    jobs: dict[str, JobRow] = field(default_factory=dict)
    finished: dict[str, JobRow] = field(default_factory=dict)
    timers: dict[tuple[int, TimerKind], set[TimerKey]] = field(default_factory=lambda: defaultdict(set))
    records: dict[str, dict[int, AttemptRecord]] = field(default_factory=lambda: defaultdict(dict))
    keys: dict[tuple[str, bytes], KeyRow] = field(default_factory=dict)  # by tenant and the hash of the key
    parked: dict[int, dict[ParkKey, Due]] = field(default_factory=lambda: defaultdict(dict))
    floors: dict[int, int] = field(default_factory=dict)
    tenants: dict[str, TenantRow] = field(default_factory=dict)
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    signing_keys: dict[str, SigningKeyRow] = field(default_factory=dict)
    queues: dict[tuple[str, str], QueueRow] = field(default_factory=dict)
    secrets: dict[str, bytes] = field(default_factory=dict)
    schedules: dict[tuple[str, str], Owing] = field(default_factory=dict)  # by tenant and name
    skips: dict[str, dict[tuple[int, str], SkipRow]] = field(default_factory=lambda: defaultdict(dict))
    installation: str = "a disk"
    marks: dict[str, Mark] = field(default_factory=dict)
    watchers: list[Callable[[JobState | None, JobState], None]] = field(default_factory=list)
