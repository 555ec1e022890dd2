"""What the server declined, in the words of the command line: options instead of JSON pointers, and what they may be."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tocsin.errors import Refused

_MOMENT = "RFC 3339 with an offset, such as 2026-12-05T09:00:00+05:30"
# A field of a body or a query, the option that fills it, and what may be given; the longest beginning counts.
_OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "/queue": (("--queue", "-q"), ""),
    "/name": (("--name",), ""),
    "/run_at": (("--at",), _MOMENT),
    "/delay_s": (("--delay",), "0 to 366d"),
    "/timing/window_s": (("--window",), "up to 24h"),
    "/payload": (("--payload", "-p"), ""),
    "/priority": (("--priority",), "high, normal or low"),
    "/target/handler": (("--handler",), ""),
    "/target/url": (("--url",), ""),
    "/target/method": (("--method",), "POST, PUT, PATCH, GET or DELETE"),
    "/target/headers": (("--header",), ""),
    "/target/timeout_s": (("--timeout",), "100ms to 24h, for a callback to 1h"),
    "/retry/max_attempts": (("--max-attempts",), ""),
    "/retry/initial_backoff_s": (("--initial-backoff",), "up to 24h"),
    "/retry/max_backoff_s": (("--max-backoff",), "up to 24h"),
    "/expires_after_s": (("--expires-after",), "above 0 and at most 366d"),
    "/tags": (("--tag",), ""),
    "/headers/Idempotency-Key": (("--idempotency-key",), ""),
    "/status": (
        ("--status",),
        "SCHEDULED, QUEUED, RUNNING, RETRYING, CANCEL_REQUESTED, SUCCEEDED, DEAD, CANCELLED or SKIPPED",
    ),
    "/tag": (("--tag",), "KEY=VALUE"),
    "/created_after": (("--created-after",), _MOMENT),
    "/created_before": (("--created-before",), _MOMENT),
    "/cursor": (("--cursor",), ""),
    "/lease_s": (("--lease",), "5s to 10m"),
    "/pause_note": (("--note",), ""),
    "/pause_until": (("--until",), _MOMENT),
    "/job_ids": (("--job",), ""),
    "/filter/error_contains": (("--error-contains",), ""),
    "/filter/tag": (("--tag",), "KEY=VALUE"),
    "/filter/dead_after": (("--dead-after",), _MOMENT),
    "/filter/dead_before": (("--dead-before",), _MOMENT),
    "/rate_per_s": (("--rate",), "above 0 and at most 100000"),
    "/cron": (("--cron",), ""),
    "/time_zone": (("--time-zone",), ""),
    "/every_s": (("--every",), "1s to 3660d"),
    "/anchor": (("--anchor",), _MOMENT),
    "/missed_runs/policy": (("--missed-runs",), "run_latest, run_all or skip"),
    "/missed_runs/starting_deadline_s": (("--starting-deadline",), "above 0 and at most 366d"),
    "/missed_runs/max_catch_up": (("--max-catch-up",), "1 to 10000"),
    "/overlap": (("--overlap",), "allow, forbid or replace"),
    "/start_at": (("--start",), _MOMENT),
    "/end_at": (("--end",), _MOMENT),
    "/max_runs": (("--max-runs",), "at least 1"),
    "/after": (("--after",), _MOMENT),
    "/from": (("--from",), _MOMENT),
    "/to": (("--to",), _MOMENT),
    "/max": (("--max",), "1 to 10000"),
    "/job_template/name": (("--job-name",), ""),
    "/scopes": (("--scope",), "read, write, admin, work:QUEUE or work:*"),
    "/expires_at": (("--expires-at",), _MOMENT),
    "/weight": (("--weight",), "above 0 and at most 1000"),
    "/quotas": (("--quota",), ""),
}


def refusal(error: Refused, typed: Sequence[str]) -> str:
    """One line about what was declined. A field is called by its option where that option was typed."""
    detail, further = error.detail, []
    if error.errors:
        # They all follow, so how many more there are need not be said.
        detail = re.sub(r" \(and [0-9]+ more\)$", "", detail)
    for pointer, wrong in error.errors:
        said = f"{pointer or 'the body'}: {wrong}"
        ours = _ours(pointer, wrong, typed)
        if said in detail:
            detail = detail.replace(said, ours, 1)
        elif detail == wrong:
            detail = ours
        else:
            further.append(ours)
    parts = [f"{error.title}: {detail}" if detail else error.title, *further]
    if error.status == 401:
        parts.append("set TOCSIN_TOKEN to a token of this server")
    elif error.status == 429 and error.retry_after_s is not None:
        parts.append(f"try again in {error.retry_after_s:g} s")
    return "; ".join(part.rstrip(".") for part in parts) + f" ({error.status})"


def _ours(pointer: str, wrong: str, typed: Sequence[str]) -> str:
    """A fault of one field, by the option that was typed for it and, where it can be said shorter so, by what may be given."""
    # What a schedule's jobs are is said with the options of a job.
    names = {pointer, pointer.removeprefix("/job_template")}
    if pointer == "/cron" and "preview" in typed:
        return f"EXPR: {wrong}"
    field = max((known for known in _OPTIONS if any(_within(name, known) for name in names)), key=len, default="")
    options, allowed = _OPTIONS.get(field, ((), ""))
    if not any(text.partition("=")[0] in options or text[:2] in options for text in typed):
        return f"{pointer or 'the body'}: {wrong}"
    # These are the words of a decoder of JSON, which speak of its types.
    if allowed and wrong.startswith(("Invalid", "Expected")):
        return f"{options[0]} must be {allowed}"
    return f"{options[0]}: {wrong}"


def _within(pointer: str, field: str) -> bool:
    return pointer == field or pointer.startswith(field + "/")
