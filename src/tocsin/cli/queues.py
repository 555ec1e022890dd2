"""`tocsin queues`: figures and settings of queues, pause and resume."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tocsin.cli import inputs, output, reach
from tocsin.cli.jobs import pages
from tocsin.cli.output import Json
from tocsin.errors import UsageError

app = typer.Typer(help="Look at queues, set, pause and resume them.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
COUNTS = ("scheduled", "ready", "running", "retrying", "dead")
COLUMNS = ("queue", "state", *COUNTS, "oldest ready (s)", "done per s", "late p50 (s)", "late p99 (s)")


@app.command("list")
def list_queues(json: Json = False) -> None:
    """List the tenant's queues with their figures."""
    items, more = pages("/v1/queues", [], 10_000, None)
    if json:
        output.as_json({"items": items, "next_cursor": more})
        return
    output.table(COLUMNS, [_row(queue) for queue in items], none="no queues; one comes into being with its first job")


@app.command()
def get(queue: Queue, json: Json = False) -> None:
    """Show a queue's settings and figures."""
    _show(reach.call("GET", f"/v1/queues/{reach.part(queue)}"), json)


@app.command("set")
def set_queue(
    queue: Queue,
    lease: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long a claim holds without a heartbeat.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="NUMBER", help="How often its jobs are tried.")] = None,
    initial_backoff: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The longest pause before the second try.")
    ] = None,
    max_backoff: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The longest pause before any try.")
    ] = None,
    default: Annotated[
        list[str] | None, typer.Option(metavar="SETTING", help="Back to the default: lease or retry; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Change a queue's settings; the queue is made if there is none."""
    body: dict[str, Any] = {}
    for name in default or []:
        if name not in ("lease", "retry"):
            raise UsageError(f"--default {name!r} must be lease or retry")
        body["lease_s" if name == "lease" else "retry"] = None
    if lease is not None:
        body["lease_s"] = inputs.seconds(lease, "--lease")
    retry = {
        "max_attempts": max_attempts,
        "initial_backoff_s": None if initial_backoff is None else inputs.seconds(initial_backoff, "--initial-backoff"),
        "max_backoff_s": None if max_backoff is None else inputs.seconds(max_backoff, "--max-backoff"),
    }
    retry = {name: value for name, value in retry.items() if value is not None}
    if retry:
        if "retry" not in body:
            # `retry` is replaced whole, so what is not named here must be sent along as it is.
            retry = {**_retry_of(queue), **retry}
        body["retry"] = retry
    if not body:
        raise UsageError("name what to set: --lease, --max-attempts, --initial-backoff, --max-backoff or --default")
    _show(_put(queue, body), json)


@app.command()
def pause(
    queue: Queue,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for whoever finds it paused.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Resume by itself then (RFC 3339).")] = None,
    json: Json = False,
) -> None:
    """Stop handing out a queue's jobs; running ones go on."""
    _show(_put(queue, {"paused": True, "pause_note": note, "pause_until": until}), json)


@app.command()
def resume(queue: Queue, json: Json = False) -> None:
    """Hand out a paused queue's jobs again."""
    _show(_put(queue, {"paused": False, "pause_note": None, "pause_until": None}), json)


def _put(queue: str, body: dict[str, Any]) -> reach.Reply:
    return reach.call("PUT", f"/v1/queues/{reach.part(queue)}", body=body)


def _retry_of(queue: str) -> dict[str, Any]:
    from tocsin.errors import Refused

    try:
        retry: dict[str, Any] = reach.call("GET", f"/v1/queues/{reach.part(queue)}").value["retry"]
    except Refused as refused:
        if refused.status != 404:
            raise
        return {}
    return retry


def _show(reply: reach.Reply, json: bool) -> None:
    if json:
        output.raw_json(reply.body)
        return
    queue = reply.value
    stats = queue.pop("stats", {})
    output.facts({**queue, **stats})


def _row(queue: dict[str, Any]) -> list[object]:
    stats = queue["stats"]
    state = "paused" if queue["paused"] else "open"
    if queue["paused"] and queue["pause_note"]:
        state += f" ({queue['pause_note']})"
    counts = [stats[name] for name in COUNTS]
    times = [stats[name] for name in ("oldest_ready_s", "completed_per_s", "lateness_p50_s", "lateness_p99_s")]
    return [queue["queue"], state, *counts, *times]
