"""What the figures were measured on: processor, cores, memory, and how long an fsync takes."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path


def describe(folder: Path) -> dict[str, object]:
    """The machine, and the fsync latency of the folder that the data goes to."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        "fsync_ms": fsync_ms(folder),
    }


def fsync_ms(folder: Path, writes: int = 50, size: int = 65_536) -> float:
    """The median time of writing 64 KiB and forcing it to disk, in milliseconds."""
    path = folder / "fsync-probe"
    block = os.urandom(size)
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(writes):
            began = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    path.unlink()
    return round(statistics.median(took) * 1000, 2)


def cpu_s(pid: int) -> float:
    """Processor seconds of a running process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory of a running process in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return 0.0
