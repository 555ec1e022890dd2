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

Config = Annotated[Path | None, typer.Option(help="The file of settings.", show_default="tocsin.toml if it is there")]


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
    from tocsin import roles

    settings = load(config)
    if role:
        settings = replace(settings, roles=frozenset(role))
        configuration.check(settings)
    with blocking(settings):
        roles.serve(settings, on_ready=lambda serving: print(f"Tocsin is ready at {serving.url}", flush=True))


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
    if settings.roles != {"executor"}:
        _check_free(settings.host, settings.port)
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _in_use(settings.host, settings.port) from error
        raise TocsinError(
            f"the server cannot go on: {error.strerror or error} ({error.filename or settings.data})"
        ) from error


def _check_free(host: str, port: int) -> None:
    """Before anything else is opened, whether the port can be had; the server binds it a moment later all the same."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the server does: a port whose last connections are still closing is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise TocsinError(f"host {host} is not an address of this machine: {error.strerror}; change host") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _in_use(host, port) from error
        if error.errno == errno.EACCES:
            raise TocsinError(f"port {port} may not be opened by this user; choose one above 1023") from error
        raise TocsinError(f"{host}:{port} cannot be listened on: {error.strerror}; change host or port") from error


def _in_use(host: str, port: int) -> TocsinError:
    return TocsinError(
        f"port {port} on {host} is in use by another process; stop that one, or choose another port (--port for dev, "
        "TOCSIN_PORT for serve)"
    )
