"""Tocsin: a multi-tenant job scheduler. This package's root holds what the authors of jobs and workers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tocsin.errors import Fatal, Refused, Retry, ServerUnavailable, TocsinError

if TYPE_CHECKING:
    from tocsin.sdk.client import AsyncClient, Client
    from tocsin.sdk.worker import Context, Worker

__all__ = [
    "AsyncClient",
    "Client",
    "Context",
    "Fatal",
    "Refused",
    "Retry",
    "ServerUnavailable",
    "TocsinError",
    "Worker",
]
__version__ = "0.1.0"

_LAZY = {
    "AsyncClient": "tocsin.sdk.client",
    "Client": "tocsin.sdk.client",
    "Context": "tocsin.sdk.worker",
    "Worker": "tocsin.sdk.worker",
}


def __getattr__(name: str) -> object:
    """Load the client and the worker on first use, so that the command line starts quickly."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'tocsin' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is loaded on first use is there to be completed all the same."""
    return sorted({*globals(), *__all__})
