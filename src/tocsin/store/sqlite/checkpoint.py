"""Checkpoints: moving committed pages from the WAL into the database, without making anybody wait.

A PASSIVE checkpoint from a thread of its own copies everything up to a moment while the writer goes on. But the WAL is used
again from its start only when it has been copied to the last frame, which under constant load a PASSIVE never reaches: when
the WAL has grown past a few megabytes, the writer itself copies the small rest between two groups and starts it anew
(sqlite.org/wal.html#avoiding_excessively_large_wal_files). A crash at any point loses nothing: the WAL is read again.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from pathlib import Path
from sqlite3 import Connection

from tocsin.store.sqlite.connection import BUSY_MS, open_checkpointer

log = logging.getLogger("tocsin.store")

EVERY_S = 1.0
EVERY_ROWS = 50_000  # sooner under load
FULL_BYTES = 16 * 1024 * 1024  # past this the writer finishes what a PASSIVE has left over


class Checkpointer:
    """The checkpoint thread, and the writer's part in it."""

    def __init__(self, path: Path, *, full_bytes: int = FULL_BYTES) -> None:
        self._path, self._full = path, full_bytes
        self._wal = f"{path}-wal"
        self._wanted = threading.Event()
        self._copied = False
        self._rows = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._live, name="tocsin-store-checkpoint", daemon=True)
        self.finished = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def wal_bytes(self) -> int:
        """How long the WAL is."""
        try:
            return os.stat(self._wal).st_size
        except FileNotFoundError:
            return 0

    def between(self, conn: Connection, rows: int) -> None:
        """The writer's part, after a group of `rows`: finish what a PASSIVE has left over, if the WAL is long."""
        self._rows += rows
        if self._rows >= EVERY_ROWS:
            self._rows = 0
            self._wanted.set()
        if self._copied:
            self._copied = False
            conn.execute("PRAGMA busy_timeout = 0")
            try:
                busy = conn.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0]
            except sqlite3.Error as exc:
                log.warning("the WAL could not be started anew (%s); it is tried again after the next checkpoint", exc)
                return
            finally:
                conn.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            self.finished += not busy

    def _live(self) -> None:
        conn = open_checkpointer(self._path)
        try:
            while not self._stopping:
                self._wanted.wait(EVERY_S)
                self._wanted.clear()
                self._passive(conn)
        finally:
            conn.close()

    def _passive(self, conn: Connection) -> None:
        try:
            _, frames, _ = conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            size = int(conn.execute("PRAGMA page_size").fetchone()[0])
        except sqlite3.Error as exc:
            log.warning("a checkpoint failed (%s); the WAL grows until the next one", exc)
            return
        self._copied = frames * size >= self._full
