"""The keys of one installation in etcd, and what stands in them (JSON).

    /tocsin/<installation>/
        member/<session>   MemberValue    on the session's lease; the session stands as long as this key does
        vitals/<session>   Vitals         on the session's lease
        office             the session    on the session's lease
        held/<partition>   HeldValue      on the session's lease
        version            the map's version, as a decimal number; absent: 0
        map                Assignment     written only together with `version`
        moves/<version>    list of Move   what that version moved

A session is also its etcd lease: the session's hexadecimal digits are the lease's ID.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from tocsin.errors import LeasesUnavailable
from tocsin.lease.etcd.gateway import KeyValue, prefix_end
from tocsin.lease.port import Facts, SessionId

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MemberValue:
    """Who a session is; `opened_at` in milliseconds since 1970 by the clock of its process."""

    facts: Facts
    opened_at: int


@dataclass(frozen=True, slots=True)
class HeldValue:
    """By whom a partition is held, and since when (milliseconds since 1970 by the holder's clock)."""

    session: SessionId
    since: int


class Keys:
    """The names. Numbers are padded, so that the order of keys is theirs."""

    def __init__(self, installation: str) -> None:
        self._root = f"/tocsin/{installation}/"
        self.office = self._root + "office"
        self.version = self._root + "version"
        self.map = self._root + "map"
        self.members, self.vitals_of_all = self._all("member/"), self._all("vitals/")
        self.all_held, self.all_moves = self._all("held/"), self._all("moves/")

    def member(self, session: SessionId) -> str:
        """The session stands as long as this key does."""
        return f"{self._root}member/{session}"

    def vitals(self, session: SessionId) -> str:
        """What the session said of itself last."""
        return f"{self._root}vitals/{session}"

    def held(self, partition: int) -> str:
        """By whom the partition is held."""
        return f"{self._root}held/{partition:05d}"

    def moves(self, version: int) -> str:
        """What a version of the map moved."""
        return f"{self._root}moves/{version:019d}"

    def _all(self, folder: str) -> tuple[str, str]:
        return self._root + folder, prefix_end(self._root + folder)


def last_part(key: str) -> str:
    """The session or number that a key is named after."""
    return key.rpartition("/")[2]


def lease_of(session: SessionId) -> int:
    """The session's etcd lease."""
    return int(session, 16)


def encode(value: Any) -> bytes:
    """A value as it is written."""
    return msgspec.json.encode(value)


def decode(found: KeyValue, kind: type[_T]) -> _T:
    """A value as it was written. Raises LeasesUnavailable for what no program of ours wrote, or a newer one did."""
    try:
        return msgspec.json.decode(found.value, type=kind)
    except msgspec.MsgspecError as exc:
        raise LeasesUnavailable(
            f"etcd's key {found.key} holds what this version cannot read: {exc}; update Tocsin"
        ) from exc
