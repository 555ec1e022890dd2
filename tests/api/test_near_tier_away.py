"""While the near tier does not answer: what is durable is answered as ever, and a claim is told to come again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Server
from tocsin.errors import NearUnavailable


async def test_creates_and_completions_are_answered_and_a_claim_gets_a_503(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise NearUnavailable("the near tier is away")

    await server.create()
    (held,) = await server.claim()
    for call in ("offer", "push", "pop", "settle", "unpop", "lease", "unlease", "remove"):
        monkeypatch.setattr(server.process.near, call, away)
    made = await server.create()
    assert (await server.complete(held)).status == 200
    assert (await server.http("DELETE", f"/v1/jobs/{made['job_id']}")).status == 200
    refused = await server.http("POST", "/v1/queues/mail:claim", {"worker": "w-1", "max": 1})
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
