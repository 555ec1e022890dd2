"""`tocsin doctor`: looks at an installation and says what is wrong with it and what to do.

It may run beside servers and changes nothing but a scratch file in the data folder, which is deleted at once. Each check
gives findings; one that cannot be made is itself a finding, so that one broken part hides no other.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import typer

from tocsin.cli import output
from tocsin.cli.output import Json
from tocsin.errors import ConfigError, TocsinError

if TYPE_CHECKING:
    from tocsin.config import Settings

Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The file of settings.", show_default="tocsin.toml if it is there")
]
Data = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The data folder.")]

MIB = 1 << 20
# Below the first a burst of creates may fill the disk before anybody looks; below the second writes are about to fail.
FREE_NOTE, FREE_PROBLEM = 2_048 * MIB, 256 * MIB
# A commit waits for one flush. Slower than the first and a burst is late; faster than the second and no medium was reached.
FLUSH_SLOW_MS, FLUSH_UNREAL_MS = 20.0, 0.02
FILES_NOTE = 4_096
# When this version was released: a clock before that is wrong.
NOT_BEFORE_MS = 1_767_225_600_000
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
OVER_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "fuse.glusterfs"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `do` is empty where nothing has to be done."""

    check: str
    state: Literal["ok", "note", "problem"]
    found: str
    do: str = ""


class StoreReport(Protocol):
    """What looking at a store's file, without changing it, says."""

    @property
    def version(self) -> int:
        """The file's schema."""
        ...

    @property
    def newest(self) -> int:
        """The schema that this program knows."""
        ...

    @property
    def faults(self) -> Sequence[str]:
        """What the check of the file's structure found."""
        ...


def doctor(config: Config = None, data: Data = None, json: Json = False) -> None:
    """Look at the installation of this machine.

    Ends with 1 if something is wrong.
    """
    findings = list(_examine(config, data))
    problems = sum(finding.state == "problem" for finding in findings)
    if json:
        output.as_json({"problems": problems, "findings": [asdict(finding) for finding in findings]})
    else:
        output.table(
            ("check", "state", "found", "what to do"),
            [(each.check, each.state, each.found, each.do) for each in findings],
            none="nothing was checked",
        )
    if problems:
        raise TocsinError(f"{problems} problem{'s' if problems > 1 else ''} found; what to do is said beside each")


def _examine(config: Path | None, data: Path | None) -> Iterator[Finding]:
    from tocsin.cli.offline import settings_for

    try:
        settings = settings_for(config, data)
    except ConfigError as error:
        yield Finding("settings", "problem", str(error), "correct the setting")
        return
    yield Finding("settings", "ok", f"store {settings.shown_store}, {settings.partition_count} partitions")
    if settings.is_fleet:
        yield from _fleet(settings)
        yield from _zones()
        yield from _files(settings)
        return
    yield from _folder(settings)
    yield from _store(settings)
    yield from _clock(settings)
    yield from _zones()
    yield from _files(settings)


def _fleet(settings: Settings) -> list[Finding]:
    """The databases, the near tier and the leases."""
    import asyncio

    from tocsin.roles.examination import examine_fleet

    async def look() -> list[Finding]:
        return [Finding(each.check, each.state, each.found, each.do) async for each in examine_fleet(settings)]

    return asyncio.run(look())


def _folder(settings: Settings) -> Iterator[Finding]:
    from tocsin.cli.measures import fsync_ms

    folder = settings.data
    if not folder.is_dir():
        yield Finding("data folder", "note", f"{folder} does not exist yet", "the first start of the server makes it")
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            "data folder",
            "problem",
            f"{folder} cannot be written by this user",
            "run as the server's user, or change its owner",
        )
        return
    yield _lock(folder)
    yield _free(folder)
    yield _medium(folder)
    try:
        took_ms = fsync_ms(folder)
    except OSError as error:
        yield Finding("flush", "problem", f"writing to {folder} fails: {error.strerror}", "make room, or mend the disk")
        return
    found = f"one flush to the disk takes {took_ms:.2f} ms"
    if took_ms > FLUSH_SLOW_MS:
        yield Finding("flush", "note", found, "bursts will be late on this disk: use a faster one")
    elif took_ms < FLUSH_UNREAL_MS:
        yield Finding(
            "flush", "note", f"{found}: no medium is that quick", "what is accepted may not survive a power failure"
        )
    else:
        yield Finding("flush", "ok", found)


def _lock(folder: Path) -> Finding:
    """Who has the folder. Asked with a shared lock that is given back at once; a server never waits for it."""
    path = folder / "lock"
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return Finding("lock", "ok", "no server has used this folder yet")
    except OSError as error:
        return Finding("lock", "problem", f"{path} cannot be read: {error.strerror}", "run as the server's user")
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
        return Finding("lock", "ok", f"a server is running on this folder: process {holder}")
    except OSError as error:
        return Finding(
            "lock", "problem", f"file locks do not work here: {error.strerror}", "move the folder to a local disk"
        )
    finally:
        os.close(file)
    return Finding("lock", "ok", "no server is running on this folder")


def _free(folder: Path) -> Finding:
    usage = shutil.disk_usage(folder)
    found = f"{usage.free / MIB:,.0f} MiB of {usage.total / MIB:,.0f} MiB are free"
    if usage.free < FREE_PROBLEM:
        return Finding("disk space", "problem", found, "make room now: creates are refused (503) once the disk is full")
    if usage.free < FREE_NOTE:
        return Finding("disk space", "note", found, "make room, or lower retention_days")
    return Finding("disk space", "ok", found)


def _medium(folder: Path) -> Finding:
    kind = _filesystem(folder)
    if kind in IN_MEMORY:
        return Finding(
            "durability",
            "problem",
            f"{folder} is in memory ({kind}): all is lost with the machine",
            "move it to a disk",
        )
    if kind in OVER_NETWORK:
        return Finding(
            "durability",
            "problem",
            f"{folder} is on a network ({kind}), where SQLite's files break",
            "move it to a local disk",
        )
    return Finding(
        "durability",
        "ok",
        "accepted jobs survive a crash of the process and of the machine, not the loss of this disk"
        + (f" ({kind})" if kind else ""),
        "copy the folder elsewhere as often as a loss would hurt",
    )


def _filesystem(folder: Path) -> str:
    """The type of the file system that holds `folder`, from Linux's list of mounts; empty where there is none."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    here = folder.resolve()
    best, kind = -1, ""
    for line in mounts:
        _, where, type_name = line.split(" ")[:3]
        mount = Path(where.replace("\\040", " "))
        if (here == mount or mount in here.parents) and len(mount.parts) > best:
            best, kind = len(mount.parts), type_name
    return kind


def _store(settings: Settings) -> Iterator[Finding]:
    from tocsin import roles

    file = Path(settings.dsn.removeprefix("sqlite:"))
    if not file.exists():
        yield Finding(
            "store", "note", f"{file} does not exist yet", "the first start of the server, or tocsin migrate, makes it"
        )
        return
    try:
        report: StoreReport = roles.examine_store(settings)
    except TocsinError as error:
        yield Finding("store", "problem", str(error), "see docs/operations.md: when the store cannot be used")
        return
    if report.faults:
        yield Finding(
            "store",
            "problem",
            f"the quick check found {len(report.faults)} faults: {report.faults[0]}",
            "stop the server and restore the last copy of the data folder",
        )
    else:
        size = file.stat().st_size / MIB
        yield Finding("store", "ok", f"{file.name} opens, and its quick check finds nothing; {size:,.1f} MiB")
    if report.version < report.newest:
        found = f"version {report.version}, this program has {report.newest}"
        yield Finding("schema", "note", found, "tocsin migrate, or a start, brings it up")
    else:
        yield Finding("schema", "ok", f"version {report.version}")


def _clock(settings: Settings) -> Iterator[Finding]:
    from tocsin.clock import SystemClock, rfc3339

    now_ms = SystemClock().now_ms()
    newest_ms = 0
    for name in ("tocsin.db", "tocsin.db-wal"):
        file = settings.data / name
        if file.exists():
            newest_ms = max(newest_ms, int(file.stat().st_mtime * 1000))
    if now_ms < NOT_BEFORE_MS:
        yield Finding(
            "clock", "problem", f"the clock says {rfc3339(now_ms)}", "set the clock; run a time service (NTP)"
        )
    elif newest_ms > now_ms + 2_000:
        yield Finding(
            "clock",
            "problem",
            f"the store was written at {rfc3339(newest_ms)}, which the clock has not reached",
            "set the clock; until then jobs wait longer than they should",
        )
    else:
        yield Finding("clock", "ok", f"the clock says {rfc3339(now_ms)}")


def _zones() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        yield Finding("zone data", "ok", f"tzdata {version('tzdata')}")
    except PackageNotFoundError:
        yield Finding("zone data", "problem", "the package tzdata is missing", "install tocsin[server]")


def _files(settings: Settings) -> Iterator[Finding]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(FILES_NOTE, settings.executor_concurrency * 2)
    if soft != resource.RLIM_INFINITY and soft < needed and hard != resource.RLIM_INFINITY and hard < needed:
        yield Finding("open files", "note", f"at most {hard}", f"raise the limit to {needed} (LimitNOFILE= in systemd)")
    else:
        yield Finding("open files", "ok", f"{soft} now, at most {hard}")
