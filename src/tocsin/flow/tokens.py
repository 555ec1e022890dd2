"""Lease tokens: what a worker shows to speak for an attempt.

The text names the attempt and carries a MAC, so a forged or mangled token is refused without asking the store, and a worker of
one tenant cannot speak for another's attempt. It says nothing about who is current: that is the store's answer.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

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
        self._keyed = blake2b(key=secret[:64], digest_size=_MAC_CHARS // 2)

    def make(self, lease: Lease) -> str:
        """The token of an attempt."""
        text = f"{lease.job_id}~{lease.attempt}~{lease.tenant}~{lease.queue}"
        return f"{text}~{self._mac(text)}"

    def read(self, token: str) -> Lease | None:
        """The attempt of a token; None if it is not one of ours."""
        if not token.isascii():
            return None
        text, _, mac = token.rpartition("~")
        # What carries our MAC was made by `make`, so its parts need no checking.
        if not compare_digest(mac, self._mac(text)):
            return None
        job_id, attempt, tenant, queue = text.split("~")
        return Lease(tenant, queue, job_id, int(attempt))

    def _mac(self, text: str) -> str:
        digest = self._keyed.copy()
        digest.update(text.encode())
        return digest.hexdigest()
