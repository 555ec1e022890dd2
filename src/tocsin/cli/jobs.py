"""`tocsin jobs`: create, look at, cancel and hurry jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from tocsin.cli import inputs, output, reach
from tocsin.cli.output import Json
from tocsin.errors import Refused, UsageError

app = typer.Typer(help="Create, look at, cancel and hurry jobs.", no_args_is_help=True)

Ids = Annotated[list[str], typer.Argument(metavar="JOB_ID")]
COLUMNS = ("job", "queue", "status", "target", "due at", "tries", "name", "last error")


@app.command()
def create(
    queue: Annotated[
        str, typer.Option("--queue", "-q", metavar="QUEUE", help="The queue; it comes into being with its first job.")
    ],
    handler: Annotated[
        str | None, typer.Option(metavar="NAME", help="A task: the handler that a worker has for it.")
    ] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="A callback: the URL to call.")] = None,
    method: Annotated[str, typer.Option(metavar="METHOD", help="The callback's method.")] = "POST",
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A callback's header; repeatable.")
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", "-p", metavar="JSON", help="JSON, @FILE, or - for standard input.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When: RFC 3339 with an offset, 2026-12-05T09:00:00+05:30.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Or after how long: 90, 15m, 2h, 3d. Neither: now.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Flexible: anywhere in a window of this length.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="A name for people.")] = None,
    priority: Annotated[str | None, typer.Option(metavar="PRIORITY", help="high, normal or low.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="How long one attempt may take.")] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="NUMBER", help="How often it is tried.")] = None,
    initial_backoff: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The longest pause before the second try.")
    ] = None,
    max_backoff: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The longest pause before any try.")
    ] = None,
    expires_after: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Skip it if it has not started so long after its time.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A tag; repeatable.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Creating again under this key gives the same job.")
    ] = None,
    json: Json = False,
) -> None:
    """Create a job."""
    if (handler is None) == (url is None):
        raise UsageError("give --handler NAME for a task or --url URL for a callback, one of them")
    if at is not None and delay is not None:
        raise UsageError("give --at or --delay, not both")
    target: dict[str, Any]
    if handler is not None:
        if header or method != "POST":
            raise UsageError("--method and --header belong to a callback (--url)")
        target = {"type": "task", "handler": handler}
    else:
        target = {
            "type": "http",
            "url": url,
            "method": method.upper(),
            "headers": inputs.pairs(header or [], "--header", ":"),
        }
    if timeout is not None:
        target["timeout_s"] = inputs.seconds(timeout, "--timeout")
    retry = {
        "max_attempts": max_attempts,
        "initial_backoff_s": None if initial_backoff is None else inputs.seconds(initial_backoff, "--initial-backoff"),
        "max_backoff_s": None if max_backoff is None else inputs.seconds(max_backoff, "--max-backoff"),
    }
    body = {
        "queue": queue,
        "target": target,
        "payload": None if payload is None else inputs.json_text(payload, "--payload"),
        "run_at": at,
        "delay_s": None if delay is None else inputs.seconds(delay, "--delay"),
        "timing": None if window is None else {"class": "flexible", "window_s": inputs.seconds(window, "--window")},
        "name": name,
        "priority": priority,
        "retry": _given(retry) or None,
        "expires_after_s": None if expires_after is None else inputs.seconds(expires_after, "--expires-after"),
        "tags": inputs.pairs(tag or [], "--tag", "=") or None,
    }
    headers = None if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    reply = reach.call("POST", "/v1/jobs", body=_given(body), headers=headers)
    if json:
        output.raw_json(reply.body)
        return
    job = reply.value
    print(f"{job['job_id']}  {job['status']}" + ("  (it existed already)" if reply.status == 200 else ""))
    print(f"fires at {job['fire_at']}; look at it with: tocsin jobs get {job['job_id']}")


@app.command()
def get(job_ids: Ids, json: Json = False) -> None:
    """Show jobs, also long finished ones."""

    def show(job: dict[str, Any]) -> None:
        output.facts({name: value for name, value in job.items() if value not in (None, {}, [])})

    _each(job_ids, "GET", "", json, show)


@app.command("list")
def list_jobs(
    queue: Annotated[str | None, typer.Option("--queue", "-q", metavar="QUEUE", help="Of this queue.")] = None,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="In this status, such as DEAD.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="With this tag; repeated: all of them.")
    ] = None,
    created_after: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339.")] = None,
    created_before: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on where an earlier list ended.")] = None,
    json: Json = False,
) -> None:
    """List jobs, newest first."""
    query = [("queue", queue), ("status", status.upper() if status else None)]
    query += [("tag", inputs.tag(each)) for each in tag or []]
    query += [("created_after", created_after), ("created_before", created_before)]
    items, more = pages("/v1/jobs", [(key, value) for key, value in query if value is not None], limit, cursor)
    if json:
        output.as_json({"items": items, "next_cursor": more})
        return
    output.table(COLUMNS, [row(job) for job in items], none="no jobs")
    if more:
        print(f"There are more: --cursor {more}")


@app.command()
def cancel(job_ids: Ids, json: Json = False) -> None:
    """Cancel jobs; a running one is asked to stop."""
    _each(job_ids, "DELETE", "", json, _status)


@app.command("run-now")
def run_now(job_ids: Ids, json: Json = False) -> None:
    """Fire waiting jobs at once."""
    _each(job_ids, "POST", ":run-now", json, _status)


@app.command()
def attempts(job_id: Annotated[str, typer.Argument(metavar="JOB_ID")], json: Json = False) -> None:
    """Show a job's attempts, oldest first."""
    reply = reach.call("GET", f"/v1/jobs/{reach.part(job_id)}/attempts")
    if json:
        output.raw_json(reply.body)
        return
    columns = ("attempt", "worker", "claimed at", "finished at", "outcome", "lateness_s", "status_code", "error")
    rows = [[each.get(name.replace(" ", "_")) for name in columns] for each in reply.value["items"]]
    output.table(columns, rows, none="no attempt yet")


def pages(
    path: str, query: list[tuple[str, str]], limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Up to `limit` items of a list, over as many pages as that takes (a page may be short), and the cursor for the rest."""

    async def collect(transport: Any) -> tuple[list[dict[str, Any]], str | None]:
        items: list[dict[str, Any]] = []
        at = cursor
        while True:
            asked = [*query, ("limit", str(min(200, limit - len(items)))), *([("cursor", at)] if at else [])]
            page = (await reach.ask(transport, "GET", path, query=asked)).value
            items += page["items"]
            at = page["next_cursor"]
            if at is None or len(items) >= limit:
                return items, at

    return reach.run(collect)


def row(job: dict[str, Any]) -> list[object]:
    """A job as a row under COLUMNS. What waits for another try is due when that comes, anything else when it fired or will."""
    target = job["target"]
    aim = target["handler"] if target["type"] == "task" else f"{target['method']} {target['url']}"
    tries = f"{job['tries']}/{job['max_attempts']}"
    due_at = job["next_attempt_at"] if job["status"] == "RETRYING" else job["fire_at"]
    return [job["job_id"], job["queue"], job["status"], aim, due_at, tries, job["name"], job["last_error"]]


def _each(job_ids: list[str], method: str, action: str, json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """The same call for several jobs: one that is refused stops no other; the first refusal is the command's end."""
    refused: Refused | None = None
    replies = []
    for job_id in job_ids:
        try:
            replies.append(reach.call(method, f"/v1/jobs/{reach.part(job_id)}{action}"))
        except Refused as error:
            refused = refused or Refused(
                error.status, error.kind, error.title, f"{job_id}: {error.detail}", errors=error.errors
            )
    if json and len(job_ids) == 1 and replies:
        output.raw_json(replies[0].body)
    elif json:
        output.as_json([reply.value for reply in replies])
    else:
        for number, reply in enumerate(replies):
            if number and show is not _status:
                print()
            show(reply.value)
    if refused is not None:
        raise refused


def _status(job: dict[str, Any]) -> None:
    print(f"{job['job_id']}  {job['status']}")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
