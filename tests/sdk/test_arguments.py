"""What a program says wrongly about a job is told before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import tocsin
import tocsin.testing
from tocsin.errors import UsageError


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [({"at": "2026-12-05T09:00:00Z"}, "run_at"), ({"dealy": 3}, "delay"), ({"delay_s": 3}, "delay"), ({"xyz": 1}, "")],
)
async def test_a_mistyped_argument_is_refused_and_nothing_is_made(wrong, hint):
    async with tocsin.testing.server() as server:
        with pytest.raises(UsageError, match=f"is not an argument of a job; .*{hint}"):
            await server.client.jobs.create(queue="q", handler="h", **wrong)
        assert [job async for job in server.client.jobs.list()] == []


async def test_an_instant_may_be_given_as_text():
    async with tocsin.testing.server(start=datetime(2026, 12, 1, tzinfo=UTC)) as server:
        job = await server.client.jobs.create(queue="q", handler="h", run_at="2026-12-05T09:00:00+05:30")
        assert job.fire_at == "2026-12-05T03:30:00Z"
