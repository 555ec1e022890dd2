"""`tocsin bench`: puts load on a server and says how it did, as one JSON object on standard output.

    burst   N jobs that are all due at one second, made before it
    steady  so many jobs a second, each due at its own instant, for some time
    mixed   the same, with priorities and attempts that fail once

Rates of a burst count from the second at which all are due to the last start (`drain_per_s`) and to the last completion that
the server acknowledged (`completed_per_s`). Lateness is a start less its due time, by one machine's clock. `lost` and
`duplicates` are counted from the numbers of jobs that the workers' own handlers noted. `cpu_us_per_job` is the CPU time of
the server (if it runs on this machine) and the workers from the first create to the last completion.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from tocsin.cli import output, reach
from tocsin.errors import TocsinError, UsageError

if TYPE_CHECKING:
    from tocsin.cli.load import Notes, Plan, Workers
    from tocsin.clock import Clock
    from tocsin.sdk.transport import Transport

app = typer.Typer(help="Put load on a server; the result is JSON.", no_args_is_help=True)

WorkersOption = Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")]
Concurrency = Annotated[int, typer.Option(min=1, max=10_000, help="Handlers at once in each.")]
Prefetch = Annotated[int, typer.Option(min=0, max=50_000, help="Jobs that may wait in each.")]
PayloadBytes = Annotated[int, typer.Option(min=32, max=65_536, help="The size of each payload.")]
Queue = Annotated[str | None, typer.Option(help="The queue.", show_default="one of its own")]
Batch = Annotated[int, typer.Option(min=1, max=5_000, help="Jobs in one create (1: POST /v1/jobs).")]
Connections = Annotated[int, typer.Option(min=1, max=256, help="Creates at once.")]
Keys = Annotated[bool, typer.Option("--keys", help="Create with idempotency keys.")]
Data = Annotated[Path | None, typer.Option(help="The server's data folder, whose disk is measured.")]
Limit = Annotated[float, typer.Option(min=1, help="Give up so many seconds after the last job was due.")]


@app.command()
def burst(
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many.")],
    lead: Annotated[float, typer.Option(min=1, help="Seconds from the first create until all are due.")] = 15.0,
    workers: WorkersOption = 1,
    concurrency: Concurrency = 64,
    prefetch: Prefetch = 4_000,
    payload_bytes: PayloadBytes = 500,
    queue: Queue = None,
    batch: Batch = 1_000,
    connections: Connections = 4,
    keys: Keys = False,
    data: Data = None,
    limit: Limit = 60.0,
) -> None:
    """N jobs due at one second."""
    from tocsin.cli.load import Plan, Workers, create

    async def work(transport: Transport, clock: Clock, name: str, crew: Workers, meter: Meter) -> dict[str, Any]:
        due_ms = -int(-(clock.now_ms() + lead * 1000) // 1000) * 1000
        plan = Plan(jobs=jobs, queue=name, payload_bytes=payload_bytes, due_ms=lambda number: due_ms, keys=keys)
        began, made = perf_counter(), 0
        with output.progress("creating", jobs) as bar:

            def note(count: int) -> None:
                nonlocal made
                made += count
                bar(made)

            await create(transport, plan, 0, jobs, batch=batch, connections=connections, note=note)
        took_s = perf_counter() - began
        spare_s = (due_ms - clock.now_ms()) / 1000
        if spare_s < 1:
            _say(f"creating took {took_s:.1f} s, so the jobs were due before all were there: raise --lead")
        await _until_done(clock, crew, plan, max(spare_s, 0) + limit)
        notes = crew.notes()
        result = _result(plan, notes, meter, jobs / took_s)
        result["spare_s"] = round(spare_s, 1)
        if notes.starts:
            last_ms = max(at_ms for _, at_ms in notes.starts)
            result["drain_per_s"] = round(len(notes.starts) / max((last_ms - due_ms) / 1000, 0.001))
            result["completed_per_s"] = round(notes.completed / max((notes.last_completion_ms - due_ms) / 1000, 0.001))
        return result

    _run(work, Workers, queue, workers, concurrency, prefetch, data)


@app.command()
def steady(
    rate: Annotated[float, typer.Option(min=0.1, max=100_000, help="Jobs a second.")],
    seconds: Annotated[float, typer.Option(min=1, help="For how long.")] = 60.0,
    lead: Annotated[float, typer.Option(min=0.5, help="Seconds by which a job is made before it is due.")] = 3.0,
    workers: WorkersOption = 1,
    concurrency: Concurrency = 64,
    prefetch: Prefetch = 0,
    payload_bytes: PayloadBytes = 500,
    queue: Queue = None,
    keys: Keys = False,
    data: Data = None,
    limit: Limit = 60.0,
) -> None:
    """So many jobs a second, each due at its own instant."""
    _flow(rate, seconds, lead, workers, concurrency, prefetch, payload_bytes, queue, keys, data, limit, mixed=False)


@app.command()
def mixed(
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many.")] = 30_000,
    rate: Annotated[float, typer.Option(min=0.1, max=100_000, help="Jobs a second.")] = 1_000.0,
    lead: Annotated[float, typer.Option(min=0.5, help="Seconds by which a job is made before it is due.")] = 3.0,
    workers: WorkersOption = 1,
    concurrency: Concurrency = 64,
    prefetch: Prefetch = 0,
    payload_bytes: PayloadBytes = 500,
    queue: Queue = None,
    keys: Keys = False,
    data: Data = None,
    limit: Limit = 60.0,
) -> None:
    """A steady load in which a tenth is urgent, a tenth can wait and a tenth fails once."""
    seconds = jobs / rate
    _flow(rate, seconds, lead, workers, concurrency, prefetch, payload_bytes, queue, keys, data, limit, mixed=True)


def _flow(
    rate: float,
    seconds: float,
    lead: float,
    workers: int,
    concurrency: int,
    prefetch: int,
    payload_bytes: int,
    queue: str | None,
    keys: bool,
    data: Path | None,
    limit: float,
    *,
    mixed: bool,
) -> None:
    import asyncio

    from tocsin.cli.load import Plan, Workers, create

    jobs = max(1, round(rate * seconds))

    async def work(transport: Transport, clock: Clock, name: str, crew: Workers, meter: Meter) -> dict[str, Any]:
        start_ms = clock.now_ms()
        first_ms = start_ms + round(lead * 1000)
        plan = Plan(
            jobs=jobs,
            queue=name,
            payload_bytes=payload_bytes,
            due_ms=lambda number: first_ms + int(number * 1000 / rate),
            mixed=mixed,
            keys=keys,
        )
        made, behind_s = 0, 0.0
        with output.progress("running", jobs) as bar:
            while made < jobs:
                crew.check()
                # What should be there by now; the rest of a job's lead is then still ahead of it.
                wanted = min(jobs, int((clock.now_ms() - start_ms) / 1000 * rate) + 1)
                if wanted > made:
                    await create(transport, plan, made, wanted, batch=1_000, connections=4, note=lambda count: None)
                    made = wanted
                    behind_s = max(behind_s, (clock.now_ms() - plan.due_ms(made - 1)) / 1000 + lead)
                    bar(made)
                await asyncio.sleep(0.1)
        took_s = (clock.now_ms() - start_ms) / 1000
        if behind_s > lead:
            _say(f"creating fell behind by {behind_s:.1f} s, more than the lead: the lateness includes that")
        await _until_done(clock, crew, plan, lead + limit)
        notes = crew.notes()
        result = _result(plan, notes, meter, jobs / took_s)
        result["create_behind_s"] = round(behind_s, 3)
        if notes.last_completion_ms > first_ms:
            result["drain_per_s"] = round(notes.completed / ((notes.last_completion_ms - first_ms) / 1000))
        return result

    _run(work, Workers, queue, workers, concurrency, prefetch, data)


class Meter:
    """CPU time of the server (None: not on this machine) and the workers since it was made."""

    def __init__(self, server: int | None, crew: Workers) -> None:
        self._server, self._crew = server, crew
        self._before_s = self._total_s()

    def used_s(self) -> float | None:
        """CPU seconds so far."""
        now_s = self._total_s()
        return None if now_s is None or self._before_s is None else now_s - self._before_s

    def memory_mb(self) -> float | None:
        """The server's resident memory now."""
        from tocsin.cli.measures import memory_bytes

        size = None if self._server is None else memory_bytes(self._server)
        return None if size is None else round(size / 1e6, 1)

    def _total_s(self) -> float | None:
        from tocsin.cli.measures import cpu_s

        server_s = None if self._server is None else cpu_s(self._server)
        workers_s = self._crew.cpu_s()
        return None if server_s is None or workers_s is None else server_s + workers_s


def _run(
    work: Any, crew_kind: Any, queue: str | None, workers: int, concurrency: int, prefetch: int, data: Path | None
) -> None:
    from tocsin.cli.load import worker_environ
    from tocsin.clock import SystemClock, SystemEntropy

    clock = SystemClock()
    name = queue or f"bench-{SystemEntropy().bytes(4).hex()}"
    url = str(getattr(reach.connect(), "url", ""))
    server = _server(url)
    _describe(url, server, data)

    async def go(transport: Transport) -> dict[str, Any]:
        await reach.ask(transport, "GET", "/v1/me")
        crew = crew_kind(workers, name, concurrency, prefetch, worker_environ(url))
        try:
            await crew.ready(clock)
            result: dict[str, Any] = await work(transport, clock, name, crew, Meter(server, crew))
        finally:
            crew.stop()
        return result

    result = reach.run(go)
    output.as_json(result)
    if result["lost"] or result["duplicates"] or result["done"] < result["jobs"]:
        raise TocsinError(f"{result['lost']} jobs lost, {result['duplicates']} started more often than they should")


def _server(url: str) -> int | None:
    """The server's process, if it runs on this machine."""
    from tocsin.cli.measures import listener

    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    return listener(parts.port or (443 if parts.scheme == "https" else 80))


def _describe(url: str, server: int | None, data: Path | None) -> None:
    from tocsin.cli import measures

    here = measures.machine()
    _say(f"{here.cores} cores, {here.cpu}, {here.system}")
    _say(f"server {url}" + (f", process {server}" if server else ", not on this machine: its CPU time is not counted"))
    folder = data or _data_of(server)
    if folder is None:
        return
    try:
        _say(f"one flush to the disk of {folder} takes {measures.fsync_ms(folder):.2f} ms")
    except OSError as error:
        raise UsageError(f"--data {folder} cannot be measured: {error.strerror}") from error


def _data_of(server: int | None) -> Path | None:
    """The folder of the database that the server's process has open."""
    if server is None:
        return None
    try:
        for entry in Path(f"/proc/{server}/fd").iterdir():
            target = os.readlink(entry)
            if target.endswith(".db"):
                return Path(target).parent
    except OSError:
        pass
    return None


async def _until_done(clock: Clock, crew: Workers, plan: Plan, limit_s: float) -> None:
    import asyncio

    from tocsin.cli.load import LOOK_EVERY_S

    until = clock.elapsed_s() + limit_s
    with output.progress("completing", plan.jobs) as bar:
        while clock.elapsed_s() < until:
            crew.check()
            _, completed = crew.counts()
            bar(completed)
            if completed >= plan.jobs:
                return
            await asyncio.sleep(LOOK_EVERY_S)
    _say(f"not all jobs were completed within {limit_s:.0f} s")


def _result(plan: Plan, notes: Notes, meter: Meter, enqueue_per_s: float) -> dict[str, Any]:
    from tocsin.cli.measures import quantile

    first = notes.first_starts()
    late = sorted((at_ms - plan.due_ms(number)) / 1000 for number, at_ms in first.items())
    used_s = meter.used_s()
    return {
        "jobs": plan.jobs,
        "done": notes.completed,
        "enqueue_per_s": round(enqueue_per_s),
        "drain_per_s": 0,
        "p50": quantile(late, 0.5),
        "p99": quantile(late, 0.99),
        "lost": notes.lost(plan),
        "duplicates": notes.duplicates(plan),
        "cpu_us_per_job": None if used_s is None else round(used_s / plan.jobs * 1e6, 1),
        "server_memory_mb": meter.memory_mb(),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr)
