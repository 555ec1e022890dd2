"""Every exception that Tocsin raises on purpose; the names say whose fault it is.

    TocsinError
    ├── UsageError                 the caller's: wrong arguments, wrong configuration
    │   └── ConfigError            a setting, or two settings that contradict each other
    ├── Refused                    the request was understood and declined (carries the problem of API.md)
    ├── ServerUnavailable          the server's: nothing is known to have happened, try again
    │   ├── Unreachable            no connection to the server came about, or no answer came
    │   ├── StoreUnavailable       the store cannot write now (disk full, connection lost, shutting down)
    │   │   └── PartlyUnavailable  some of its databases cannot; the others have done their part
    │   ├── NearUnavailable        the near tier (Redis) cannot answer now
    │   ├── LeasesUnavailable      what keeps the leases (PostgreSQL or etcd) cannot answer now
    │   └── Overloaded             a bounded queue is full
    ├── StoreError                 the store's contents
    │   ├── StoreCorrupt           the file is damaged or not a Tocsin store
    │   ├── StoreTooNew            written by a newer version
    │   └── StoreMoved             the installation was moved to another store, or has not wholly arrived here
    ├── LeaseHeld                  another process owns what we asked for
    ├── Retry, Fatal               raised by a handler to say how its attempt ended
    └── AttemptLost                the attempt belongs to somebody else now; stop working on it

Losing a race is a value, never an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TocsinError(Exception):
    """The root of the tree."""


class UsageError(TocsinError):
    """The caller asked for something that cannot be; the message says what is allowed."""


class ConfigError(UsageError):
    """A setting is wrong; the message names the setting, its value and what is allowed."""


class Refused(TocsinError):
    """The request was understood and declined: one problem of RFC 9457.

    `kind` is the last part of the problem's type (`/problems/<kind>`), `errors` the list of `(JSON pointer, detail)` of a
    failed validation, `retry_after_s` the pause that a 429 or 503 asks for.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        *,
        errors: tuple[tuple[str, str], ...] = (),
        retry_after_s: float | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        super().__init__(f"{status} {title}: {detail}")
        self.status, self.kind, self.title, self.detail = status, kind, title, detail
        self.errors = errors
        self.retry_after_s = retry_after_s
        self.extra = extra or {}


class ServerUnavailable(TocsinError):
    """Nothing is known to have happened; the same request may be repeated.

    The message is for operators and may name addresses; `told` is what a tenant is told in its place, if it is set.
    """

    retry_after_s: float = 1.0
    told: str = ""


class Unreachable(ServerUnavailable):
    """No connection to the server came about, or no answer came; the message names the address."""


class StoreUnavailable(ServerUnavailable):
    """The store cannot write at the moment; what was asked has not been done, or will show when it is repeated."""


class PartlyUnavailable(StoreUnavailable):
    """Some databases of a store with several cannot be used at the moment; the others have done their part of what was asked.

    `partitions` are those of the former. `answers` are the latter's, in the order of what was asked, and mean nothing at the places
    in `unanswered`.
    """

    def __init__(
        self,
        message: str,
        partitions: frozenset[int],
        answers: Sequence[Any] = (),
        unanswered: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(message)
        self.partitions, self.answers, self.unanswered = partitions, answers, unanswered


class NearUnavailable(ServerUnavailable):
    """The near tier cannot answer at the moment, or has just lost what it held; nothing is lost that the store does not know."""

    told = "jobs cannot be handed out at the moment; those that you hold stay yours, ask again"


class LeasesUnavailable(ServerUnavailable):
    """The server that keeps sessions and partitions cannot answer at the moment; what is held stays held until it ends."""


class Overloaded(ServerUnavailable):
    """A bounded queue inside the server is full; nothing was done."""


class StoreError(TocsinError):
    """The store's contents are not what this program can work on."""


class StoreCorrupt(StoreError):
    """The store is damaged, or not a Tocsin store at all."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of Tocsin."""


class StoreMoved(StoreError):
    """The installation lives in another store now, or its move to this one has not ended; the message names the other one."""


class LeaseHeld(TocsinError):
    """Another process holds the lease; the message names it."""


class Retry(TocsinError):
    """Raised by a handler: this attempt failed, try again, not before `after` seconds if given."""

    def __init__(self, reason: str = "the handler asked for a retry", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Fatal(TocsinError):
    """Raised by a handler: this job cannot succeed; it becomes a dead letter without further tries."""


class AttemptLost(TocsinError):
    """The attempt is no longer ours (its lease ended or it was superseded); stop without reporting."""
