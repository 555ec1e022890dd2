"""The embedded lease: one process per data folder, held by a lock on the file `lock` in it.

The lock is the operating system's (man 2 flock): it ends with the process, however that ends, so a crash leaves nothing that
must be cleaned up. The process ID inside the file is only for the message to a second process; a stale one blocks nobody.
The file is never deleted: a process that waits on a deleted file would hold a lock that nobody else can see.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tocsin.errors import ConfigError, LeaseHeld

LOCK_FILE = "lock"


class LocalLeases:
    """All partitions, as long as this process holds the lock of its data folder."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self._path = folder / LOCK_FILE
        self._all = tuple(range(partitions))
        self._file: int | None = None

    async def acquire(self) -> None:
        """Take the folder's lock; raises LeaseHeld naming the process that has it, ConfigError if the folder cannot be locked."""
        while self._file is None:
            self._file = self._lock()

    def owned(self) -> tuple[int, ...]:
        """Every partition while the lock is held, none otherwise."""
        return self._all if self._file is not None else ()

    async def release(self) -> None:
        """Let go of the lock; a second call does nothing."""
        if self._file is not None:
            file, self._file = self._file, None
            os.ftruncate(file, 0)
            os.close(file)

    def _lock(self) -> int | None:
        """The locked file, or None if it was replaced meanwhile (the folder was deleted and made again): try once more."""
        folder = self._path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise ConfigError(f"the data folder {folder} cannot be used: {exc.strerror}; choose another one") from exc
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = self._path.stat()
            here = os.fstat(file)
            if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                os.close(file)
                return None
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as exc:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            os.close(file)
            who = f"process {holder}" if holder else "another process"
            raise LeaseHeld(f"the data folder {folder} is in use by {who}; stop it or choose another folder") from exc
        except FileNotFoundError:
            os.close(file)
            return None
        except OSError as exc:
            os.close(file)
            raise ConfigError(
                f"the data folder {folder} cannot be locked: {exc.strerror}; choose a local disk with file locks"
            ) from exc
        return file
