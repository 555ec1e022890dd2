"""Which targets a job may name: the form of a callback's URL and of the headers that go with it.

Checked when a job is created or changed, so that a mistake is a 422 with a pointer and not a dead letter next month. Only
the form is judged here. Whether the address behind a name may be called is decided when the connection is made
(`executor/guard.py`), because a name can point elsewhere by then.

The grammar is narrower than RFC 3986 on purpose: whatever two parsers could read differently (user information,
backslashes, `127.1`, control characters) is refused, so that the executor calls the host that is shown to people.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

from tocsin.wire import HttpTarget

MAX_HEADER_CHARS = 8_192
MAX_HEADERS_CHARS = 16_384

DEFAULT_PORTS = {"http": 80, "https": 443}

# What the executor itself sets, what would change the framing of the request (RFC 9112 §6), and what belongs to one
# connection only (RFC 9110 §7.6.1).
REFUSED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "idempotency-key",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
REFUSED_PREFIXES = ("webhook-", "tocsin-")

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>[^#]*)(?:#.*)?")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ud800-\udfff]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


class HostKey(NamedTuple):
    """Where calls go, as far as caps and breakers tell targets apart. `host` is lower case ASCII."""

    scheme: str
    host: str
    port: int


class _Invalid(ValueError):
    """The URL cannot be a target; the message is the detail that the user sees."""


def errors_of(target: HttpTarget, pointer: str = "/target") -> list[tuple[str, str]]:
    """What is wrong with a target, as (JSON pointer, detail); empty when it may be stored."""
    found: list[tuple[str, str]] = []
    if (detail := url_error(target.url)) is not None:
        found.append((f"{pointer}/url", detail))
    if target.headers:
        found.extend(_header_errors(target.headers, f"{pointer}/headers"))
    return found


def url_error(url: str) -> str | None:
    """Why `url` cannot be called, or None."""
    try:
        host_key(url)
    except ValueError as exc:
        return str(exc)
    return None


@lru_cache(maxsize=8192)
def host_key(url: str) -> HostKey:
    """The scheme, host and port of a target. Raises ValueError with the reason when it is not a valid target."""
    if (unsafe := _UNSAFE.search(url)) is not None:
        raise _Invalid(f"must not contain {_shown(unsafe[0])}")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise _Invalid("must be an absolute URL such as https://example.com/path")
    scheme = parts["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        raise _Invalid(f"the scheme must be http or https, not {scheme}")
    authority = parts["authority"]
    if "@" in authority:
        raise _Invalid("must not contain user information; send an Authorization header instead")
    if not authority:
        raise _Invalid("must name a host")
    host, port = _split_port(authority)
    return HostKey(scheme, _host(host), DEFAULT_PORTS[scheme] if port is None else port)


def _split_port(authority: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _Invalid("has a malformed IPv6 address")
        host, port = f"[{host}]", rest[1:]
    else:
        host, _, port = authority.partition(":")
    if not port:
        return host, None
    # Five digits bound the number before it is converted; \d would also take digits of other scripts.
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65_535:
        raise _Invalid("the port must be a number from 1 to 65535")
    return host, int(port)


def _host(host: str) -> str:
    if host.startswith("["):
        if "%" in host:
            raise _Invalid("must not name a zone in an IPv6 address")
        try:
            return IPv6Address(host[1:-1]).compressed
        except AddressValueError:
            raise _Invalid("has a malformed IPv6 address") from None
    try:
        name = host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise _Invalid("the host is not a valid international name") from None
    labels = name.removesuffix(".").split(".")
    # Resolvers read a name that ends in a number as an address in old notations: 127.1, 2130706433, 0x7f.1, 0177.0.0.1.
    if re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]*", labels[-1]):
        try:
            return str(IPv4Address(name))
        except AddressValueError:
            raise _Invalid("an IPv4 address must be four decimal numbers without leading zeros") from None
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _Invalid("the host is not a valid name")
    return name


def _header_errors(headers: dict[str, str], pointer: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for name, value in headers.items():
        detail = _header_error(name, value)
        lowered = name.lower()
        if detail is None and lowered in seen:
            detail = "is given twice; names of headers do not differ by case"
        seen.add(lowered)
        if detail is not None:
            found.append((f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", detail))
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADERS_CHARS:
        found.append((pointer, f"must together have at most {MAX_HEADERS_CHARS} characters"))
    return found


def _header_error(name: str, value: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        return "is not a valid header name"
    lowered = name.lower()
    if lowered in REFUSED_HEADERS or lowered.startswith(REFUSED_PREFIXES):
        return "is set by Tocsin or belongs to the connection; it cannot be given"
    if len(value) > MAX_HEADER_CHARS:
        return f"must have at most {MAX_HEADER_CHARS} characters"
    if _HEADER_UNSAFE.search(value):
        return "must not contain line breaks or other control characters"
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return "must consist of Latin-1 characters"
    return None


def _shown(char: str) -> str:
    return {" ": "spaces", "\\": "backslashes"}.get(char, f"the character U+{ord(char):04X}")
