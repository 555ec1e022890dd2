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
from tocsin.cli import admin, bench, dead, dev, doctor, jobs, migrate, move, queues, reach, schedules, serve, worker
from tocsin.cli.refusals import refusal
from tocsin.errors import Refused, TocsinError, Unreachable, UsageError

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
        return _say(refusal(error, args), FAILED)
    except Unreachable as error:
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
        epilog="Exit codes: 0 done; 1 refused, not found or unreachable; 2 wrong use; 130 interrupted.",
        context_settings={"help_option_names": ["-h", "--help"]},
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
        ("move", move.move),
        ("doctor", doctor.doctor),
    ):
        app.command(name)(command)
    for name, group in (
        ("jobs", jobs.app),
        ("schedules", schedules.app),
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
    message = error.format_message().rstrip(".")
    if "unexpected extra argument" in message and path.startswith("tocsin schedules"):
        message += "; a cron expression goes in quotes, '0 2 * * *'"
    return _say(f"{message}; see {path} --help", WRONG_USE)


def _say(message: str, code: int) -> int:
    from tocsin.cli.output import clean

    print(f"tocsin: {clean(' '.join(message.split()))}", file=sys.stderr)
    return code
