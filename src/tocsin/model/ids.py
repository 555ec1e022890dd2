"""Job IDs: when a job was made and which slice of all jobs it belongs to, readable from the text alone.

    job_ 01K4XQ7Z3M 8QF 7GJ2M4Y6Q1ZT0
         └ 48 bits  └ 12 bits slice (2 characters and the upper bits of the third)
           of ms      └ the rest is random (63 bits), but for the last character: the mark

Crockford's base32 keeps the order of the bits in the order of the text, so new IDs are inserted nearly in order and lists
"newest first" are lists by ID. The slice, not the partition, is in the ID: partition = slice x P // 4,096, so that the same
IDs work in an installation with another number of partitions.

The mark tells a schedule's jobs from the others without a look at them, so that the hot paths treat those by themselves. It is
a hint about which path to take, never the truth about a job: that is in its definition. The IDs of a schedule's jobs are a
function of what they stand for, their time is their occurrence's instant, and their slice is their schedule's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import NewType

from tocsin.clock import Entropy

JobId = NewType("JobId", str)

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SLICES = 4_096
PREFIX = "job_"
_IS_JOB_ID = re.compile(f"{PREFIX}[0-7][{ALPHABET}]{{25}}").fullmatch
_DIGIT = {char: value for value, char in enumerate(ALPHABET)}
_TO_ALPHABET = bytes(ord(ALPHABET[byte & 31]) for byte in range(256))
_TAIL = 16
SCHEDULE_PREFIX = "sch_"
PLAIN = "0"  # no schedule's job
OCCURRENCE = "S"  # a schedule's; nothing waits for its end
LEADER = "W"  # a schedule's; its end may start another
# The three characters that hold the slice: 15 bits, of which the lowest three are random.
_SLICE_OF = {
    a + b + c: (_DIGIT[a] << 7) | (_DIGIT[b] << 2) | (_DIGIT[c] >> 3)
    for a in ALPHABET
    for b in ALPHABET
    for c in ALPHABET
}


def new_ids(count: int, now_ms: int, entropy: Entropy) -> list[JobId]:
    """`count` fresh IDs of jobs made at `now_ms`, in random slices."""
    head = PREFIX + _time_text(now_ms)
    tails = entropy.bytes(_TAIL * count).translate(_TO_ALPHABET).decode("ascii")
    return [JobId(head + tails[at : at + _TAIL - 1] + PLAIN) for at in range(0, _TAIL * count, _TAIL)]


def new_schedule_id(now_ms: int, entropy: Entropy, tenant: str, name: str) -> str:
    """A fresh ID of a schedule, in the slice of its tenant and name. A schedule that is made again is another one."""
    return SCHEDULE_PREFIX + keyed_id(now_ms, entropy, tenant, name)[len(PREFIX) :]


def occurrence_id(
    schedule_id: str, revision: int, at_ms: int, origin: str, *, leader: bool, request: str = ""
) -> JobId:
    """The ID of a schedule's job: always the same for the same (schedule, revision, instant, origin, request), in the schedule's
    slice. An instant before 1970 counts as 1970 in the part that orders IDs."""
    digest = blake2b(f"{schedule_id}\0{revision}\0{at_ms}\0{origin}\0{request}".encode(), digest_size=_TAIL).digest()
    tail = digest.translate(_TO_ALPHABET).decode("ascii")
    mark = LEADER if leader else OCCURRENCE
    plain = JobId(PREFIX + _time_text(min(max(at_ms, 0), (1 << 48) - 1)) + tail[: _TAIL - 1] + mark)
    return in_slice(plain, slice_of(schedule_id))


def is_schedules(job_id: str) -> bool:
    """Whether a job's ID says that a schedule made it."""
    return job_id[-1] in (OCCURRENCE, LEADER)


def is_leader(job_id: str) -> bool:
    """Whether something may wait for the end of this job of a schedule."""
    return job_id[-1] == LEADER


def keyed_id(now_ms: int, entropy: Entropy, tenant: str, key: str) -> JobId:
    """A fresh ID whose slice is a hash of the tenant and the client's idempotency key."""
    return in_slice(new_ids(1, now_ms, entropy)[0], slice_of_key(tenant, key))


def in_slice(job_id: JobId, part: int) -> JobId:
    """The same ID in another slice."""
    low = _DIGIT[job_id[16]] & 7
    return JobId(
        f"{job_id[:14]}{ALPHABET[part >> 7]}{ALPHABET[(part >> 2) & 31]}{ALPHABET[(part & 3) << 3 | low]}{job_id[17:]}"
    )


def slice_of_key(tenant: str, key: str) -> int:
    """The slice of everything that hangs on a name or key of a tenant."""
    digest = blake2b(f"{tenant}\0{key}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SLICES


def slice_of(job_id: str) -> int:
    """The slice in a job's ID; KeyError if it is no ID (see `is_job_id`)."""
    return _SLICE_OF[job_id[14:17]]


def is_job_id(text: str) -> bool:
    """Whether `text` can be a job's ID at all."""
    return _IS_JOB_ID(text) is not None


def is_schedule_id(text: str) -> bool:
    """Whether `text` can be a schedule's ID at all."""
    return text.startswith(SCHEDULE_PREFIX) and is_job_id(PREFIX + text[len(SCHEDULE_PREFIX) :])


def made_at_ms(job_id: str) -> int:
    """The creation time in a job's ID, milliseconds since 1970 UTC."""
    value = 0
    for char in job_id[4:14]:
        value = (value << 5) | _DIGIT[char]
    return value


def id_bound(at_ms: int) -> str:
    """The smallest ID text of a job made at `at_ms`: a bound for lists by creation time."""
    return PREFIX + _time_text(min(max(at_ms, 0), (1 << 48) - 1))


@lru_cache(maxsize=4_096)
def _time_text(now_ms: int) -> str:
    return "".join(ALPHABET[(now_ms >> shift) & 31] for shift in range(45, -1, -5))
