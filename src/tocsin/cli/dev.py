"""`tocsin dev`: the whole of Tocsin in this process, for a laptop: a server, a tenant, a token, and how to use them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tocsin.cli.serve import blocking
from tocsin.errors import UsageError

if TYPE_CHECKING:
    from tocsin.serving import Serving


def dev(
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port (0: any free one).", show_default="8321")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder that keeps everything.", show_default=".tocsin")
    ] = None,
    token: Annotated[str | None, typer.Option(metavar="TOKEN", help="Use this token instead of a made one.")] = None,
    clock: Annotated[
        Literal["system", "manual"], typer.Option(help="manual: time stands still until POST /v1/dev/clock:advance.")
    ] = "system",
) -> None:
    """Run everything in this process, for development, until Ctrl-C."""
    from tocsin import config, serving
    from tocsin.clock import ManualClock

    settings = config.load(None, os.environ)
    # A developer's receiver of callbacks is on this machine; only here may they go there.
    allow = ", ".join(part for part in (settings.callback_allow, config.LOOPBACK) if part)
    settings = replace(
        settings,
        port=settings.port if port is None else port,
        data=settings.data if data is None else data,
        callback_allow=allow,
    )
    config.check(settings)
    if not settings.has_store:
        raise UsageError("roles is executor: dev is a whole server; start an executor on its own with tocsin serve")
    options = serving.DevOptions(token=token, manual_clock=clock == "manual")
    with blocking(settings):
        serving.serve(
            settings,
            clock=ManualClock() if options.manual_clock else None,
            dev=options,
            on_ready=lambda serving: print(_welcome(serving, manual=options.manual_clock), flush=True),
        )


def _welcome(serving: Serving, *, manual: bool) -> str:
    lines = [
        "Tocsin is ready.",
        "",
        f"  address         {serving.url}",
        f"  token           {serving.token}",
        f"  signing secret  {serving.signing_secret}",
        f"  data            {serving.data}",
        f"  API             {serving.url}/docs",
        "",
        "A first job, from another terminal:",
        "",
        f"  export TOCSIN_URL={serving.url} TOCSIN_TOKEN={serving.token}",
        "  curl -sS $TOCSIN_URL/v1/jobs -H \"Authorization: Bearer $TOCSIN_TOKEN\" -H 'Content-Type: application/json' \\",
        '    -d \'{"queue": "hello", "delay_s": 5, "target": {"type": "http", "url": "http://127.0.0.1:9000/"}}\'',
        "",
        "  Something must listen on port 9000 (docs/tutorial.md has a receiver); until then the job is retried.",
        "",
    ]
    if manual:
        lines += [
            "Time stands still. Move it on:",
            "",
            '  curl -sS $TOCSIN_URL/v1/dev/clock:advance -H "Authorization: Bearer $TOCSIN_TOKEN" '
            "-H 'Content-Type: application/json' -d '{\"seconds\": 60}'",
            "",
        ]
    return "\n".join([*lines, "Ctrl-C stops the server; jobs are kept."])
