"""While a manual clock stands still, a claim that waits is answered all the same."""

from __future__ import annotations

import tocsin.testing


async def test_a_claim_that_finds_nothing_is_answered_while_time_stands_still():
    async with tocsin.testing.server() as server:
        assert await server.client.queues.claim("q", worker="w", wait_s=0.05) == []
