"""Looking at a fleet's servers for `tocsin doctor`: each by itself, changing nothing. One that cannot be looked at is a finding."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from tocsin.clock import SystemClock, SystemEntropy
from tocsin.config import Settings
from tocsin.errors import TocsinError
from tocsin.roles.adapters import open_registry, open_store

SILENT_S = 15.0


class Found(Protocol):
    """What one check found. `do` is empty where nothing has to be done."""

    @property
    def check(self) -> str: ...

    @property
    def state(self) -> Literal["ok", "note", "problem"]: ...

    @property
    def found(self) -> str: ...

    @property
    def do(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Said:
    check: str
    state: Literal["ok", "note", "problem"]
    found: str
    do: str = ""


async def examine_fleet(settings: Settings) -> AsyncIterator[Found]:
    """Findings about the databases, the near tier and the leases of these settings."""
    databases = [finding async for finding in _databases(settings)]
    schemas = [finding.state for finding in databases if finding.check == "schema"]
    # Opening a store migrates it, which is not for a look to do: only where every database is of this program's schema.
    current = len(schemas) == 1 + len(settings.shards.split()) and set(schemas) == {"ok"}
    fleet = [finding async for finding in _leases(settings)] if current else []
    runs = any(finding.check == "nodes" and finding.state != "note" for finding in fleet)
    for finding in databases:
        if finding.check == "days ahead" and finding.state == "problem" and runs:
            found = f"{finding.found} yet"
            yield _Said(
                finding.check, "note", found, "look again in a minute: nodes are there, and one of them makes them"
            )
        else:
            yield finding
    async for finding in _near(settings):
        yield finding
    for finding in fleet:
        yield finding


async def _databases(settings: Settings) -> AsyncIterator[Found]:
    from tocsin.store.postgres.examine import examine

    for dsn in (settings.dsn, *settings.shards.split()):
        try:
            report = await examine(dsn, SystemClock())
        except TocsinError as error:
            yield _Said("store", "problem", str(error), "start the server, or correct store and shards")
            continue
        for finding in report.findings:
            yield finding


async def _near(settings: Settings) -> AsyncIterator[Found]:
    from tocsin.near.redis.examine import examine

    try:
        findings = await examine(settings.near_url)
    except TocsinError as error:
        do = "start it; until then jobs are accepted and start late, and claims are answered 503"
        yield _Said("near tier", "problem", str(error), do)
        return
    for finding in findings:
        yield finding


async def _leases(settings: Settings) -> AsyncIterator[Found]:
    """Whether the sessions' keeper answers, and what the fleet says of itself."""
    clock = SystemClock()
    try:
        store = await open_store(settings, clock)
    except TocsinError as error:
        yield _Said("leases", "problem", str(error), "correct what the message names")
        return
    try:
        registry = await open_registry(settings, store, clock, SystemEntropy())
        try:
            members = await registry.members()
            held = {holding.partition for holding in await registry.holdings()}
        finally:
            await registry.close()
    except TocsinError as error:
        yield _Said("leases", "problem", str(error), "start it; nodes that cannot renew their session stop firing")
        return
    finally:
        await store.close()
    nodes = [member for member in members if "node" in member.facts.roles]
    if not nodes:
        yield _Said("nodes", "note", "none runs", "start one: tocsin serve --role node")
    elif len(held) < settings.partition_count:
        missing = settings.partition_count - len(held)
        found = f"{len(nodes)} run; {missing} of {settings.partition_count} partitions have no owner"
        yield _Said("nodes", "problem", found, "wait half a minute after a start; then look at the nodes' logs")
    else:
        yield _Said("nodes", "ok", f"{len(nodes)} run and own all {settings.partition_count} partitions")
    versions = sorted({member.facts.version for member in members})
    if len(versions) > 1:
        found = f"processes run {', '.join(versions)}"
        yield _Said("versions", "note", found, "finish the upgrade; two versions side by side are for its time only")
    for member in members:
        offset = member.vitals.clock_offset_ms
        if offset is not None and abs(offset) > 125:
            state: Literal["note", "problem"] = "problem" if abs(offset) > 250 else "note"
            found = f"{member.facts.node} is {abs(offset)} ms off the store's clock"
            yield _Said("clocks", state, found, "run a time service (NTP) there; past 250 ms it fires nothing")
