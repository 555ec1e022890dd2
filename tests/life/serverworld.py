"""The same lives over what a fleet runs on: a real PostgreSQL and a real Redis, in virtual time.

Points at which a fault may strike lie before and after each call of the store and of the near tier: what a call does to one job is
one transaction, and one program. A process that dies leaves its members in Redis, in hand or taken, for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from redis import Redis

from tests.life.disk import Fault
from tests.life.fleetlife import FleetLife
from tests.life.fleetworld import FleetWorld, Member
from tests.life.machine import Life
from tests.life.world import Brittle, Process, World
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer, new_installation
from tocsin.clock import Clock
from tocsin.errors import NearUnavailable
from tocsin.flow.custody import EVERY_MS, Custodian
from tocsin.near.redis import RedisNearTier, open_near
from tocsin.store.port import Store
from tocsin.store.postgres import open_store

# Calls that only look: a fault there is one before or after the call around them.
_LOOKS = ("states", "attempts", "list_jobs", "read_timers", "parked", "floors")


class Guarded:
    """A part of the store, around whose writes a fault may strike."""

    def __init__(self, part: Any, fault: Fault) -> None:
        self._part, self._fault = part, fault

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._part, name)
        if not callable(call) or name in _LOOKS:
            return call

        async def asked(*args: Any, **kwargs: Any) -> Any:
            self._fault.point(f"before store.{name}")
            answer = await call(*args, **kwargs)
            self._fault.point(f"after store.{name}")
            return answer

        return asked


class GuardedStore:
    """A store, around whose writes a fault may strike."""

    def __init__(self, store: Store, fault: Fault) -> None:
        self._store, self._fault = store, fault
        self.jobs, self.schedules = Guarded(store.jobs, fault), Guarded(store.schedules, fault)
        self.settings = store.settings

    async def ping(self) -> None:
        self._fault.point("before store.ping")
        await self._store.ping()

    async def now_ms(self) -> int:
        return await self._store.now_ms()

    async def oldest_snapshot_s(self) -> float | None:
        return await self._store.oldest_snapshot_s()

    async def close(self) -> None:
        await self._store.close()


class Timed:
    """A store whose server's clock is the test's."""

    def __init__(self, store: Store, server: Clock) -> None:
        self.jobs, self.schedules, self.settings = store.jobs, store.schedules, store.settings
        self.ping, self.close, self.oldest_snapshot_s = store.ping, store.close, store.oldest_snapshot_s
        self._server = server

    async def now_ms(self) -> int:
        return self._server.now_ms()


class PostgresFleet(FleetWorld):
    """A fleet on that database."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(**options)
        self._dsn = dsn

    async def open_for(self, clock: Clock, fault: Fault) -> Store:
        store = await open_store(self._dsn, clock, partitions=self.partitions, entropy=self.entropy)
        return Timed(GuardedStore(store, fault), self.clock)

    async def bury(self, member: Member) -> None:
        await member.store.close()


class OneRedis:
    """The near tier of a fleet on a real server: what tests do to it, and where it stands."""

    def __init__(self, redis: RedisServer, partitions: int) -> None:
        self._redis, self._partitions, self.installation = redis, partitions, new_installation()
        self._begun: set[int] = set()
        self._ways: list[RedisWay] = []
        self.away = False

    @property
    def troubled(self) -> bool:
        return self.away or len(self._begun) < self._partitions

    def lose(self) -> None:
        delete_all(self._redis, self.installation)
        self._begun.clear()

    async def open(self, clock: Clock, **limits: int) -> RedisWay:
        """A process's connections."""
        near = await open_near(
            self._redis.url, clock, installation=self.installation, partitions=self._partitions, **limits
        )
        self._ways.append(RedisWay(self, near))
        return self._ways[-1]

    def begun(self, partitions: Sequence[int]) -> None:
        """An owner has begun these."""
        self._begun.update(partitions)

    async def ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return await self._ways[-1].ask(name, args, kwargs)


class RedisWay:
    """One process's connections to it."""

    def __init__(self, server: OneRedis, near: RedisNearTier) -> None:
        self._server, self.near = server, near

    async def ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._server.away:
            raise NearUnavailable("the near tier does not answer")
        answer = await getattr(self.near, name)(*args, **kwargs)
        if name == "begin":
            self._server.begun(*args)
        return answer


class ServerFleet(PostgresFleet):
    """A fleet on both servers; close it in the end."""

    def __init__(self, postgres: PostgresServer, redis: RedisServer, **options: Any) -> None:
        self._redis, self._stack, self._postgres = redis, AsyncExitStack(), postgres
        super().__init__("", **options)

    def make_near(self) -> OneRedis:
        return OneRedis(self._redis, self.partitions)

    async def start(self) -> Process:
        (self._dsn,) = await self._stack.enter_async_context(self._postgres.database(self.partitions))
        return await super().start()

    async def open_near(self, clock: Clock) -> RedisWay:
        assert isinstance(self.shared, OneRedis)
        return await self.shared.open(clock, due_limit=self._due_limit, line_limit=self._line_limit)

    async def bury(self, member: Member) -> None:
        await super().bury(member)
        way = member.way
        assert isinstance(way, RedisWay)
        await way.near.close()

    async def close(self) -> None:
        """Leave nothing behind."""
        for member in self.members:
            await self.bury(member)
        await self._stack.aclose()


def delete_all(redis: RedisServer, installation: str) -> None:
    """Everything of an installation is gone from a server."""
    with Redis.from_url(redis.url, protocol=2) as client:
        names = list(client.scan_iter(match=f"{{{installation}:*", count=1_000))
        if names:
            client.delete(*names)


class ServerWorld(World):
    """A world over servers; close it in the end."""

    def __init__(self, postgres: PostgresServer, redis: RedisServer, **options: Any) -> None:
        super().__init__(**options)
        self._postgres, self._redis, self._installation = postgres, redis, new_installation()
        self._stack, self._dsn = AsyncExitStack(), ""
        self._near: RedisNearTier | None = None

    async def open_store(self) -> Store:
        if not self._dsn:
            (self._dsn,) = await self._stack.enter_async_context(self._postgres.database(self.partitions))
        store = await open_store(self._dsn, self.clock, partitions=self.partitions, entropy=self.entropy)
        return GuardedStore(store, self.fault)

    async def boot(self) -> Process:
        """Another process on the same servers; what the one before had in memory is gone."""
        await self.stop()
        self._near = await open_near(
            self._redis.url,
            self.clock,
            installation=self._installation,
            partitions=self.partitions,
            due_limit=self._due_limit,
            line_limit=self._line_limit,
        )
        self._process = Process(self, await self.open_store(), Brittle(self._near, self.fault))
        return self._process

    async def start(self) -> Process:
        process = await self.boot()
        process.stages.insert(0, Custodian(process.near, process.leases, process.recover, self.clock))
        await self.keep()
        return process

    async def keep(self) -> None:
        """Rebuild what is not in the near tier."""
        while (await self.on.stages[0].step()).more:
            pass

    async def lose_near(self) -> None:
        """Everything of this installation is gone from Redis, and it is noticed."""
        delete_all(self._redis, self._installation)
        self.clock.advance(EVERY_MS / 1_000)
        await self.keep()

    async def stop(self) -> None:
        """Let go of both servers."""
        if self._process is not None:
            await self._process.store.close()
        if self._near is not None:
            await self._near.close()

    async def close(self) -> None:
        """Leave nothing behind."""
        await self.stop()
        await self._stack.aclose()


class LifeOnServers(Life):
    """The machine over that world, on `servers`."""

    servers: tuple[PostgresServer, RedisServer]

    def make_world(self, seed: int) -> World:
        return ServerWorld(*self.servers, seed=seed, partitions=2, due_limit=6, line_limit=4, page=3)

    @rule(times=st.integers(1, 2))
    def the_near_tier_is_lost(self, times: int) -> None:
        assert isinstance(self.world, ServerWorld)
        for _ in range(times):
            self._run(self.world.lose_near())

    async def _close(self) -> None:
        if hasattr(self, "world"):
            assert isinstance(self.world, ServerWorld)
            self.world.fault.clear()
            await self.world.close()


class FleetLifeOnServers(FleetLife):
    """The machine of a fleet, on `servers`. In which order those answer several at once is not repeatable: that rule is left out."""

    servers: tuple[PostgresServer, RedisServer]
    at_once = None  # type: ignore[assignment]

    def make_world(self, seed: int) -> World:
        return ServerFleet(*self.servers, seed=seed, partitions=2, due_limit=6, line_limit=4, page=3)

    async def _close(self) -> None:
        if hasattr(self, "world"):
            assert isinstance(self.world, ServerFleet)
            await self.world.close()
