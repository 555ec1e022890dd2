"""`tocsin serve`: one process of Tocsin, configured by file and environment."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tocsin.errors import TocsinError

if TYPE_CHECKING:
    from tocsin.config import Settings

Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The file of settings.", show_default="tocsin.toml if it is there")
]


class Role(StrEnum):
    """What a process can do."""

    API = "api"
    NODE = "node"
    EXECUTOR = "executor"


def serve(
    role: Annotated[
        list[Role] | None,
        typer.Option(help="What this process does; repeatable.", show_default="all"),
    ] = None,
    config: Config = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. Every setting also as TOCSIN_…"""
    from tocsin import config as configuration
    from tocsin import serving

    settings = load(config)
    if role:
        settings = replace(settings, roles=frozenset(role))
        configuration.check(settings)
    with blocking(settings):
        serving.serve(settings, on_ready=lambda serving: print(_ready(settings, serving.url), flush=True))


def _ready(settings: Settings, url: str) -> str:
    if "api" in settings.roles or not settings.has_store:
        return f"Tocsin is ready at {url}"
    return "Tocsin is ready: node" + (f" {settings.node_name}" if settings.node_name else "")


def load(path: Path | None) -> Settings:
    """The settings of the file that was named, or of TOCSIN_CONFIG, or of ./tocsin.toml where there is one."""
    from tocsin import config

    if path is None:
        named = os.environ.get("TOCSIN_CONFIG", "")
        path = Path(named) if named else Path("tocsin.toml")
        if not named and not path.exists():
            path = None
    return config.load(path, os.environ)


@contextmanager
def blocking(settings: Settings) -> Iterator[None]:
    """Say what keeps a server from starting, or ended it, in one line."""
    try:
        yield
    except OSError as error:
        raise TocsinError(_trouble(error, settings)) from error


def _trouble(error: OSError, settings: Settings) -> str:
    here = f"{settings.host} port {settings.port}"
    if isinstance(error, socket.gaierror):
        return f"host {settings.host} is no address of this machine: {error.strerror}; change host"
    match error.errno:
        case errno.EADDRINUSE:
            # Of the API or of the metrics, as `serving` says.
            host, _, port = (error.strerror or "").rpartition(": ")[2].rpartition(":")
            address = f"{host} port {port}" if host else here
            return (
                f"{address} is in use by another process; stop that one, or choose another port: the settings port and "
                "metrics_port (TOCSIN_PORT, TOCSIN_METRICS_PORT; tocsin dev --port)"
            )
        case errno.EADDRNOTAVAIL:
            return f"host {settings.host} is no address of this machine; change host"
        case errno.EACCES | errno.EPERM if error.filename is None:
            return f"{here} may not be opened by this user; choose a port above 1023"
        case _:
            return f"the server cannot go on: {error.strerror or error} ({error.filename or settings.data})"
