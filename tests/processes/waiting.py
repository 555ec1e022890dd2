"""Waiting at the border of a process, where nothing can tell us that it has happened: the one place that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tocsin
from tocsin.sdk.answers import Job

T = TypeVar("T")
EVERY_S = 0.03


def wait_until(condition: Callable[[], T | None], what: str, within_s: float = 20.0) -> T:
    """Look until `condition()` gives something true, and return it; after `within_s`, fail saying `what` was waited for."""
    until = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {within_s:g} s in vain for {what}"
        time.sleep(EVERY_S)
    return found


def succeeded(client: tocsin.Client, job: Job) -> Job | None:
    """The job as it is now, if it has succeeded: for `wait_until`."""
    now = client.jobs.get(job.job_id)
    return now if now.status == "SUCCEEDED" else None
