"""`tocsin schedules import-crontab`: makes a schedule of every line of a crontab.

Everything is judged before anything is done: the file by `crontab.py`, each expression and zone by the server's preview. A line that
cannot be taken stops the whole import unless `--skip-bad`. Each schedule is upserted under a name made of its command, so importing
the same file again changes nothing, and an import that was cut off is completed by another.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tocsin.cli import crontab, inputs, output, reach
from tocsin.cli.output import Json
from tocsin.errors import Refused, TocsinError, UsageError

if TYPE_CHECKING:
    from tocsin.sdk.transport import Transport

COLUMNS = ("line", "schedule", "when", "zone", "next run at", "what")
MAX_BYTES = 1024 * 1024


@dataclass(slots=True)
class Planned:
    """One line and the schedule that it becomes."""

    line: crontab.Line
    body: dict[str, Any]
    next_at: str | None
    before: dict[str, Any] | None
    what: str = ""
    schedule: dict[str, Any] | None = None


def import_crontab(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A user's crontab, or - for standard input: crontab -l | …")
    ],
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="QUEUE", help="The queue of the jobs.")],
    handler: Annotated[str, typer.Option(metavar="NAME", help="The handler; its payload is {command, stdin, env}.")],
    time_zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The zone of lines without CRON_TZ or TZ above them; else UTC.")
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What the schedules' names begin with.")] = "crontab-",
    missed_runs: Annotated[
        Literal["run_latest", "run_all", "skip"] | None,
        typer.Option(help="Runs that nothing was there to start: the latest (default), all, or none, as cron does."),
    ] = None,
    overlap: Annotated[
        Literal["allow", "forbid", "replace"] | None,
        typer.Option(
            help="While an earlier run goes on: run too, as cron does (default), leave out, or cancel the earlier."
        ),
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Flexible: anywhere in a window of this length.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that cannot be taken.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    json: Json = False,
) -> None:
    """Make or update schedules from a crontab."""
    found = crontab.read(_bytes_of(file), file, prefix=prefix)
    common: dict[str, Any] = {
        **({} if missed_runs is None else {"missed_runs": {"policy": missed_runs}}),
        **({} if overlap is None else {"overlap": overlap}),
    }
    timing = {} if window is None else {"timing": {"class": "flexible", "window_s": inputs.seconds(window, "--window")}}

    def body(line: crontab.Line) -> dict[str, Any]:
        template = {
            "queue": queue,
            "target": {"type": "task", "handler": handler},
            "payload": {"command": line.command, "stdin": line.stdin, "env": line.env},
            **timing,
        }
        return {
            "cron": line.cron,
            "time_zone": line.time_zone or time_zone or "UTC",
            "job_template": template,
            **common,
        }

    async def work(transport: Transport) -> list[Planned]:
        planned = [await _plan(transport, line, body(line), found) for line in found.lines]
        taken = [each for each in planned if each is not None]
        if not dry_run and not (found.faults and not skip_bad):
            for number, each in enumerate(taken):
                await _do(transport, each, number)
        return taken

    done = reach.run(work)
    if time_zone is None and any(each.line.time_zone is None for each in done):
        found.notes.append(
            "no zone is given for some lines, so their times are in UTC; cron read them in its machine's zone: --time-zone"
        )
    _report(done, found, json)
    if found.faults and not skip_bad:
        raise TocsinError(
            f"{_count(found.faults, 'line')} cannot be taken, so nothing {'would be' if dry_run else 'was'} done; "
            "mend them, or leave them out with --skip-bad"
        )


def _bytes_of(file: str) -> bytes:
    if file == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        try:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{file} is longer than a mebibyte, which is no crontab")
    return data


async def _plan(
    transport: Transport, line: crontab.Line, body: dict[str, Any], found: crontab.Crontab
) -> Planned | None:
    """What is to be done for a line; None, with the reason among the faults, if it cannot be taken."""
    import msgspec

    from tocsin.wire import MAX_PAYLOAD_BYTES

    text = f"{line.cron} {line.command}"
    if len(msgspec.json.encode(body["job_template"]["payload"])) > MAX_PAYLOAD_BYTES:
        found.faults.append(crontab.Fault(line.number, text, "its command and environment are more than 64 KiB"))
        return None
    asked = {"cron": line.cron, "time_zone": body["time_zone"], "count": 1}
    try:
        runs = (await reach.ask(transport, "POST", "/v1/schedules:preview", body=asked)).value["runs"]
    except Refused as refused:
        if refused.status != 422:
            raise
        faults = [f"{pointer.removeprefix('/')}: {wrong}" for pointer, wrong in refused.errors] or [refused.detail]
        found.faults.append(crontab.Fault(line.number, text, "; ".join(faults)))
        return None
    query = [("name", line.name), ("limit", "1")]
    page = (await reach.ask(transport, "GET", "/v1/schedules", query=query)).value["items"]
    before = next((each for each in page if each["name"] == line.name), None)
    planned = Planned(line, body, runs[0]["at"] if runs else None, before, schedule=before)
    planned.what = "make" if before is None else "keep" if _same(before, body) else "change"
    return planned


async def _do(transport: Transport, planned: Planned, done: int) -> None:
    """Upsert one schedule, and see what that was."""
    try:
        reply = await reach.ask(
            transport, "PUT", f"/v1/schedules/by-name/{reach.part(planned.line.name)}", body=planned.body
        )
    except TocsinError:
        if done:
            print(f"The first {done} are done; the same command goes on from there.", file=sys.stderr)
        raise
    planned.schedule = reply.value
    planned.next_at = reply.value["next_run_at"]
    before = planned.before
    if reply.status == 201 or before is None:
        planned.what = "made"
    else:
        planned.what = "unchanged" if reply.value["revision"] == before["revision"] else "changed"


def _same(before: dict[str, Any], body: dict[str, Any]) -> bool:
    """Whether an upsert would change nothing, as far as this file says anything."""
    template, wanted = before["job_template"] or {}, body["job_template"]
    target = template.get("target", {})
    return (
        before["cron"] == body["cron"]
        and before["time_zone"] == body["time_zone"]
        and before["missed_runs"]["policy"] == body.get("missed_runs", {}).get("policy", "run_latest")
        and before["overlap"] == body.get("overlap", "allow")
        and template.get("queue") == wanted["queue"]
        and (target.get("type"), target.get("handler")) == ("task", wanted["target"]["handler"])
        and template.get("payload") == wanted["payload"]
        and ((template.get("timing") or {}).get("window_s")) == wanted.get("timing", {}).get("window_s")
    )


def _report(done: list[Planned], found: crontab.Crontab, json: bool) -> None:
    # The server's come after those of the file.
    found.faults.sort(key=lambda each: each.number)
    if json:
        faults = [{"line": each.number, "text": each.text, "reason": each.reason} for each in found.faults]
        output.as_json({"schedules": [_shown(each) for each in done], "faults": faults, "notes": found.notes})
        return
    rows = [
        (each.line.number, each.line.name, each.line.cron, each.body["time_zone"], each.next_at, each.what)
        for each in done
    ]
    output.table(COLUMNS, rows, none="no line becomes a schedule")
    for note in found.notes:
        print(output.clean(f"Note: {note}"))
    for fault in found.faults:
        print(output.clean(f"line {fault.number} cannot be taken: {fault.reason}: {fault.text}"), file=sys.stderr)


def _shown(planned: Planned) -> dict[str, Any]:
    return {
        "line": planned.line.number,
        "name": planned.line.name,
        "schedule_id": planned.schedule["schedule_id"] if planned.schedule else None,
        "what": planned.what,
        "next_run_at": planned.next_at,
        **planned.body,
    }


def _count(items: list[Any], what: str) -> str:
    return f"{len(items)} {what}{'' if len(items) == 1 else 's'}"
