"""Where the store of a year lies: in memory where the machine offers a folder there, so that a commit costs no disk."""

from __future__ import annotations

import os
from pathlib import Path

MEMORY = Path("/dev/shm")


def memory_folder() -> Path | None:
    """That folder; None: the usual one for temporary files."""
    return MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
