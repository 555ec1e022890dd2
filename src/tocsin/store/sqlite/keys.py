"""Idempotency keys: a client's key is bound to one body and one job, within its tenant, for a week and while the job lives."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from tocsin.store import codes
from tocsin.store.port import KEY_KEPT_MS, Created, Key, Made, NewJob
from tocsin.store.sqlite.statements import Many, block
from tocsin.store.sqlite.work import Work, json_text

_ADD = Many("keys", "add")
_PUT = Many("keys", "put")
_FIND = Many("keys", "find")
_NEXT = block("keys", "next")
_DELETE = block("keys", "delete")
_FOUND = msgspec.json.Decoder(list[tuple[int, str, str, str, int]])
_PAGE = msgspec.json.Decoder(list[tuple[int, str, int]])


class Binding(NamedTuple):
    """What a key stands for."""

    body_hash: bytes
    job_id: str
    expires_at: int


def bind_new(work: Work, jobs: Sequence[NewJob]) -> bool:
    """Bind the keys of these jobs, as if none were bound; False if one was, and then nothing of it may stay."""
    return _ADD.run(work.conn, _rows(work, jobs)) == len(jobs)


def bind_all(work: Work, jobs: Sequence[NewJob]) -> None:
    """Bind the keys of these jobs, over what they stood for."""
    _PUT.run(work.conn, _rows(work, jobs))


def answer_keys(work: Work, jobs: Sequence[NewJob]) -> tuple[list[Created], list[NewJob]]:
    """What each job's key says about it, and the jobs that are to be created."""
    bound = _bindings(work, jobs)
    answers: list[Created] = []
    missing: list[NewJob] = []
    for job in jobs:
        if job.key is None:
            answers.append(Created(Made.CREATED, job.job_id))
            missing.append(job)
            continue
        name = _name(work, job.key)
        binding = bound.get(name)
        if binding is None:
            bound[name] = Binding(job.key.body_hash, job.job_id, work.now + KEY_KEPT_MS)
            answers.append(Created(Made.CREATED, job.job_id))
            missing.append(job)
        elif binding.body_hash != job.key.body_hash:
            answers.append(Created(Made.CONFLICT, binding.job_id))
        elif binding.job_id == job.job_id:  # our own earlier try, of which nobody heard
            answers.append(Created(Made.CREATED, job.job_id))
        else:
            answers.append(Created(Made.REPLAYED, binding.job_id))
    return answers, missing


def _bindings(work: Work, jobs: Sequence[NewJob]) -> dict[tuple[int, bytes], Binding]:
    """The bindings that hold: those that have expired and whose job has ended do not."""
    names = {_name(work, job.key) for job in jobs if job.key is not None}
    found = {
        (tenant_id, bytes.fromhex(text_hash)): Binding(bytes.fromhex(body_hash), job_id, expires_at)
        for (page,) in _FIND.rows(work.conn, sorted(names))
        for tenant_id, text_hash, body_hash, job_id, expires_at in _FOUND.decode(page)
    }
    old = [name for name, binding in found.items() if binding.expires_at <= work.now]
    for name, look in zip(old, work.look([found[name].job_id for name in old]), strict=True):
        if look.status in (0, codes.DEAD):
            del found[name]
    return found


def sweep(work: Work, after: int, rows: int) -> tuple[int, int | None]:
    """Look at the next bindings beyond `after` and delete those that have expired and whose job has ended: how many went, and
    where to go on (None: what follows has not expired)."""
    page = _PAGE.decode(work.row(_NEXT, after, rows)[0])
    old = [(number, job_id) for number, job_id, expires_at in page if expires_at <= work.now]
    looks = work.look([job_id for _, job_id in old])
    ended = [number for (number, _), look in zip(old, looks, strict=True) if look.status in (0, codes.DEAD)]
    if ended:
        work.write(_DELETE, json_text(ended))
    return len(ended), page[-1][0] if len(old) == rows else None


def _rows(work: Work, jobs: Sequence[NewJob]) -> list[tuple[int, bytes, bytes, str, int]]:
    until = work.now + KEY_KEPT_MS
    rows = [(*_name(work, job.key), job.key.body_hash, job.job_id, until) for job in jobs if job.key is not None]
    rows.sort()
    return rows


def _name(work: Work, key: Key) -> tuple[int, bytes]:
    return work.lines.tenant_id(key.tenant), blake2b(key.text.encode(), digest_size=16).digest()
