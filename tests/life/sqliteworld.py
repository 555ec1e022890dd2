"""The same lives over the SQLite store: a real file, a real writer thread that dies between two steps of a group."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from tests.life.disk import Crashed
from tests.life.machine import Life, Luck
from tests.life.world import Process, World
from tocsin.errors import ServerUnavailable
from tocsin.store.port import Store
from tocsin.store.sqlite import open_store
from tocsin.store.sqlite.writer import Crash


class SqliteWorld(World):
    """A world whose store is a file in `folder`. The writer's steps are the points at which a fault may strike."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(**options)
        self._folder = folder
        self.crashed = False

    async def open_store(self) -> Store:
        """The file as it is now."""
        return await open_store(
            self._folder / "tocsin.db",
            self.clock,
            partitions=self.partitions,
            entropy=self.entropy,
            on_step=self._stepped,
        )

    async def boot(self) -> Process:
        """Another process on the same file; what the one before had in memory is gone."""
        await self.stop()
        self.crashed = False
        return await super().boot()

    async def stop(self) -> None:
        """Let go of the file, if it is open."""
        if self._process is not None:
            await self._process.store.close()

    def _stepped(self, name: str) -> None:
        try:
            self.fault.point(name)
        except Crashed:
            self.crashed = True
            raise Crash from None
        except ServerUnavailable as error:
            if name != "after commit":
                raise sqlite3.OperationalError(str(error)) from None


class LifeOnSqlite(Life):
    """The machine over that world."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()

    def make_world(self, seed: int) -> World:
        return SqliteWorld(Path(self._folder.name), seed=seed, partitions=2, due_limit=6, line_limit=4, page=3)

    def _do(self, work: Any, luck: Luck = ("good", 0)) -> Any:
        answer = super()._do(work, luck)
        world = self.world
        if isinstance(world, SqliteWorld) and world.crashed:
            # The call was told that the store is gone; its process goes with it.
            self._restart()
        return answer

    def teardown(self) -> None:
        super().teardown()
        self._folder.cleanup()
