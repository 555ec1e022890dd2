"""How things are shown: the store's values as the structs of the contract.

Times are RFC 3339 in UTC. The values of a target's headers are masked: they hold other people's credentials, and whoever may
read jobs need not know them.
"""

from __future__ import annotations

from msgspec.structs import replace

from tocsin import wire
from tocsin.clock import rfc3339
from tocsin.model.job import PRIORITY_NAME, Definition, JobState, Retrying, Status, idempotency_key
from tocsin.store.settings import QueueRow, SigningKeyRow, TenantRow, TokenRow

DEFAULT_LEASE_S = 30.0
ACTIVE_KEYS = 2
_PLAIN = Retrying()


def job(state: JobState) -> wire.Job:
    """A job as the contract shows it."""
    made = state.definition
    return wire.Job(
        job_id=state.job_id,
        queue=state.line.queue,
        name=made.name,
        status=state.status.value,
        version=state.version,
        run_at=rfc3339(made.run_at),
        fire_at=rfc3339(state.fire_at),
        attempt=state.attempt,
        tries=state.tries,
        max_attempts=made.retry.max_attempts,
        priority=PRIORITY_NAME.get(state.priority, "normal"),
        timing=made.timing,
        target=masked(made.target),
        payload=made.payload,
        retry=_policy(made),
        tags=made.tags,
        expires_after_s=made.expires_after_s,
        idempotency_key=idempotency_key(state.job_id, made.key_at),
        schedule_id=made.schedule_id,
        occurrence_at=moment(made.occurrence_at),
        origin=made.origin,
        worker=state.worker,
        lease_until=moment(state.lease_until),
        progress=wire.raw(state.progress),
        result=wire.raw(state.result),
        created_at=rfc3339(state.created_at),
        queued_at=moment(state.queued_at),
        started_at=moment(state.started_at),
        finished_at=moment(state.finished_at),
        next_attempt_at=rfc3339(state.due_at) if state.status is Status.RETRYING else None,
        last_error=state.last_error,
    )


def masked(target: wire.Target) -> wire.Target:
    """A target without the values of its headers."""
    if isinstance(target, wire.HttpTarget) and target.headers:
        return replace(target, headers=dict.fromkeys(target.headers, wire.MASK))
    return target


def schedule(found: wire.Schedule) -> wire.Schedule:
    """A schedule with the header values of its template masked."""
    template = found.job_template
    if template is None or (target := masked(template.target)) is template.target:
        return found
    return replace(found, job_template=replace(template, target=target))


def _policy(made: Definition) -> wire.RetryPolicy:
    retry = made.retry
    return wire.RetryPolicy(
        max_attempts=retry.max_attempts,
        initial_backoff_s=retry.initial_backoff_s,
        max_backoff_s=retry.max_backoff_s,
    )


def queue(row: QueueRow, stats: wire.QueueStats, now_ms: int) -> wire.Queue:
    """A queue's settings as they work now (a pause that has run out is over), with its figures."""
    paused = row.paused and (row.pause_until is None or row.pause_until > now_ms)
    return wire.Queue(
        queue=row.queue,
        paused=paused,
        pause_note=row.pause_note if paused else None,
        pause_until=moment(row.pause_until) if paused else None,
        lease_s=DEFAULT_LEASE_S if row.lease_ms is None else row.lease_ms / 1000,
        retry=wire.RetryPolicy(
            max_attempts=_PLAIN.max_attempts if row.max_attempts is None else row.max_attempts,
            initial_backoff_s=_PLAIN.initial_backoff_s if row.initial_backoff_s is None else row.initial_backoff_s,
            max_backoff_s=_PLAIN.max_backoff_s if row.max_backoff_s is None else row.max_backoff_s,
        ),
        stats=stats,
    )


def tenant(row: TenantRow) -> wire.Tenant:
    """A tenant with the quotas that were set for it; null is the installation's default."""
    quotas = wire.Quotas(**{name: row.quotas[name] for name in wire.Quotas.__struct_fields__ if name in row.quotas})
    return wire.Tenant(name=row.name, weight=row.weight, quotas=quotas, created_at=rfc3339(row.created_at))


def token(row: TokenRow, text: str | None = None) -> wire.Token:
    """A token; `text` only in the answer that made it."""
    return wire.Token(
        token_id=row.token_id,
        name=row.name,
        scopes=list(row.scopes),
        created_at=rfc3339(row.created_at),
        expires_at=moment(row.expires_at),
        token=text,
    )


def signing_key(row: SigningKeyRow, *, active: bool, shown: bool = False) -> wire.SigningKey:
    """A signing key; `shown` only in the answer that made it."""
    return wire.SigningKey(
        key_id=row.key_id,
        created_at=rfc3339(row.created_at),
        active=active,
        secret=row.secret if shown else None,
    )


def moment(at_ms: int | None) -> str | None:
    """An instant, or null."""
    return None if at_ms is None else rfc3339(at_ms)
