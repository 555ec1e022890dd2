"""Names as small numbers: tenants, queues and ready lines, with the caches in front of their tables.

A job's row, its timers and its listing carry these numbers instead of five texts. The writer's cache may hold what the
transaction at hand has just written; `undo` forgets it when that is rolled back, `keep` when it is committed.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import NamedTuple

from tocsin.model.job import Lane, Line
from tocsin.store.sqlite.statements import block

# A line may carry any target host, so their number is not ours to bound: past this the cache starts anew.
_MOST = 100_000

_TENANT_ID = block("lines", "tenant_id")
_QUEUE_ID = block("lines", "queue_id")
_LINE_ID = block("lines", "line_id")
_ADD_TENANT = block("lines", "add_tenant")
_ADD_QUEUE = block("lines", "add_queue")
_ADD_LINE = block("lines", "add_line")
_LINE = block("lines", "line")
_TENANT = block("lines", "tenant")
_QUEUES = block("lines", "queues_of_tenant")
_QUEUE = block("lines", "queue")


class LineIds(NamedTuple):
    """The numbers of a line, of its queue, of its tenant and of its lane (a plain int: an enum binds slowly)."""

    line_id: int
    queue_id: int
    tenant_id: int
    lane: int


class Interner:
    """The writer's side: gives a name its number, and writes it when it is new."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._lines: dict[Line, LineIds] = {}
        self._tenants: dict[str, int] = {}
        self._names = LineNames()
        self._fresh = False

    def ids(self, line: Line) -> LineIds:
        """The numbers of `line`."""
        return self._lines.get(line) or self._find(line)

    def tenant_id(self, tenant: str) -> int:
        """The number of `tenant`."""
        known = self._tenants.get(tenant)
        if known is None:
            known = self._get_or_add(_TENANT_ID, _ADD_TENANT, (tenant,))
            self._tenants[tenant] = known
        return known

    def line(self, line_id: int) -> Line:
        """The line of that number."""
        return self._names.line(self._conn, line_id)

    def undo(self) -> None:
        """What was written since `keep` has been rolled back, in part or whole; what was read since may be of it."""
        if self._fresh:
            self._forget()

    def keep(self) -> None:
        """What was written has been committed."""
        self._fresh = False
        if len(self._lines) > _MOST:
            self._forget()

    def _forget(self) -> None:
        self._lines.clear()
        self._tenants.clear()
        self._names.forget()

    def _find(self, line: Line) -> LineIds:
        tenant_id = self.tenant_id(line.tenant)
        queue_id = self._get_or_add(_QUEUE_ID, _ADD_QUEUE, (tenant_id, line.queue))
        key = (queue_id, int(line.lane), line.handler, line.hold, int(line.suspect))
        ids = LineIds(self._get_or_add(_LINE_ID, _ADD_LINE, key), queue_id, tenant_id, int(line.lane))
        self._lines[line] = ids
        return ids

    def _get_or_add(self, find: str, add: str, key: tuple[object, ...]) -> int:
        row = self._conn.execute(find, key).fetchone()
        if row is not None:
            return int(row[0])
        self._fresh = True
        number = self._conn.execute(add, key).lastrowid
        assert number is not None
        return number


class LineNames:
    """The readers' side: gives a number its line. What a reader sees is committed, so it may be kept."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}
        self._tenants: dict[int, str] = {}

    def tenant(self, conn: Connection, tenant_id: int) -> str:
        """The tenant of that number; LookupError if there is none, which only damage can cause."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            row = conn.execute(_TENANT, (tenant_id,)).fetchone()
            if row is None:
                raise LookupError(f"tenant {tenant_id} is missing from the store")
            tenant = self._tenants[tenant_id] = str(row[0])
        return tenant

    def line(self, conn: Connection, line_id: int) -> Line:
        """The line of that number; LookupError or ValueError if there is none, which only damage can cause."""
        line = self._lines.get(line_id)
        if line is None:
            row = conn.execute(_LINE, (line_id,)).fetchone()
            if row is None:
                raise LookupError(f"line {line_id} is missing from the store")
            tenant, queue, lane, handler, hold, suspect = row
            line = Line(tenant, queue, Lane(lane), handler, hold, bool(suspect))
            if len(self._lines) >= _MOST:
                self._lines.clear()
            self._lines[line_id] = line
        return line

    def forget(self) -> None:
        """Start anew."""
        self._lines.clear()
        self._tenants.clear()


def find_tenant(conn: Connection, tenant: str) -> int | None:
    """The number of a tenant, if it has one."""
    row = conn.execute(_TENANT_ID, (tenant,)).fetchone()
    return None if row is None else int(row[0])


def find_line(conn: Connection, line: Line) -> int | None:
    """The number of a line, if it has one."""
    for queue_id in find_queues(conn, line.tenant, line.queue):
        row = conn.execute(_LINE_ID, (queue_id, int(line.lane), line.handler, line.hold, int(line.suspect))).fetchone()
        if row is not None:
            return int(row[0])
    return None


def queue_name(conn: Connection, queue_id: int) -> tuple[str, str]:
    """Tenant and name behind a queue's number."""
    row = conn.execute(_QUEUE, (queue_id,)).fetchone()
    if row is None:
        raise LookupError(f"queue {queue_id} is missing from the store")
    return str(row[0]), str(row[1])


def find_queues(conn: Connection, tenant: str, queue: str | None) -> list[int]:
    """The numbers of one or all queues of a tenant."""
    return [int(row[0]) for row in conn.execute(_QUEUES, (tenant, queue))]


__all__ = ["Interner", "LineIds", "LineNames", "find_line", "find_queues", "find_tenant", "queue_name"]
