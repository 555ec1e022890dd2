"""A process of a fleet goes by the store's clock from its first request on."""

from __future__ import annotations

import time

from tests.conformance.yard import PARTITIONS
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tocsin import config
from tocsin.clock import SystemClock, SystemEntropy
from tocsin.roles.process import build

HOUR_MS = 3_600_000


class HourAhead(SystemClock):
    """The clock of a machine that nobody has set."""

    def now_ms(self) -> int:
        return super().now_ms() + HOUR_MS


async def test_a_machine_that_is_an_hour_ahead_begins_with_the_stores_time(
    postgres: PostgresServer, redis_server: RedisServer
) -> None:
    async with postgres.blank() as (dsn,):
        settings = config.load(
            None,
            {
                "TOCSIN_STORE": dsn,
                "TOCSIN_NEAR": redis_server.url,
                "TOCSIN_PARTITIONS": str(PARTITIONS),
                "TOCSIN_ROLES": "api",
            },
        )
        process = await build(settings, HourAhead(), SystemEntropy())
        try:
            assert abs(process.clock.now_ms() - time.time() * 1000) < HOUR_MS / 60
            reasons = await process.health.reasons()
            assert any("ahead of the store's" in reason for reason in reasons), reasons
        finally:
            await process.stop()
