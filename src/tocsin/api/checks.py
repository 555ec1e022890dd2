"""What a job's definition or a worker's report can be refused for by itself: pure, and the same for create, batch and patch.

What needs the queue's defaults, the time or the state of a job is judged in the flow.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import fields

from tocsin.api.problems import Fault, invalid, step, too_large
from tocsin.api.reading import require_flat
from tocsin.model.urls import errors_of
from tocsin.wire import (
    MASK,
    MAX_PAYLOAD_BYTES,
    MAX_PROGRESS_BYTES,
    MAX_RESPONSE_BYTES,
    MAX_RESULT_BYTES,
    Completion,
    HttpTarget,
    JobCreate,
    JobPatch,
    JobTemplate,
    RetryPolicy,
    SchedulePatch,
    SchedulePut,
    Timing,
    Trigger,
)

if TYPE_CHECKING:
    from msgspec import Raw, Struct

_KEY = re.compile(rb"[\x20-\x7e]{1,255}")
# https://www.w3.org/TR/trace-context/#traceparent-header; what has not its form is as good as absent.
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{0,200})?")


def check_job(job: JobCreate) -> None:
    """Raise Refused (413, 422) unless a new job is right as far as it alone can tell."""
    if job.payload is not None:
        require_flat(job.payload, "/payload", MAX_PAYLOAD_BYTES)
    faults: list[Fault] = []
    if job.run_at is not None:
        faults += moment_faults(job.run_at, "/run_at")
        if job.delay_s is not None:
            faults.append(("/delay_s", "cannot be given together with run_at"))
    if job.timing is not None:
        faults += _timing_faults(job.timing)
    if job.retry is not None:
        faults += retry_faults(job.retry)
    if isinstance(job.target, HttpTarget):
        faults += errors_of(job.target) + _mask_faults(job.target)
    if faults:
        raise invalid(faults)


def check_patch(patch: JobPatch) -> None:
    """Raise Refused (413, 422) unless a change is right as far as it alone can tell."""
    if all(getattr(patch, name) is UNSET for name in patch.__struct_fields__):
        raise invalid([("", "must change something; the body is empty")])
    if patch.payload is not UNSET:
        require_flat(patch.payload, "/payload", MAX_PAYLOAD_BYTES)
    faults: list[Fault] = []
    if isinstance(patch.run_at, datetime):
        faults += moment_faults(patch.run_at, "/run_at")
        if patch.delay_s not in (UNSET, None):
            faults.append(("/delay_s", "cannot be given together with run_at"))
    if isinstance(patch.timing, Timing):
        faults += _timing_faults(patch.timing)
    if isinstance(patch.retry, RetryPolicy):
        faults += retry_faults(patch.retry)
    if isinstance(patch.target, HttpTarget):
        faults += errors_of(patch.target)
    if faults:
        raise invalid(faults)


def moment_faults(moment: datetime, pointer: str) -> list[Fault]:
    """What is wrong with an instant that is to be kept: in UTC it must have a year of four digits, or it cannot be shown."""
    if moment.year not in (1, 9999):
        return []
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return [(pointer, "must lie in the years 0001 to 9999 of UTC")]
    return []


def retry_faults(retry: RetryPolicy, pointer: str = "/retry") -> list[Fault]:
    """What two fields of a policy that are both given cannot be together; the flow judges them with the defaults."""
    first, most = retry.initial_backoff_s, retry.max_backoff_s
    if first is not UNSET and most is not UNSET and first > most:
        return [(f"{pointer}/initial_backoff_s", f"must be at most max_backoff_s ({most:g})")]
    return []


def _timing_faults(timing: Timing, pointer: str = "/timing") -> list[Fault]:
    if timing.class_ == "flexible":
        return [] if timing.window_s is not None else [(f"{pointer}/window_s", "is required with flexible")]
    return [] if timing.window_s is None else [(f"{pointer}/window_s", "belongs to flexible, not to precise")]


def _mask_faults(target: HttpTarget, pointer: str = "/target") -> list[Fault]:
    return [
        (f"{pointer}/headers{step(name)}", "is the mask that answers show; send the value itself")
        for name, value in target.headers.items()
        if value == MASK
    ]


def check_schedule(schedule: SchedulePut, name: str | None = None) -> None:
    """Raise Refused (413, 422) unless a schedule is right as far as each of its fields alone can tell; `name` is the one in the
    path."""
    _require_size(schedule.job_template)
    faults = _template_faults(schedule.job_template, new=True) + _moments_faults(schedule)
    if name is not None and schedule.name not in (None, name):
        faults.append(("/name", "must be the name in the path, or be left out"))
    if faults:
        raise invalid(faults)


def check_schedule_patch(patch: SchedulePatch) -> None:
    """Raise Refused (413, 422) unless a change of a schedule is right as far as each of its fields alone can tell."""
    if all(getattr(patch, name) is UNSET for name in patch.__struct_fields__):
        raise invalid([("", "must change something; the body is empty")])
    faults = _moments_faults(patch)
    if isinstance(patch.job_template, JobTemplate):
        _require_size(patch.job_template)
        faults = _template_faults(patch.job_template, new=False) + faults
    if faults:
        raise invalid(faults)


def check_moments(body: Struct) -> None:
    """Raise Refused (422) unless each instant of a body can be shown."""
    if faults := _moments_faults(body):
        raise invalid(faults)


def check_trigger(body: Trigger) -> None:
    """Raise Refused (413, 422) for a payload that cannot be kept."""
    if body.payload is not UNSET:
        require_flat(body.payload, "/payload", MAX_PAYLOAD_BYTES)


def _require_size(template: JobTemplate) -> None:
    require_flat(template.payload, "/job_template/payload", MAX_PAYLOAD_BYTES)


def _template_faults(template: JobTemplate, *, new: bool) -> list[Fault]:
    """What is wrong with a template. A masked header in a change may stand for the value that is kept; the flow knows."""
    faults: list[Fault] = []
    if template.timing is not None:
        faults += _timing_faults(template.timing, "/job_template/timing")
    if template.retry is not None:
        faults += retry_faults(template.retry, "/job_template/retry")
    if isinstance(template.target, HttpTarget):
        faults += errors_of(template.target, "/job_template/target")
        if new:
            faults += _mask_faults(template.target, "/job_template/target")
    return faults


def _moments_faults(body: Struct) -> list[Fault]:
    """What is wrong with the instants among a body's fields."""
    faults: list[Fault] = []
    for field in fields(body):
        value = getattr(body, field.name)
        if isinstance(value, datetime):
            faults += moment_faults(value, f"/{field.encode_name}")
    return faults


def check_progress(progress: Raw) -> None:
    """Raise Refused (413, 422) for progress that cannot be kept."""
    require_flat(progress, "/progress", MAX_PROGRESS_BYTES)


def check_completion(done: Completion, *, executor: bool) -> None:
    """Raise Refused (413, 422) for a report that cannot be kept; the attempt stays open."""
    require_flat(done.result, "/result", MAX_RESULT_BYTES)
    if done.status_code is None and done.response is None:
        return
    if not executor:
        names = [name for name in ("status_code", "response") if getattr(done, name) is not None]
        raise invalid([(f"/{name}", "can be reported with the scope `executor` only") for name in names])
    if done.response is not None and len(done.response.body.encode()) > MAX_RESPONSE_BYTES:
        raise too_large(f"the body of a response is kept to at most {MAX_RESPONSE_BYTES} bytes", "/response/body")


def client_key(header: bytes | None) -> str | None:
    """The client's idempotency key. Raises Refused (422)."""
    if header is None:
        return None
    if _KEY.fullmatch(header) is None:
        raise invalid([("/headers/Idempotency-Key", "must have 1-255 printable ASCII characters")])
    return header.decode("ascii")


def expected_version(header: bytes | None) -> int | None:
    """The version that `If-Match` names; -1 for what can be no version, which no job has. None: any will do."""
    if header is None or header.strip() == b"*":
        return None
    found = re.fullmatch(rb'"?([0-9]{1,15})"?', header.strip())
    return int(found[1]) if found else -1


def traceparent(header: bytes | None) -> str | None:
    """The caller's trace, to be passed on with the job; None where the header has not the form of one."""
    return header.decode("ascii") if header is not None and _TRACEPARENT.fullmatch(header) else None
