"""Keeps a job's secrets out of what is stored about its calls: endpoints like to echo the request they refuse.

Secret are the values of the job's own headers (with their parts: the token without its `Bearer`), and the values in the
URL's query whose names sound like credentials. Short values are left alone; masking them would eat ordinary words.
"""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl, urlsplit

from tocsin.wire import HttpTarget

MASKED = "***"
MIN_SECRET_CHARS = 8

_OPEN_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
_CREDENTIAL = re.compile(r"key|token|secret|passw|pwd|auth|sig|credential|session|jwt", re.IGNORECASE)


class Mask:
    """The secrets of one target, longest first."""

    def __init__(self, secrets: set[str]) -> None:
        self._secrets = sorted((one for one in secrets if len(one) >= MIN_SECRET_CHARS), key=len, reverse=True)

    @classmethod
    def of(cls, target: HttpTarget) -> Mask:
        """What must not be stored of this target."""
        if not target.headers and "?" not in target.url:
            return _NOTHING
        secrets: set[str] = set()
        for name, value in target.headers.items():
            if name.lower() not in _OPEN_HEADERS:
                secrets.update((value.strip(), *re.split(r"[\s,;]+", value)))
        if "?" in target.url:
            query = urlsplit(target.url).query
            secrets.update(value for name, value in parse_qsl(query) if _CREDENTIAL.search(name))
            secrets.update(item.partition("=")[2] for item in query.split("&") if _CREDENTIAL.search(item))
        # An echo inside of JSON has its quotes and backslashes escaped.
        secrets.update([json.dumps(one)[1:-1] for one in secrets])
        return cls(secrets)

    def hide(self, text: str, *, cut: bool = False) -> str:
        """`text` without the secrets. `cut` says that it was cut off, so a secret's beginning at its end goes too."""
        for secret in self._secrets:
            text = text.replace(secret, MASKED)
        if cut:
            for secret in self._secrets:
                for length in range(min(len(secret) - 1, len(text)), MIN_SECRET_CHARS - 1, -1):
                    if text.endswith(secret[:length]):
                        return text[:-length] + MASKED
        return text


_NOTHING = Mask(set())
