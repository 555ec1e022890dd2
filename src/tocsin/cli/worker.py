"""`tocsin worker MODULE:APP`: runs a Python worker that a module of the current directory defines."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from tocsin.errors import UsageError

if TYPE_CHECKING:
    from tocsin.sdk.worker import Worker


def worker(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the tocsin.Worker is: billing.jobs:worker")],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", metavar="QUEUE", help="Take these queues instead; repeatable.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=10_000, help="Handlers at once.")] = None,
    prefetch: Annotated[int | None, typer.Option(min=0, max=50_000, help="Jobs that may wait in this process.")] = None,
) -> None:
    """Run a Python worker until SIGTERM or Ctrl-C.

    Either lets running handlers end.
    """
    found = load(app)
    if queue:
        if len(set(queue)) != len(queue):
            raise UsageError("--queue names the same queue twice")
        found.queues = tuple(queue)
    if concurrency is not None:
        found.concurrency = concurrency
    if prefetch is not None:
        found.prefetch = prefetch
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr)
    found.run()


def load(app: str) -> Worker:
    """The worker that `app` names. Raises UsageError saying which part of the name is wrong."""
    from tocsin.sdk.worker import Worker

    module_name, colon, attribute = app.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(f"{app!r} must be MODULE:APP, such as billing.jobs:worker")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, here)
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise UsageError(f"{module_name} has no {attribute!r}; {_workers_of(module, Worker)}")
        found = getattr(found, name)
    if not isinstance(found, Worker):
        raise UsageError(f"{app} is {type(found).__name__}, not a tocsin.Worker; {_workers_of(module, Worker)}")
    return found


def _import(name: str, here: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"there is no module {error.name!r} in {here} or among the installed packages") from error
        raise UsageError(f"{name} could not be imported: it needs {error.name!r}, which is not installed") from error
    except Exception as error:  # a user's module may raise anything while it is imported
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = (
            f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else f"{frame.filename}:{frame.lineno}"
        )
        raise UsageError(
            f"{name} could not be imported: {type(error).__name__}: {error} ({place}); "
            f"python -c 'import {name}' shows it whole"
        ) from error


def _workers_of(module: object, kind: type) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, kind))
    return f"its workers are: {', '.join(names)}" if names else "it defines no tocsin.Worker at its top"
