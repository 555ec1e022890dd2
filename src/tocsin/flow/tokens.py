"""Lease tokens: what a worker shows to speak for an attempt.

The text names the attempt and carries a MAC, so a forged or mangled token is refused without asking the store, and a worker of
one tenant cannot speak for another's attempt. It says nothing about who is current: that is the store's answer.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

MOST_RECENT = 50_000
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
        self._key = secret[:64]
        # The ones made here lately: they come back soon, and looking one up costs a twentieth of a MAC.
        self._recent: dict[str, Lease] = {}

    def make(self, job_id: str, attempt: int, tenant: str, queue: str) -> str:
        """The token of an attempt."""
        text = f"{job_id}~{attempt}~{tenant}~{queue}"
        token = f"{text}~{self._mac(text)}"
        if len(self._recent) >= MOST_RECENT:
            self._recent.clear()
        self._recent[token] = Lease(tenant, queue, job_id, attempt)
        return token

    def read(self, token: str) -> Lease | None:
        """The attempt of a token; None if it is not one of ours."""
        known = self._recent.get(token)
        if known is not None:
            return known
        text, mac = token[: -_MAC_CHARS - 1], token[-_MAC_CHARS:]
        # What carries our MAC was made by `make`, so its parts need no checking. A lone surrogate has no UTF-8.
        if not token.isascii() or not compare_digest(mac, self._mac(text)):
            return None
        parts = text.split("~")
        return Lease(parts[2], parts[3], parts[0], int(parts[1]))

    def _mac(self, text: str) -> str:
        return blake2b(text.encode(), key=self._key, digest_size=_MAC_CHARS // 2).hexdigest()
