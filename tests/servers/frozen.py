"""A database for registries whose time a test moves: the function by which the schema reads the server's clock is replaced there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from tests.servers.postgres import PostgresServer
from tocsin.lease.postgres import open_registry

START_MS = 1_800_000_000_000
_TEMPLATE = "template_registry"
_NAMES = count()
_MADE: set[int] = set()


class FrozenDatabase:
    """One registry's database; `dsn` is where."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server, self._name = server, name
        self.dsn = server.dsn(name)

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        await self.run(f"UPDATE tocsin_lease_test.clock SET now_ms = now_ms + {round(seconds * 1000)}")

    async def run(self, *statements: str) -> list[object]:
        """Run statements beside the registry; the rows of the last."""
        return await self._server.execute(*statements, database=self._name)


@asynccontextmanager
async def frozen_database(server: PostgresServer) -> AsyncIterator[FrozenDatabase]:
    """A registry's database, copied from a template; gone afterwards."""
    if server.port not in _MADE:
        _MADE.add(server.port)
        await server.execute(f"CREATE DATABASE {_TEMPLATE}")
        registry = await open_registry(server.dsn(_TEMPLATE))
        await registry.close()
        await server.execute(
            "CREATE SCHEMA tocsin_lease_test",
            "CREATE TABLE tocsin_lease_test.clock (now_ms bigint NOT NULL)",
            f"INSERT INTO tocsin_lease_test.clock (now_ms) VALUES ({START_MS})",
            "CREATE OR REPLACE FUNCTION tocsin_lease.now_ms() RETURNS bigint LANGUAGE sql VOLATILE"
            " AS 'SELECT now_ms FROM tocsin_lease_test.clock'",
            database=_TEMPLATE,
        )
    name = f"frozen_{next(_NAMES)}"
    await server.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
    try:
        yield FrozenDatabase(server, name)
    finally:
        await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
