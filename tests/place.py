"""Where tests keep their files: in memory where the machine has a folder there with room, so that a commit waits for no disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
# Far more than all files of a run at once; a container's usual 64 MiB would not do.
ROOM_BYTES = 1 << 30


def memory_folder() -> Path | None:
    """That folder; None: the usual one for temporary files."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= ROOM_BYTES else None


def keep_in_memory() -> None:
    """From now on temporary files of this process and of those that it starts lie there, unless TMPDIR says where."""
    folder = memory_folder()
    if folder is not None and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
