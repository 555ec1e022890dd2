"""The command line: one module per group of commands, put together here.

Every command ends with 0 (done), 1 (refused, unreachable, not found) or 2 (wrong use). What goes wrong is one line on
standard error that says what happened and what to do; results go to standard output, as tables for people or with `--json`
as the API answered. A module imports at its top only what parsing its arguments needs; clients, servers and drawing are
imported by the command that uses them, so that `tocsin --help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import tocsin
from tocsin.cli import admin, bench, dead, dev, doctor, jobs, migrate, queues, reach, serve, worker
from tocsin.errors import Refused, ServerUnavailable, TocsinError, UsageError

__all__ = ["main"]

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
# The parser's own errors: BadParameter -> UsageError -> this one. Where it lives differs between versions of typer.
_ParserError: Any = typer.BadParameter.__mro__[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        code = _app()(args, prog_name="tocsin", standalone_mode=False)
    except _ParserError as error:
        return _wrong_use(error)
    except UsageError as error:
        return _say(str(error), WRONG_USE)
    except Refused as error:
        return _say(_refusal(error), FAILED)
    except ServerUnavailable as error:
        return _say(f"{error}; is it running? TOCSIN_URL names the server, tocsin dev starts one here", FAILED)
    except TocsinError as error:
        return _say(str(error), FAILED)
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) has gone. Nothing more can be said to it, not even by the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        return _say(f"{error.filename or 'the system'}: {error.strerror or error}", FAILED)
    return code if isinstance(code, int) else DONE


def _app() -> typer.Typer:
    app = typer.Typer(
        help="Tocsin, a job scheduler: run a server, hand it work, look after it.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_common)
    for name, command in (
        ("dev", dev.dev),
        ("serve", serve.serve),
        ("worker", worker.worker),
        ("migrate", migrate.migrate),
        ("doctor", doctor.doctor),
    ):
        app.command(name)(command)
    for name, group in (
        ("jobs", jobs.app),
        ("queues", queues.app),
        ("dead", dead.app),
        ("admin", admin.app),
        ("bench", bench.app),
    ):
        app.add_typer(group, name=name)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tocsin {tocsin.__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
    url: Annotated[
        str, typer.Option(metavar="URL", help="The server, if not TOCSIN_URL. The token: TOCSIN_TOKEN.")
    ] = "",
) -> None:
    reach.use(url)


def _wrong_use(error: Any) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tocsin"
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        print(context.get_help(), file=sys.stderr)
        return WRONG_USE
    return _say(f"{error.format_message().rstrip('.')}; see {path} --help", WRONG_USE)


def _refusal(error: Refused) -> str:
    parts = [f"{error.title}: {error.detail}" if error.detail else error.title]
    # The API's own sentence often names the fields already.
    parts += [f"{pointer or '/'}: {detail}" for pointer, detail in error.errors if detail not in error.detail]
    if error.status == 401:
        parts.append("set TOCSIN_TOKEN to a token of this server")
    elif error.status == 429 and error.retry_after_s is not None:
        parts.append(f"try again in {error.retry_after_s:g} s")
    return "; ".join(part.rstrip(".") for part in parts) + f" ({error.status})"


def _say(message: str, code: int) -> int:
    from tocsin.cli.output import clean

    print(f"tocsin: {clean(' '.join(message.split()))}", file=sys.stderr)
    return code
