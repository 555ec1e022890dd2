"""Lease tokens: what a worker shows to speak for an attempt.

The text names the attempt and carries a MAC, so a forged or mangled token is refused without asking the store, and a worker of
one tenant cannot speak for another's attempt. It says nothing about who is current: that is the store's answer.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from tocsin.model.ids import is_job_id

_MAC_CHARS = 32


class Lease(NamedTuple):
    """The attempt that a token speaks for."""

    tenant: str
    queue: str
    job_id: str
    attempt: int


class LeaseTokens:
    """Makes and reads lease tokens under the installation's secret. Names cannot contain `~`, so it separates."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret[:64]

    def make(self, lease: Lease) -> str:
        """The token of an attempt."""
        text = f"{lease.job_id}~{lease.attempt}~{lease.tenant}~{lease.queue}"
        return f"{text}~{self._mac(text)}"

    def read(self, token: str) -> Lease | None:
        """The attempt of a token; None if it is not one of ours."""
        text, _, mac = token.rpartition("~")
        if len(mac) != _MAC_CHARS or not token.isascii() or not compare_digest(mac, self._mac(text)):
            return None
        parts = text.split("~")
        if len(parts) != 4 or not is_job_id(parts[0]) or not parts[1].isdigit():
            return None
        return Lease(parts[2], parts[3], parts[0], int(parts[1]))

    def _mac(self, text: str) -> str:
        return blake2b(text.encode(), key=self._secret, digest_size=_MAC_CHARS // 2).hexdigest()
