"""Timers as they travel between the store and the near tier."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.model.job import Line

# (bucket, lane, tenant, time, job, version): the order of reading. The order among tenants is the adapter's own, but
# `(bucket, lane, tenant, FAR, "", 0)` is behind everything of that tenant in that bucket and lane, for every adapter.
TimerKey = tuple[int, int, str, int, str, int]
FAR = (1 << 62) - 1


class Due(NamedTuple):
    """ "Look at this job at that time", as the near tier holds it: a plain tuple, so that a million of them are cheap."""

    due_at: int
    job_id: str
    version: int
    line: Line
    priority: int
