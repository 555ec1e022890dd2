"""The registry's tables: made by whichever process comes first, under a lock that ends with its transaction.

Steps are numbered, go forward only, and all missing ones are one transaction: a crash leaves the schema as it was. Where all are
there already nothing is written, so that a process needs no right to make tables once an operator has started one that may.
"""

from __future__ import annotations

from tocsin.lease.postgres.connection import Connection, Line
from tocsin.lease.postgres.statements import block, migrations

_IS_THERE = block("schema", "is_there")
_LOCK = block("schema", "lock")
_BEGIN = block("schema", "begin")
_DONE = block("schema", "done")
_ADD = block("schema", "add")


async def migrate(line: Line) -> None:
    """Bring the schema to this program's. Raises LeasesUnavailable, ConfigError if the user may not make it."""
    await line.within(_migrate)


async def _migrate(connection: Connection) -> None:
    newest = migrations()[-1][0]
    if await connection.fetchval(_IS_THERE) and await connection.fetchval(_DONE) >= newest:
        return
    async with connection.transaction():
        await connection.execute(_LOCK)
        await connection.execute(_BEGIN)
        done = await connection.fetchval(_DONE)
        for number, name, text in migrations():
            if number > done:
                await connection.execute(text)
                await connection.execute(_ADD, number, name)
