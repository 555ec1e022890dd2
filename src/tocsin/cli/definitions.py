"""`tocsin schedules create`, `update` and `preview`: what a schedule is, said in options."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from tocsin.cli import inputs, output, reach
from tocsin.cli.output import Json
from tocsin.errors import Refused, UsageError

Cron = Annotated[
    str | None, typer.Option(metavar="EXPR", help="When: five fields in quotes, '0 2 * * *', or a word, @daily.")
]
Zone = Annotated[str | None, typer.Option(metavar="ZONE", help="The zone that it is read in, Asia/Kolkata; else UTC.")]
Every = Annotated[str | None, typer.Option(metavar="DURATION", help="Or at an interval: 90, 15m, 2h, 3d.")]
Anchor = Annotated[str | None, typer.Option(metavar="TIME", help="Where the intervals are counted from (RFC 3339).")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="QUEUE", help="The queue of its jobs.")]
Handler = Annotated[str | None, typer.Option(metavar="NAME", help="A task: the handler that a worker has for it.")]
Url = Annotated[str | None, typer.Option(metavar="URL", help="A callback: the URL to call.")]
Method = Annotated[str | None, typer.Option(metavar="METHOD", help="The callback's method; else POST.")]
Header = Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="A callback's header; repeatable.")]
Payload = Annotated[
    str | None, typer.Option("--payload", "-p", metavar="JSON", help="JSON, @FILE, or - for standard input.")
]
Missed = Annotated[
    Literal["run_latest", "run_all", "skip"] | None,
    typer.Option(help="Runs that nothing was there to start: the latest (default), all, or none."),
]
Deadline = Annotated[
    str | None, typer.Option(metavar="DURATION", help="A run that could not start within this is left out.")
]
CatchUp = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="With run_all: the most runs that are made up for.")
]
Overlap = Annotated[
    Literal["allow", "forbid", "replace"] | None,
    typer.Option(help="While an earlier run goes on: run too (default), leave out, or cancel the earlier."),
]
Start = Annotated[str | None, typer.Option(metavar="TIME", help="No run before this (RFC 3339).")]
End = Annotated[str | None, typer.Option(metavar="TIME", help="No run after this (RFC 3339).")]
MaxRuns = Annotated[int | None, typer.Option(metavar="NUMBER", help="Finished after so many runs.")]
JobName = Annotated[str | None, typer.Option(metavar="NAME", help="A name for its jobs.")]
Window = Annotated[str | None, typer.Option(metavar="DURATION", help="Flexible: anywhere in a window of this length.")]
Priority = Annotated[str | None, typer.Option(metavar="PRIORITY", help="high, normal or low.")]
Timeout = Annotated[str | None, typer.Option(metavar="DURATION", help="How long one attempt may take.")]
MaxAttempts = Annotated[int | None, typer.Option(metavar="NUMBER", help="How often a job is tried.")]
FirstBackoff = Annotated[
    str | None,
    typer.Option("--initial-backoff", metavar="DURATION", help="The longest pause before the second try."),
]
MaxBackoff = Annotated[str | None, typer.Option(metavar="DURATION", help="The longest pause before any try.")]
Expires = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Skip a job that has not started so long after its time.")
]
Tag = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A tag of its jobs; repeatable.")]


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Unique, and never changed.")],
    cron: Cron = None,
    time_zone: Zone = None,
    every: Every = None,
    anchor: Anchor = None,
    queue: Queue = None,
    handler: Handler = None,
    url: Url = None,
    method: Method = None,
    header: Header = None,
    payload: Payload = None,
    missed_runs: Missed = None,
    starting_deadline: Deadline = None,
    max_catch_up: CatchUp = None,
    overlap: Overlap = None,
    start: Start = None,
    end: End = None,
    max_runs: MaxRuns = None,
    paused: Annotated[bool, typer.Option("--paused", help="Made paused; tocsin schedules resume starts it.")] = False,
    job_name: JobName = None,
    window: Window = None,
    priority: Priority = None,
    timeout: Timeout = None,
    max_attempts: MaxAttempts = None,
    initial_backoff: FirstBackoff = None,
    max_backoff: MaxBackoff = None,
    expires_after: Expires = None,
    tag: Tag = None,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Give an existing one of this name this definition.")
    ] = False,
    json: Json = False,
) -> None:
    """Create a schedule."""
    if (cron is None) == (every is None):
        raise UsageError("give --cron EXPR or --every DURATION, one of them")
    if queue is None or (handler is None) == (url is None):
        raise UsageError("give --queue QUEUE, and --handler NAME for a task or --url URL for a callback, one of them")
    if handler is not None and (header or method):
        raise UsageError("--method and --header belong to a callback (--url)")
    said = _template(queue, payload, job_name, window, priority, expires_after, tag)
    retry = _retry(max_attempts, initial_backoff, max_backoff)
    template = {
        "target": _target(None, handler, url, method, header, timeout),
        **said,
        **({"retry": retry} if retry else {}),
    }
    body = _rules(cron, time_zone, every, anchor, overlap, start, end, max_runs)
    missed = _missed(missed_runs, starting_deadline, max_catch_up)
    body |= {
        "job_template": template,
        **({"missed_runs": missed} if missed else {}),
        **({"paused": True} if paused else {}),
    }
    if upsert:
        reply = reach.call("PUT", f"/v1/schedules/by-name/{reach.part(name)}", body=body)
    else:
        try:
            reply = reach.call("POST", "/v1/schedules", body={"name": name, **body})
        except Refused as refused:
            if refused.kind != "schedule-exists":
                raise
            detail = (
                f"there is a schedule {name!r}; change it with tocsin schedules update, or add --upsert to replace it"
            )
            raise Refused(refused.status, refused.kind, refused.title, detail) from refused
    show(reply, json, "made" if reply.status == 201 else "it existed already and is as given now")


def update(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name or ID.")],
    cron: Cron = None,
    time_zone: Zone = None,
    every: Every = None,
    anchor: Anchor = None,
    queue: Queue = None,
    handler: Handler = None,
    url: Url = None,
    method: Method = None,
    header: Header = None,
    payload: Payload = None,
    missed_runs: Missed = None,
    starting_deadline: Deadline = None,
    max_catch_up: CatchUp = None,
    overlap: Overlap = None,
    start: Start = None,
    end: End = None,
    max_runs: MaxRuns = None,
    job_name: JobName = None,
    window: Window = None,
    priority: Priority = None,
    timeout: Timeout = None,
    max_attempts: MaxAttempts = None,
    initial_backoff: FirstBackoff = None,
    max_backoff: MaxBackoff = None,
    expires_after: Expires = None,
    tag: Tag = None,
    default: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="Back to the default: max-runs, end, payload, …; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Change a schedule; what is not named stays."""
    from tocsin.cli.schedules import find

    if cron is not None and every is not None:
        raise UsageError("give --cron EXPR or --every DURATION, not both")
    if handler is not None and (url is not None or header or method):
        raise UsageError("--url, --method and --header belong to a callback, --handler to a task")
    said = _template(queue, payload, job_name, window, priority, expires_after, tag)
    body = _rules(cron, time_zone, every, anchor, overlap, start, end, max_runs)
    # The other kind of time goes, or both would be there.
    body |= {"every_s": None, "anchor": None} if cron is not None else {}
    body |= {"cron": None, "time_zone": None} if every is not None else {}
    retry = _retry(max_attempts, initial_backoff, max_backoff)
    missed = _missed(missed_runs, starting_deadline, max_catch_up)
    targeted = any(each is not None for each in (handler, url, method, header, timeout))
    for option in default or []:
        field = _DEFAULTS.get(option.removeprefix("--"))
        if field is None:
            raise UsageError(f"--default {option!r} must be one of {', '.join(sorted(_DEFAULTS))}")
        (body if field in _RULES else said)[field] = None
    if not (body or said or retry or missed or targeted):
        raise UsageError("name what to change, such as --cron EXPR, --payload JSON or --max-runs NUMBER")
    reply = find(schedule)
    found = reply.value
    if said or retry or targeted:
        # It is replaced whole, so what is not named here must be sent along as it is.
        template = _template_of(reply)
        if targeted:
            template["target"] = _target(template.get("target"), handler, url, method, header, timeout)
        if retry:
            template["retry"] = {**(template.get("retry") or {}), **retry}
        body["job_template"] = _sendable({**template, **said})
    if missed:
        body["missed_runs"] = {**found["missed_runs"], **missed}
    reply = reach.call(
        "PATCH",
        f"/v1/schedules/{reach.part(found['schedule_id'])}",
        body=body,
        headers={"If-Match": f'"{found["revision"]}"'},
    )
    show(reply, json, "unchanged" if reply.value["revision"] == found["revision"] else "changed")


def preview(
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR", help="Five fields in quotes, '0 2 * * *', or a word, @daily.")
    ] = None,
    time_zone: Zone = None,
    every: Every = None,
    anchor: Anchor = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many runs.")] = 5,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="The runs after this (RFC 3339); else from now.")
    ] = None,
    json: Json = False,
) -> None:
    """Show when a schedule would run, without making one."""
    if (expression is None) == (every is None):
        raise UsageError("give an expression in quotes, such as '0 2 * * *', or --every DURATION, one of them")
    body = _rules(expression, time_zone, every, anchor, None, None, None, None)
    body |= {"count": count} | ({} if after is None else {"after": after})
    reply = reach.call("POST", "/v1/schedules:preview", body=body)
    if json:
        output.raw_json(reply.body)
        return
    print(output.clean(reply.value["explanation"]))
    runs(reply.value["runs"])
    for hint in reply.value["hints"]:
        print(output.clean(f"Note: {hint}"))


def show(reply: reach.Reply, json: bool, what: str, *, hints: bool = True) -> None:
    """A schedule that was just made or changed: its next runs and, with `hints`, what is worth knowing about its times."""
    if json:
        output.raw_json(reply.body)
        return
    schedule = reply.value
    print(output.clean(f"{schedule['name']}  {schedule['schedule_id']}  {what}"))
    until = schedule["paused"] and schedule["pause_until"]
    status = f"{schedule['status']} until {until}" if until else schedule["status"]
    print(output.clean(f"{schedule['explanation']} ({status})"))
    runs(schedule["next_runs"])
    for hint in schedule["hints"] if hints else ():
        print(output.clean(f"Note: {hint}"))


def runs(items: list[dict[str, Any]]) -> None:
    """Runs to come, in local time and in UTC."""
    rows = [(local(each["local"]), each["at"], _NOTES.get(each["note"], each["note"]) or "") for each in items]
    output.table(("local time", "UTC", "note"), rows, none="no run ahead")


def local(text: str) -> str:
    """An instant in its zone, with the day of the week."""
    at = datetime.fromisoformat(text)
    return f"{at:%a} {at.isoformat(' ', 'milliseconds' if at.microsecond else 'seconds')}"


_NOTES = {"gap": "makes up for a time that the clocks skip", "repeat": "a time that the clocks go through twice"}
_RULES = frozenset({"time_zone", "anchor", "overlap", "start_at", "end_at", "max_runs", "missed_runs"})
_DEFAULTS = {
    "time-zone": "time_zone",
    "anchor": "anchor",
    "overlap": "overlap",
    "start": "start_at",
    "end": "end_at",
    "max-runs": "max_runs",
    "missed-runs": "missed_runs",
    "payload": "payload",
    "job-name": "name",
    "window": "timing",
    "priority": "priority",
    "expires-after": "expires_after_s",
    "tag": "tags",
    "retry": "retry",
}


def _rules(
    cron: str | None,
    time_zone: str | None,
    every: str | None,
    anchor: str | None,
    overlap: str | None,
    start: str | None,
    end: str | None,
    max_runs: int | None,
) -> dict[str, Any]:
    return _given(
        cron=cron,
        time_zone=time_zone,
        every_s=None if every is None else inputs.seconds(every, "--every"),
        anchor=anchor,
        overlap=overlap,
        start_at=start,
        end_at=end,
        max_runs=max_runs,
    )


def _template(
    queue: str | None,
    payload: str | None,
    job_name: str | None,
    window: str | None,
    priority: str | None,
    expires_after: str | None,
    tag: list[str] | None,
) -> dict[str, Any]:
    return _given(
        queue=queue,
        payload=None if payload is None else inputs.json_text(payload, "--payload"),
        name=job_name,
        timing=None if window is None else {"class": "flexible", "window_s": inputs.seconds(window, "--window")},
        priority=priority,
        expires_after_s=None if expires_after is None else inputs.seconds(expires_after, "--expires-after"),
        tags=inputs.pairs(tag or [], "--tag", "=") or None,
    )


def _target(
    before: dict[str, Any] | None,
    handler: str | None,
    url: str | None,
    method: str | None,
    header: list[str] | None,
    timeout: str | None,
) -> dict[str, Any]:
    """A target of what was said, or the one before with what was said."""
    if handler is not None:
        kept = {"timeout_s": before["timeout_s"]} if before and before["type"] == "task" else {}
        target = {"type": "task", **kept, "handler": handler}
    elif url is not None or header or method:
        kept = before if before and before["type"] == "http" else {}
        target = {"type": "http", **kept}
        target |= _given(url=url, method=method and method.upper())
        target |= {"headers": inputs.pairs(header, "--header", ":")} if header else {}
        if "url" not in target:
            raise UsageError("--method and --header belong to a callback, and this is a task; give --url too")
    else:
        target = dict(before or {})
    return target | ({} if timeout is None else {"timeout_s": inputs.seconds(timeout, "--timeout")})


def _retry(max_attempts: int | None, initial_backoff: str | None, max_backoff: str | None) -> dict[str, Any]:
    return _given(
        max_attempts=max_attempts,
        initial_backoff_s=None if initial_backoff is None else inputs.seconds(initial_backoff, "--initial-backoff"),
        max_backoff_s=None if max_backoff is None else inputs.seconds(max_backoff, "--max-backoff"),
    )


def _missed(policy: str | None, deadline: str | None, max_catch_up: int | None) -> dict[str, Any]:
    return _given(
        policy=policy,
        starting_deadline_s=None if deadline is None else inputs.seconds(deadline, "--starting-deadline"),
        max_catch_up=max_catch_up,
    )


def _template_of(reply: reach.Reply) -> dict[str, Any]:
    """A schedule's job template; its payload exactly as it came."""
    import msgspec

    whole = msgspec.json.decode(reply.body, type=dict[str, msgspec.Raw])
    exact = msgspec.json.decode(whole["job_template"], type=dict[str, msgspec.Raw] | None) or {}
    return {**(reply.value["job_template"] or {}), **{name: exact[name] for name in ("payload",) if name in exact}}


def _sendable(template: dict[str, Any]) -> dict[str, Any]:
    """The template, unless what answers mask would be sent back as if it were the value."""
    from tocsin.wire import MASK

    headers = template.get("target", {}).get("headers") or {}
    if MASK in headers.values():
        raise UsageError(
            "the callback has headers whose values the server does not tell; give them all anew with --header NAME:VALUE"
        )
    return template


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
