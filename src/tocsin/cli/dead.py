"""`tocsin dead`: dead letters of a queue: look at them, redrive or discard them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tocsin.cli import output, reach
from tocsin.cli.jobs import pages
from tocsin.cli.output import Json
from tocsin.errors import UsageError

app = typer.Typer(help="Look at dead letters, redrive or discard them.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
JobIds = Annotated[list[str] | None, typer.Option("--job", metavar="JOB_ID", help="This one; repeatable.")]
All = Annotated[bool, typer.Option("--all", help="All of the queue; goes with no condition.")]
ErrorContains = Annotated[str | None, typer.Option(metavar="TEXT", help="Those whose last error contains this text.")]
Tag = Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="Those with this tag.")]
After = Annotated[
    str | None, typer.Option("--dead-after", metavar="TIME", help="Those that died after this (RFC 3339).")
]
Before = Annotated[
    str | None, typer.Option("--dead-before", metavar="TIME", help="Those that died before this (RFC 3339).")
]
Most = Annotated[
    int | None,
    typer.Option("--max", min=1, max=10_000, help="At most so many.", show_default="1000; with --all no limit"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]
COLUMNS = ("job", "died at", "attempts", "target", "name", "last error")


@app.command("list")
def list_dead(
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on where an earlier list ended.")] = None,
    json: Json = False,
) -> None:
    """List a queue's dead letters, the newest death first."""
    items, more = pages(f"/v1/queues/{reach.part(queue)}/dead-letters", [], limit, cursor)
    if json:
        output.as_json({"items": items, "next_cursor": more})
        return
    output.table(COLUMNS, [_row(job) for job in items], none=f"no dead letters in {queue}")
    if more:
        print(f"There are more: --cursor {more}")


@app.command()
def redrive(
    queue: Queue,
    job: JobIds = None,
    every: All = False,
    error_contains: ErrorContains = None,
    tag: Tag = None,
    dead_after: After = None,
    dead_before: Before = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Start so many a second instead of all at once; then --all takes 10,000."),
    ] = None,
    most: Most = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Try dead letters again, with all their tries."""
    body = _selection(job, every, error_contains, tag, dead_after, dead_before, most, dry_run)
    if rate is not None:
        body["rate_per_s"] = rate
    if rate is not None and every and most is None:
        # One call has one pace; a second one would add its own to it.
        body["max"], most = 10_000, 10_000
    _act(queue, "redrive", "redriven", body, json, to_the_end=every and most is None)


@app.command()
def discard(
    queue: Queue,
    job: JobIds = None,
    every: All = False,
    error_contains: ErrorContains = None,
    tag: Tag = None,
    dead_after: After = None,
    dead_before: Before = None,
    most: Most = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Give dead letters up; they stay readable like finished jobs."""
    body = _selection(job, every, error_contains, tag, dead_after, dead_before, most, dry_run)
    _act(queue, "discard", "discarded", body, json, to_the_end=every and most is None)


def _selection(
    job_ids: list[str] | None,
    every: bool,
    error_contains: str | None,
    tag: str | None,
    dead_after: str | None,
    dead_before: str | None,
    most: int | None,
    dry_run: bool,
) -> dict[str, Any]:
    conditions = {
        "error_contains": error_contains,
        "tag": _tag(tag),
        "dead_after": dead_after,
        "dead_before": dead_before,
    }
    wanted = {name: value for name, value in conditions.items() if value is not None}
    if sum((bool(job_ids), every, bool(wanted))) != 1:
        # Nothing named must never mean everything.
        raise UsageError(
            "say which, in one of these ways: --job JOB_ID; conditions (--error-contains, --tag, --dead-after, --dead-before); "
            "--all, which goes with none of them"
        )
    body: dict[str, Any] = {"max": most or 1_000, "dry_run": dry_run}
    if job_ids:
        body["job_ids"] = job_ids
    else:
        body["filter"] = wanted
    return body


def _tag(text: str | None) -> str | None:
    from tocsin.cli import inputs

    return None if text is None else inputs.tag(text)


def _act(queue: str, action: str, done: str, body: dict[str, Any], json: bool, *, to_the_end: bool) -> None:
    """Ask once, or `to_the_end`: until as many have been taken as there were at first, or a call takes none.

    What dies again meanwhile adds nothing to that number, so a handler that always fails does not keep the command going.
    """
    reply, matched, acted = _ask(queue, action, done, body)
    left = matched - acted
    total = acted
    while to_the_end and not body["dry_run"] and acted and left > 0 and total < matched:
        _, found, acted = _ask(queue, action, done, body)
        left, total = found - acted, total + acted
    if json:
        if total == reply.value[done]:
            output.raw_json(reply.body)
        else:
            output.as_json({"matched": matched, done: total})
    elif body["dry_run"]:
        print(f"{matched} match; a dry run changes nothing")
    elif left > 0:
        print(f"{total} {done}; {left} {'is' if left == 1 else 'are'} left: repeat the command, or raise --max")
    else:
        print(f"{total} {done}")


def _ask(queue: str, action: str, done: str, body: dict[str, Any]) -> tuple[reach.Reply, int, int]:
    """One call: its answer, how many matched before it, and how many it took."""
    reply = reach.call("POST", f"/v1/queues/{reach.part(queue)}/dead-letters:{action}", body=body)
    return reply, reply.value["matched"], reply.value[done]


def _row(job: dict[str, Any]) -> list[object]:
    target = job["target"]
    aim = target["handler"] if target["type"] == "task" else f"{target['method']} {target['url']}"
    return [job["job_id"], job["finished_at"], job["attempt"], aim, job["name"], job["last_error"]]
