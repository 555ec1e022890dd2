"""`tocsin schedules`: define, preview, look at, pause and run recurring jobs. A schedule may be named by its name or its ID."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Literal

import typer

from tocsin.cli import definitions, importing, inputs, output, reach
from tocsin.cli import jobs as job_commands
from tocsin.cli.jobs import pages
from tocsin.cli.output import Json
from tocsin.errors import Refused

app = typer.Typer(help="Define, preview, look at, pause and run schedules.", no_args_is_help=True)

Schedule = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name or ID.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on where an earlier list ended.")]
COLUMNS = ("name", "status", "when", "zone", "next run at", "last run at", "last status")
# Queue and target are the schedule's own.
JOB_COLUMNS = ("occurrence at", "origin", "job", "status", "due at", "tries", "last error")
SKIP_COLUMNS = ("from", "to", "count", "reason", "recorded at", "detail")
ID = "sch_"


@app.command("list")
def list_schedules(
    status: Annotated[
        Literal["active", "paused", "finished", "broken"] | None, typer.Option(help="In this status.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of this name.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    json: Json = False,
) -> None:
    """List schedules, newest first."""
    query = [(key, value) for key, value in (("status", status), ("name", name)) if value is not None]
    items, more = pages("/v1/schedules", query, limit, cursor)
    _list(items, more, COLUMNS, [_row(each) for each in items], "no schedules", json)


@app.command()
def get(schedule: Schedule, json: Json = False) -> None:
    """Show a schedule and its next runs."""
    reply = find(schedule)
    if json:
        output.raw_json(reply.body)
        return
    found = reply.value
    runs, hints = found.pop("next_runs"), found.pop("hints")
    template = {name: value for name, value in (found["job_template"] or {}).items() if value is not None}
    found["job_template"] = template
    output.facts({name: value for name, value in found.items() if value not in (None, {}, [])})
    print()
    definitions.runs(runs)
    for hint in hints:
        print(output.clean(f"Note: {hint}"))


app.command()(definitions.create)
app.command()(definitions.update)


@app.command()
def delete(schedule: Schedule) -> None:
    """Delete a schedule and its waiting job.

    A started one goes on.
    """
    path, name = _path(schedule)
    reach.call("DELETE", path)
    print(output.clean(f"{name}  deleted"))


@app.command()
def pause(
    schedule: Schedule,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for whoever finds it paused.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Resume by itself then (RFC 3339).")] = None,
    json: Json = False,
) -> None:
    """Start no more runs; started ones go on.

    Pausing what is paused gives it this note and this time, and takes away those before.
    """
    body = {"paused": True, "pause_note": note, "pause_until": until}
    definitions.show(reach.call("PATCH", _path(schedule)[0], body=body), json, "paused", hints=False)


@app.command()
def resume(schedule: Schedule, json: Json = False) -> None:
    """Start runs again, from the next one on."""
    body = {"paused": False, "pause_note": None, "pause_until": None}
    before = find(schedule).value
    what = "resumed" if before["paused"] else "it was not paused"
    definitions.show(reach.call("PATCH", _path_of(before), body=body), json, what, hints=False)


@app.command()
def trigger(
    schedule: Schedule,
    payload: Annotated[
        str | None, typer.Option("--payload", "-p", metavar="JSON", help="Another payload: JSON, @FILE, or -.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Triggering again under this key gives the same job.")
    ] = None,
    json: Json = False,
) -> None:
    """Run it once now, also while it is paused."""
    body = None if payload is None else {"payload": inputs.json_text(payload, "--payload")}
    headers = None if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    reply = reach.call("POST", f"{_path(schedule)[0]}:trigger", body=body, headers=headers)
    if json:
        output.raw_json(reply.body)
        return
    job = reply.value
    print(f"{job['job_id']}  {job['status']}" + ("  (it existed already)" if reply.status == 200 else ""))


@app.command("skip-next")
def skip_next(schedule: Schedule, json: Json = False) -> None:
    """Leave out the next run; again: one more."""
    path, _ = _path(schedule)
    definitions.show(reach.call("POST", f"{path}:skip-next"), json, "the next run is left out", hints=False)


@app.command()
def backfill(
    schedule: Schedule,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="The first instant (RFC 3339).")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The first instant after it, at most now.")],
    most: Annotated[int, typer.Option("--max", min=1, max=10_000, help="Refuse more runs than this.")] = 1_000,
    order: Annotated[
        Literal["oldest_first", "newest_first"], typer.Option(help="Which run comes first.")
    ] = "oldest_first",
    concurrency: Annotated[int, typer.Option(min=1, max=1_000, help="So many at once.")] = 1,
    json: Json = False,
) -> None:
    """Run every occurrence of a past stretch."""
    body = {"from": start, "to": end, "max": most, "order": order, "concurrency": concurrency}
    path, name = _path(schedule)
    reply = reach.call("POST", f"{path}:backfill", body=body)
    if json:
        output.raw_json(reply.body)
        return
    count = reply.value["count"]
    runs, them = ("1 run", "it") if count == 1 else (f"{count:,} runs, {concurrency:,} at once", "them")
    print(output.clean(f"{runs}; look at {them} with: tocsin schedules jobs {shlex.quote(name)}"))


@app.command()
def jobs(schedule: Schedule, limit: Limit = 50, cursor: Cursor = None, json: Json = False) -> None:
    """List its jobs, the newest occurrence first.

    All of them: those that wait, that ran, and that were taken back by a pause or a change. One without an occurrence was triggered.
    """
    items, more = pages(f"{_path(schedule)[0]}/jobs", [], limit, cursor)
    _list(items, more, JOB_COLUMNS, [_job_row(job) for job in items], "no jobs yet", json)


@app.command()
def skips(schedule: Schedule, limit: Limit = 50, cursor: Cursor = None, json: Json = False) -> None:
    """List what did not run and why, newest first."""
    items, more = pages(f"{_path(schedule)[0]}/skips", [], limit, cursor)
    rows = [[each[column.replace(" ", "_")] for column in SKIP_COLUMNS] for each in items]
    _list(items, more, SKIP_COLUMNS, rows, "nothing was left out", json)


app.command()(definitions.preview)
app.command("import-crontab")(importing.import_crontab)


def find(schedule: str) -> reach.Reply:
    """The schedule that has this ID or this name."""
    return _by_id(schedule) or reach.call("GET", _path_of(_by_name(schedule)))


def _path(schedule: str) -> tuple[str, str]:
    """The path of a schedule and its name."""
    reply = _by_id(schedule)
    found = _by_name(schedule) if reply is None else reply.value
    return _path_of(found), found["name"]


def _path_of(schedule: dict[str, Any]) -> str:
    return f"/v1/schedules/{reach.part(schedule['schedule_id'])}"


def _by_id(schedule: str) -> reach.Reply | None:
    """The schedule of this ID; None where it is none, as a name may look like one."""
    if not schedule.startswith(ID):
        return None
    try:
        return reach.call("GET", f"/v1/schedules/{reach.part(schedule)}")
    except Refused as refused:
        if refused.status != 404:
            raise
        return None


def _by_name(name: str) -> dict[str, Any]:
    items, _ = pages("/v1/schedules", [("name", name)], 10, None)
    for each in items:
        if each["name"] == name:
            return each
    raise Refused(404, "not-found", "Not found", f"there is no schedule {name!r}; tocsin schedules list shows all")


def _list(
    items: list[dict[str, Any]],
    more: str | None,
    columns: tuple[str, ...],
    rows: list[list[object]],
    none: str,
    json: bool,
) -> None:
    if json:
        output.as_json({"items": items, "next_cursor": more})
        return
    output.table(columns, rows, none=none)
    if more:
        print(f"There are more: --cursor {more}")


def _row(schedule: dict[str, Any]) -> list[object]:
    when = schedule["cron"] or f"every {schedule['every_s']:g} s"
    status, reason = schedule["status"], schedule["broken_reason"]
    if schedule["paused"]:
        until = schedule["pause_until"] and f"until {schedule['pause_until']}"
        reason = reason or ", ".join(each for each in (until, schedule["pause_note"]) if each)
    times = [schedule["next_run_at"], schedule["last_run_at"], schedule["last_status"]]
    shown = f"{status} ({reason})" if reason else status
    return [schedule["name"], shown, when, schedule["time_zone"], *times]


def _job_row(job: dict[str, Any]) -> list[object]:
    row = dict(zip(job_commands.COLUMNS, job_commands.row(job), strict=True))
    return [job["occurrence_at"], job["origin"], *(row[column] for column in JOB_COLUMNS[2:])]
