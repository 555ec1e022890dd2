"""A server's place taken by a script: what was asked is kept, what is answered is given. It decides nothing by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tocsin.sdk.transport import DEFAULT_TIMEOUT_S, Answer, accept


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: list[tuple[str, str]]
    body: Any
    headers: Mapping[str, str]


@dataclass
class Script:
    """A transport that answers from a list (the last answer again and again)."""

    answers: list[tuple[int, Any]] = field(default_factory=lambda: [(200, {})])
    asked: list[Asked] = field(default_factory=list)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Answer:
        self.asked.append(Asked(method, path, query or [], json.loads(body) if body else None, headers or {}))
        status, value = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        kind = "application/json" if status < 400 else "application/problem+json"
        return accept(status, {"content-type": kind}, json.dumps(value).encode())

    def fresh(self) -> None:
        return None

    async def close(self) -> None:
        pass


def problem(status: int, kind: str, title: str, detail: str, **more: Any) -> tuple[int, dict[str, Any]]:
    """A problem as the API answers it."""
    return status, {"type": f"/problems/{kind}", "title": title, "status": status, "detail": detail, **more}


def job(**changes: Any) -> dict[str, Any]:
    """A job as the API answers it."""
    return {
        "job_id": "job_1",
        "queue": "q",
        "name": None,
        "status": "SCHEDULED",
        "version": 1,
        "fire_at": "2026-12-05T03:30:00Z",
        "attempt": 0,
        "tries": 0,
        "max_attempts": 6,
        "target": {"type": "task", "handler": "h", "timeout_s": 3600},
        "finished_at": None,
        "last_error": None,
        **changes,
    }


def schedule(**changes: Any) -> dict[str, Any]:
    """A schedule as the API answers it."""
    return {
        "schedule_id": "sch_1",
        "name": "nightly",
        "revision": 1,
        "status": "active",
        "broken_reason": None,
        "cron": "0 2 * * *",
        "time_zone": "Asia/Kolkata",
        "every_s": None,
        "anchor": None,
        "job_template": {
            "queue": "reports",
            "target": {"type": "task", "handler": "settle", "timeout_s": 3600.0},
            "name": None,
            "timing": None,
            "priority": None,
            "payload": {"a": [1]},
            "retry": None,
            "expires_after_s": None,
            "tags": None,
        },
        "missed_runs": {"policy": "run_latest", "starting_deadline_s": None, "max_catch_up": 100},
        "overlap": "allow",
        "start_at": None,
        "end_at": None,
        "max_runs": None,
        "paused": False,
        "pause_note": None,
        "pause_until": None,
        "next_run_at": "2026-12-05T20:30:00Z",
        "next_runs": [{"at": "2026-12-05T20:30:00Z", "local": "2026-12-06T02:00:00+05:30", "note": None}],
        "explanation": "At 02:00 every day",
        "hints": [],
        "runs": 0,
        "last_run_at": None,
        "last_status": None,
        "created_at": "2026-12-05T00:00:00Z",
        "updated_at": "2026-12-05T00:00:00Z",
        **changes,
    }
