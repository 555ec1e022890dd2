"""`tocsin move`: takes an installation to another store, while no server runs on either.

What it does and what a cut one leaves behind is told in `flow/carry`. Here: which stores, what is shown meanwhile and at the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tocsin.cli import output
from tocsin.cli.output import Json
from tocsin.errors import ServerUnavailable, StoreError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tocsin.flow.carry import Account, Carried
    from tocsin.roles.moving import Where

_SHOWN_DIGITS = 12


def move(
    source: Annotated[
        str, typer.Option("--from", metavar="STORE", help="The installation: sqlite:PATH or postgresql://…")
    ],
    target: Annotated[str, typer.Option("--to", metavar="STORE", help="Where it shall live: a new or empty store.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", help="How many partitions the new store has.", show_default="16, in PostgreSQL 64"
        ),
    ] = None,
    shard: Annotated[
        list[str] | None,
        typer.Option(metavar="STORE", help="A further database of the new store; repeatable, in their order."),
    ] = None,
    source_lease: Annotated[
        str | None,
        typer.Option("--from-lease", metavar="ADDRESS", help="etcd://…, if the installation keeps its leases there."),
    ] = None,
    without_history: Annotated[
        bool, typer.Option("--without-history", help="Leave finished jobs behind; dead letters come along.")
    ] = False,
    keep_source: Annotated[
        bool, typer.Option("--keep-source", help="A copy: the source may be served afterwards too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be moved, and move nothing.")] = False,
    json: Json = False,
) -> None:
    """Take an installation to another store. Stop its servers before; a move that was cut is repeated as it was."""
    from tocsin.roles.moving import Where

    here = Where(address=source, leases=source_lease)
    there = Where(address=target, partitions=partitions, shards=tuple(shard or ()))
    here.check("--from")
    there.check("--to")
    if source == target or (here.path is not None and there.path is not None and _same(here.path, there.path)):
        raise UsageError("--from and --to are the same store; name another place to move it to")
    try:
        if dry_run:
            _show_survey(*asyncio.run(_survey(here, there, history=not without_history)), json=json)
            return
        with output.progress("moving", None, quiet=json) as told:
            carrying = _carry(here, there, history=not without_history, keep_source=keep_source, told=told)
            carried, names, count = asyncio.run(carrying)
    except ServerUnavailable as error:
        # No server of ours is meant, but a database or a disk: the general advice about servers would mislead.
        raise StoreError(f"{error}; repeat the move when that is mended") from error
    _show(carried, names, count, keep_source=keep_source, json=json)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


async def _carry(
    source: Where, target: Where, *, history: bool, keep_source: bool, told: output.Bar
) -> tuple[Carried, tuple[str, str], int]:
    from tocsin.clock import SystemClock
    from tocsin.flow.carry import Carrier, permit
    from tocsin.roles import moving

    clock = SystemClock()
    async with moving.opened(source, clock, make=False) as here:
        if not await moving.exists(target):
            await permit(here.transfer, None)  # before anything is made that would be left behind
        async with moving.opened(target, clock, make=True) as there:

            async def quiet() -> None:
                await here.quiet()
                await there.quiet()

            carrier = Carrier(
                here.transfer,
                there.transfer,
                clock,
                quiet=quiet,
                history=history,
                keep_source=keep_source,
                told=told,
            )
            names = here.transfer.name, there.transfer.name
            return await carrier.carry(), names, there.transfer.partitions


async def _survey(source: Where, target: Where, *, history: bool) -> tuple[Account, tuple[str, str]]:
    from tocsin.clock import SystemClock
    from tocsin.flow.carry import permit, survey
    from tocsin.roles import moving

    clock = SystemClock()
    async with moving.opened(source, clock, make=False) as here:
        if await moving.exists(target):
            async with moving.opened(target, clock, make=False) as there:
                await permit(here.transfer, there.transfer)
                name = there.transfer.name
        else:
            await permit(here.transfer, None)
            name = f"sqlite:{target.path}" if target.path is not None else "an empty database"
        return await survey(here.transfer, history=history), (here.transfer.name, name)


def _show_survey(account: Account, names: tuple[str, str], *, json: bool) -> None:
    from tocsin.flow.carry import LABELS

    items = [{"what": label, "count": account.counts[label], "digest": account.digest(label)} for label in LABELS]
    if json:
        output.as_json({"from": names[0], "to": names[1], "moved": False, "items": items})
        return
    output.table(
        ("what", "count", "digest"),
        [(item["what"], item["count"], account.digest(str(item["what"]))[:_SHOWN_DIGITS]) for item in items],
        none="nothing",
    )
    print(f"This would be moved from {names[0]} to {names[1]}; nothing was written.")


def _show(carried: Carried, names: tuple[str, str], partitions: int, *, keep_source: bool, json: bool) -> None:
    rows = carried.rows
    if json:
        items: list[dict[str, Any]] = [
            {"what": row.label, "count": row.target, "digest": row.target_digest} for row in rows
        ]
        answer = {"from": names[0], "to": names[1], "moved": True, "partitions": partitions, "items": items}
        output.as_json({**answer, "source_kept": keep_source, "had_ended_before": not rows})
        return
    if not rows:
        print(f"{names[0]} had been moved to {names[1]} before; there is nothing left to do.")
        return
    output.table(
        ("what", "read", "arrived", "digest"),
        [(row.label, row.source, row.target, row.target_digest[:_SHOWN_DIGITS]) for row in rows],
        none="nothing",
    )
    print(f"All of {names[0]} is in {names[1]} and was compared there, record by record.")
    if keep_source:
        print(f"{names[0]} is as it was. Serve only one of them for the same workers and callbacks.")
    else:
        print(f"{names[0]} is marked and starts no server any more.")
    if names[1].startswith("sqlite:"):
        print(f'Serve the new one with the settings store = "{names[1]}" and partitions = {partitions}.')
    else:
        print(
            f"Serve the new one with store set to the address given, near to its Redis, and partitions = {partitions}."
        )
