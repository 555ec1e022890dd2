"""What a benchmark and the doctor measure: the machine, its disk, CPU time of processes, quantiles.

CPU times and the owner of a port are read from Linux's /proc (man 5 proc); elsewhere they are None.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

FSYNC_ROUNDS = 25
_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures were measured on."""

    cores: int
    cpu: str
    system: str


def machine() -> Machine:
    """This machine."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cores, cpu, f"{platform.system()} {platform.release()}, Python {platform.python_version()}")


def fsync_ms(folder: Path, rounds: int = FSYNC_ROUNDS) -> float:
    """The median time of appending 4 KiB and flushing it to the medium in `folder`. Raises OSError."""
    block = b"\0" * 4096
    times = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(rounds):
            began = perf_counter()
            file.write(block)
            os.fsync(file.fileno())
            times.append(perf_counter() - began)
    return sorted(times)[rounds // 2] * 1000


def cpu_s(pid: int) -> float | None:
    """The CPU time that a process has used so far, in user and system mode; None if that cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may itself contain blanks and parentheses; utime and stime are fields 14 and 15.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int | None:
    """The resident memory of a process; None if that cannot be read."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def listener(port: int) -> int | None:
    """The process that listens on a TCP port of this machine; None if there is none or it may not be seen."""
    inodes = {f"socket:[{inode}]" for inode in _listening(port)}
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(entry) in inodes for entry in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue  # it has ended meanwhile, or belongs to somebody else
    return None


def _listening(port: int) -> list[str]:
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.append(fields[9])
    return found


def quantile(ordered: Sequence[float], part: float) -> float | None:
    """The value below which `part` of the (sorted) values lie; None of nothing."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None
