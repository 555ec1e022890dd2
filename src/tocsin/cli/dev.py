"""`tocsin dev`: the whole of Tocsin in this process, for a laptop: a server, a tenant, a token, and how to use them.

The token is kept beside the data, so that workers and terminals go on after a restart. A crash before it is kept costs a new one.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tocsin.cli.serve import blocking
from tocsin.errors import UsageError

if TYPE_CHECKING:
    from tocsin.serving import Serving

TOKEN_FILE = "dev-token"
_TOKEN = re.compile(r"tcs_dev_[0-9a-z]{32}")


def dev(
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port (0: any free one).", show_default="8321")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder that keeps everything.", show_default=".tocsin")
    ] = None,
    token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Use this token instead of the one made for the folder.")
    ] = None,
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
    kept = settings.data / TOKEN_FILE
    options = serving.DevOptions(token=token or _kept(kept), manual_clock=clock == "manual")

    def ready(running: Serving) -> None:
        if token is None and running.token is not None:
            _keep(kept, running.token)
        print(_welcome(running, manual=options.manual_clock), flush=True)

    with blocking(settings):
        serving.serve(
            settings,
            clock=ManualClock() if options.manual_clock else None,
            dev=options,
            on_ready=ready,
        )


def _kept(file: Path) -> str | None:
    """The token of an earlier start; None if there is none, or none that could be."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _TOKEN.fullmatch(text) else None


def _keep(file: Path, token: str) -> None:
    """Keep the token for the next start, for nobody else to read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(token)


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
