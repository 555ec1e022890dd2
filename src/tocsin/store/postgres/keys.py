"""Idempotency keys: a client's key is bound to one body and one job, within its tenant, for a week and while the job lives."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from tocsin.store import codes
from tocsin.store.port import KEY_KEPT_MS, Created, Key, Made, NewJob
from tocsin.store.postgres.group import Again, Work
from tocsin.store.postgres.rows import columns, looks_of
from tocsin.store.postgres.statements import block

_FIND = block("keys", "find")
_LOCK = block("keys", "lock")
_BIND = block("keys", "bind")
_REBIND = block("keys", "rebind")
_NEXT = block("keys", "next")
_DELETE = block("keys", "delete")
_LOOK = block("jobs", "look")

_Name = tuple[str, bytes]
_Row = tuple[str, bytes, bytes, str, int]


class Binding(NamedTuple):
    """What a key stands for."""

    body_hash: bytes
    job_id: str
    expires_at: int


async def say_bound(work: Work, jobs: Sequence[NewJob]) -> list[Created | None]:
    """What each job's key says where it is bound and holds; None: to be created, as far as was seen."""
    names = sorted({_name(job.key) for job in jobs if job.key is not None})
    if not names:
        return [None] * len(jobs)
    found = _bindings(await work.fetch(_FIND, *columns(names, 2)))
    answers: list[Created | None] = []
    for job in jobs:
        binding = None if job.key is None else found.get(_name(job.key))
        holds = binding is not None and binding.expires_at > work.now
        answers.append(_answer(job, binding) if binding is not None and holds else None)
    return answers


async def answer_keys(work: Work, jobs: Sequence[NewJob]) -> tuple[list[Created], list[NewJob]]:
    """Inside a transaction: bind the keys that are free, lock those that are not; what each job's key says, and the jobs that are to
    be created. No two jobs have the same key."""
    rows = {_name(job.key): _key_row(work, job, job.key) for job in jobs if job.key is not None}
    mine: set[_Name] = set()
    bound: dict[_Name, Binding] = {}
    if rows:
        ordered = [rows[name][:4] for name in sorted(rows)]
        until = work.now + KEY_KEPT_MS
        mine = {(row[0], row[1]) for row in await work.fetch(_BIND, *columns(ordered, 4), until)}
        others = sorted(set(rows) - mine)
        bound = _bindings(await work.fetch(_LOCK, *columns(others, 2))) if others else {}
        if len(bound) != len(others):
            raise Again  # one was swept away between the two statements
        ended = await _ended(work, [binding.job_id for binding in bound.values() if binding.expires_at <= work.now])
        over = sorted(name for name, binding in bound.items() if binding.job_id in ended)
        if over:
            await work.fetch(_REBIND, *columns([rows[name][:4] for name in over], 4), until)
            mine |= set(over)
    answers = []
    missing = []
    for job in jobs:
        name = None if job.key is None else _name(job.key)
        if name is None or name in mine:
            answers.append(Created(Made.CREATED, job.job_id))
            missing.append(job)
        else:
            answers.append(_answer(job, bound[name]))
    return answers, missing


async def sweep(work: Work, after: tuple[int, str, bytes], rows: int) -> tuple[int, tuple[int, str, bytes] | None]:
    """Look at the next expired bindings beyond `after` and delete those whose job has ended: how many went, and where to go on
    (None: what follows has not expired)."""
    page = await work.fetch(_NEXT, *after, work.now, rows)
    ended = await _ended(work, [row[2] for row in page])
    old = sorted((row[0], row[1], row[2]) for row in page if row[2] in ended)
    if old:
        await work.fetch(_DELETE, *columns(old, 3), work.now)
    return len(old), (page[-1][3], page[-1][0], page[-1][1]) if len(page) == rows else None


def key_rows(work: Work, jobs: Sequence[NewJob]) -> list[_Row]:
    """The bindings of the jobs that have a key, in order."""
    return sorted(_key_row(work, job, job.key) for job in jobs if job.key is not None)


async def _ended(work: Work, job_ids: list[str]) -> set[str]:
    """Which of these jobs have ended, or never were."""
    if not job_ids:
        return set()
    looks = looks_of(await work.fetch(_LOOK, job_ids), job_ids)
    return {look.job_id for look in looks if look.status in (0, codes.DEAD)}


def _answer(job: NewJob, binding: Binding) -> Created:
    assert job.key is not None
    if binding.body_hash != job.key.body_hash:
        return Created(Made.CONFLICT, binding.job_id)
    # Our own earlier try, of which nobody heard, is no replay.
    made = Made.CREATED if binding.job_id == job.job_id else Made.REPLAYED
    return Created(made, binding.job_id)


def _bindings(rows: Sequence[_Row]) -> dict[_Name, Binding]:
    return {(row[0], row[1]): Binding(row[2], row[3], row[4]) for row in rows}


def _key_row(work: Work, job: NewJob, key: Key) -> _Row:
    return (*_name(key), key.body_hash, job.job_id, work.now + KEY_KEPT_MS)


def _name(key: Key) -> _Name:
    return key.tenant, blake2b(key.text.encode(), digest_size=16).digest()
