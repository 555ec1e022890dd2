"""An etcd cluster's address, as the setting `lease` gives it.

    etcd://host:2379,host2:2379
    etcds://user:password@host:2379,host2:2379?ca=/etc/tocsin/ca.pem&cert=/etc/tocsin/node.pem&key=/etc/tocsin/node.key

All endpoints must be members of one cluster. `etcds` means TLS, verified against `ca` (without it: the machine's own
authorities) and the host's name; `cert` and `key` are this process's own certificate, where the cluster asks for one. User
and password are percent-encoded. Reads the files it is told of and nothing else.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from tocsin.errors import ConfigError

DEFAULT_PORT = 2379
_SCHEMES = {"etcd": "http", "etcds": "https"}
_FILES = ("ca", "cert", "key")
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a cluster is and how one gets in. The password is not shown in messages."""

    endpoints: tuple[str, ...]  # http://host:port, in the order in which they are tried
    user: str | None = None
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


def parse(text: str) -> Address:
    """The parts of an address. Raises ConfigError, which shows nothing of it: a password may stand where it should not."""
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ConfigError("lease is not an address; in brackets are IPv6 addresses, and nothing else") from None
    if parts.scheme not in _SCHEMES or parts.path not in ("", "/") or parts.fragment:
        raise ConfigError(
            "lease is not the address of an etcd cluster; allowed is etcd://HOST:PORT,… or etcds://HOST:PORT,…"
        )
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    files = _files(parts.query)
    if files and parts.scheme == "etcd":
        raise ConfigError(f"lease names {', '.join(files)} and is not encrypted; write etcds:// instead of etcd://")
    return Address(
        endpoints=tuple(f"{_SCHEMES[parts.scheme]}://{_endpoint(*each)}" for each in enumerate(hosts.split(","), 1)),
        user=unquote(user) or None,
        password=unquote(password),
        tls=_tls(files) if parts.scheme == "etcds" else None,
    )


def _endpoint(number: int, text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 65_536:
        raise ConfigError(
            f"lease has an endpoint, number {number}, that is not HOST:PORT; several are separated by commas, and user and "
            "password are percent-encoded"
        )
    return f"{match['host']}:{int(match['port'] or DEFAULT_PORT)}"


def _files(query: str) -> dict[str, str]:
    files = dict(parse_qsl(query, keep_blank_values=True))
    if not files.keys() <= {*_FILES} or not all(files.values()):
        raise ConfigError(
            f"lease has an option that is none: there are {', '.join(_FILES)}, each with the path of a file"
        )
    if ("cert" in files) != ("key" in files):
        raise ConfigError("lease names one of cert and key; a certificate of one's own needs both")
    return files


def _tls(files: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.get("ca"))
    except OSError as exc:  # ssl.SSLError is one
        raise ConfigError(f"lease: no certificate authority can be read from ca={files['ca']}: {exc}") from exc
    if "cert" in files:
        try:
            context.load_cert_chain(files["cert"], files["key"])
        except OSError as exc:
            raise ConfigError(f"lease: cert={files['cert']} and key={files['key']} cannot be used: {exc}") from exc
    return context
