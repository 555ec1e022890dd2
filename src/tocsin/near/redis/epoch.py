"""The epoch: the name of what Redis holds. A new one begins empty whenever something may have been lost.

    lost?  the epoch's key is missing (an empty server), or the servers' run or replication IDs are others than at its
           beginning (a restart from whatever dump, a failover), or keys were evicted (looked at every ten seconds), or a tag
           that was alive is not
    then   1. a new name, by compare-and-set: one process wins, all go on with its name
           2. the tags of the old epoch die, so that whoever writes with the old name from now on is refused
           3. the line tags come alive in the new epoch, and it is marked open
           4. owners `begin` their partitions' tags, then read the store and fill them
           5. the old epoch's keys are removed, a bounded number in each look

An offer that was accepted under the old name came before step 2, its timer is older still, and step 4 reads after it: so it is
found. A process that dies after any step leaves an epoch that is not open; the next one that looks does all steps again.

Names are ordered (the server's clock), so a process that was stopped in the middle of step 2 or 4 neither kills nor revives
what is newer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.errors import NearUnavailable
from tocsin.near.redis.connection import Connection
from tocsin.near.redis.keys import Keys, alive_key, epoch_of
from tocsin.near.redis.scripts import Script, run_scripts

SWEEP = 1_000
BETWEEN_EVICTIONS_US = 10_000_000
_EVICTED = re.compile(r"evicted_keys=\d+")
_BEGIN, _MARK = Script("epoch_begin"), Script("epoch_mark")
_TAG_BEGIN, _TAG_END = Script("tag_begin"), Script("tag_end")


@dataclass(frozen=True, slots=True)
class Memory:
    """What the servers use and may use of their memory, in bytes; no limit: None."""

    used: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class _Found:
    """What the epoch's key holds; `name` is empty if there is none."""

    name: str
    servers: str
    open: bool
    swept: bool


class Epoch:
    """This process's view of the epoch."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection, self._keys = connection, keys
        self._name = ""
        self._ended: list[Callable[[], None]] = []
        self._begun: dict[str, int] = {}  # tags of this epoch, each with the mark at which it was known to be alive
        self._mark = 0
        self._doubtful = ""
        self._cursor = 0

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call back when this process learns that the epoch it knew is over: what it keeps of it is void."""
        self._ended.append(callback)

    async def name(self) -> str:
        """The epoch as this process knows it."""
        return self._name or await self.look()

    async def refresh(self) -> str:
        """The epoch as the server knows it now; raises NearUnavailable if there is none that is open."""
        found = await self._found()
        if not found.open:
            raise NearUnavailable(
                "a new epoch of the near tier is just beginning; its content is rebuilt from the store"
            )
        self._know(found.name)
        return found.name

    def mark(self) -> int:
        """How far this process knows about tags, to be given to `doubt`."""
        return self._mark

    def doubt(self, tags: Sequence[str], mark: int) -> None:
        """These tags were not alive for what was sent at `mark`. If they were in this epoch by then, their content is lost: the next
        look begins a new one. A tag that was begun while the answer was on its way is none of them."""
        if any(self._begun.get(tag, mark + 1) <= mark for tag in tags):
            self._doubtful = self._name

    async def look(self) -> str:
        """Begin a new epoch if anything may have been lost; the name of the one that is. Also removes a few old keys."""
        found = await self._found()
        # Asked for after the epoch, so that what is older than a new epoch never ends that.
        infos = await self._connection.on_every_server("INFO", "server", "replication", "stats")
        servers = _servers(infos)
        if not found.name or _other(found, servers, _now_us(infos)) or (found.open and found.name == self._doubtful):
            found = _found(await self._ask(_BEGIN, found.name, servers))
        if not found.open:
            await self._open(found.name)
        self._know(found.name)
        if not found.swept:
            await self._sweep(found.name)
        return found.name

    async def begin(self, partitions: Sequence[int]) -> None:
        """Make the tags of partitions alive."""
        tags = [self._keys.partition_tags[partition] for partition in partitions]
        epoch = await self.look()
        answers = await self._each(_TAG_BEGIN, tags, epoch)
        if not all(answers):
            self._name = ""
            raise NearUnavailable(
                f"epoch {epoch} of the near tier ended while its partitions were begun; will be tried again"
            )
        self._alive(tags)

    async def memory(self) -> Memory:
        """The servers' memory, all together."""
        infos = [_fields(text) for text in await self._connection.on_every_server("INFO", "memory")]
        limits = [int(info.get("maxmemory", 0)) for info in infos]
        return Memory(sum(int(info["used_memory"]) for info in infos), sum(limits) if all(limits) else None)

    # inside

    async def _open(self, epoch: str) -> None:
        await self._each(_TAG_END, [*self._keys.partition_tags, *self._keys.line_tags], epoch)
        begun = await self._each(_TAG_BEGIN, self._keys.line_tags, epoch)
        if not all(begun) or not await self._ask(_MARK, epoch, "open"):
            raise NearUnavailable(f"epoch {epoch} of the near tier was over before it was open; will be tried again")

    async def _sweep(self, epoch: str) -> None:
        """Remove keys of other epochs among the next few; at the end, note that none are left."""
        self._cursor, names = await self._connection.scan(self._cursor, self._keys.pattern, SWEEP)
        old = [name for name in names if (of := epoch_of(name)) is not None and of != epoch]
        if old:
            await self._connection.run([("UNLINK", name) for name in old])
        if self._cursor == 0:
            await self._ask(_MARK, epoch, "swept")

    def _know(self, name: str) -> None:
        if name != self._name:
            self._name, self._begun, self._cursor = name, {}, 0
            self._alive(self._keys.line_tags)
            for callback in self._ended:
                callback()

    def _alive(self, tags: Sequence[str]) -> None:
        self._mark += 1
        for tag in tags:
            self._begun.setdefault(tag, self._mark)

    async def _found(self) -> _Found:
        return _found(await self._connection.ask("HMGET", self._keys.epoch, "name", "servers", "open", "swept"))

    async def _ask(self, script: Script, *args: str) -> Any:
        (answer,) = await run_scripts(self._connection, [(script, self._keys.epoch, args)])
        return answer

    async def _each(self, script: Script, tags: Sequence[str], epoch: str) -> list[Any]:
        return await run_scripts(self._connection, [(script, alive_key(tag), (epoch,)) for tag in tags])


def _found(answer: Sequence[str | None]) -> _Found:
    name, servers, is_open, swept = answer
    return _Found(name or "", servers or "", is_open == "1", swept == "1")


def _other(found: _Found, servers: str, now_us: int) -> bool:
    """Whether the servers are not what they were when the epoch began. A server that evicts all the time shall not begin an epoch all the
    time, in which nothing would ever be fired: what evictions alone have taken is rebuilt every ten seconds."""
    if found.servers == servers:
        return False
    evictions_alone = _EVICTED.sub("", found.servers) == _EVICTED.sub("", servers)
    return not evictions_alone or now_us - int(found.name) >= BETWEEN_EVICTIONS_US


def _now_us(infos: Sequence[Any]) -> int:
    """The servers' clock, by which epochs are named."""
    return max(int(_fields(info).get("server_time_usec", 0)) for info in infos)


def _servers(infos: Sequence[Any]) -> str:
    """What must not change while an epoch lasts, of all servers."""
    facts = [_fields(text) for text in infos]
    return " ".join(
        sorted(
            f"{name}={info[name]}"
            for info in facts
            for name in ("run_id", "master_replid", "evicted_keys")
            if name in info
        )
    )


def _fields(info: Any) -> dict[str, str]:
    """The fields of an INFO answer."""
    if isinstance(info, dict):
        return {name: str(value) for name, value in info.items()}
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
