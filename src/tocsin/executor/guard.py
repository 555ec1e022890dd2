"""Which addresses a callback may connect to, and the place where that is decided.

A URL is written by a user, and a name can point anywhere: at the machine itself, at the cloud's metadata service, at the
company's network. A check of the name or of the URL does not help, because the name can answer differently a moment later.
So the check sits where the socket for one particular address is made (`Guard.socket_for`, aiohttp's `socket_factory`):
every connection of the executor passes through it, whether its address came from a name, from an address in the URL, on
a first attempt or on a retry. Nothing is looked up again between the check and the connect.

Only globally routable addresses are allowed, judged by a table of our own: the one in `ipaddress` differs between
releases of Python. An IPv6 address that carries an IPv4 address is judged by what it carries. The operator may allow more
by network and port.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from tocsin.errors import ConfigError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Lookups block a thread each; more of them than hosts that are likely to have a dead name server at one time.
LOOKUP_THREADS = 64

# From the IANA registries of special-purpose addresses (RFC 6890 and its updates), without the few globally reachable
# ones in them that somebody could mean to call.
_DENIED_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared address space; also the metadata service of one cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's platform service, reachable from its machines only, on a public address
        "169.254.0.0/16",  # link-local; the metadata services of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; also a metadata service
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Everything else outside of it is loopback, link-local, site-local, unique-local, multicast or unassigned.
_GLOBAL_V6 = IPv6Network("2000::/3")
_DENIED_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: benchmarking, ORCHID, …
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_V4_COMPATIBLE = IPv6Network("::/96")
_V4_TRANSLATED = IPv6Network("::ffff:0:0:0/96")


class Blocked(OSError):
    """The address is not public and not on the operator's list. An OSError, so that other addresses are tried."""

    def __init__(self, address: str, port: int) -> None:
        host = f"[{address}]" if ":" in address else address
        super().__init__(
            errno.EACCES,
            f"blocked: {address} is not a public address; the operator may allow it with the setting "
            f"callback_allow, by adding {host}:{port}",
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """An operator's exception: connections into `network`, to `port` or (None) to any."""

    network: Network
    port: int | None

    def covers(self, address: Address, port: int) -> bool:
        # `in` is False for an address of the other family.
        return self.port in (None, port) and address in self.network


def parse_allowances(text: str) -> tuple[Allowance, ...]:
    """An allow-list such as `127.0.0.0/8:*, 10.1.0.0/16:8443, [fd00::/8]:443`. Raises ConfigError."""
    return tuple(_allowance(item) for item in (part.strip() for part in text.split(",")) if item)


def _allowance(item: str) -> Allowance:
    expected = "expected NETWORK:PORT or NETWORK:*, such as 10.1.0.0/16:8443, 127.0.0.0/8:* or [fd00::/8]:443"
    network_text, colon, port_text = item.rpartition(":")
    if not colon or not network_text:
        raise ConfigError(f"callback_allow has {item!r}, which names no port: {expected}")
    if network_text.startswith("[") and network_text.endswith("]"):
        network_text = network_text[1:-1]
    try:
        network = ip_network(network_text)
    except ValueError as exc:
        raise ConfigError(f"callback_allow has {item!r}: {exc}; {expected}") from exc
    if port_text == "*":
        return Allowance(network, None)
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and 1 <= int(port_text) <= 65_535):
        raise ConfigError(f"callback_allow has {item!r}: the port must be 1 to 65535 or *; {expected}")
    return Allowance(network, int(port_text))


def carried(address: Address) -> Address:
    """The address that a packet ends up at: IPv4 inside of IPv6 is unwrapped, anything else is returned as it is."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or address in _V4_COMPATIBLE or address in _V4_TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


@lru_cache(maxsize=8192)
def is_public(address: Address) -> bool:
    """Whether the address is globally routable unicast, and so is what it carries."""
    inner = carried(address)
    if isinstance(inner, IPv4Address):
        return not any(inner in network for network in _DENIED_V4)
    return inner in _GLOBAL_V6 and not any(inner in network for network in _DENIED_V6)


class Guard:
    """The executor's doorkeeper: public addresses, and what the operator allows on top."""

    def __init__(self, allowances: tuple[Allowance, ...] = ()) -> None:
        self._allowances = allowances

    def allows(self, host: str, port: int) -> bool:
        """Whether a connection to this numeric address and port may be made."""
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if is_public(address):
            return True
        inner = carried(address)
        return any(one.covers(address, port) or one.covers(inner, port) for one in self._allowances)

    def socket_for(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket for one result of a lookup (aiohttp's `socket_factory`). Raises Blocked."""
        family, kind, protocol, _, sockaddr = info
        if not self.allows(sockaddr[0], sockaddr[1]):
            raise Blocked(sockaddr[0], sockaddr[1])
        return socket.socket(family=family, type=kind, proto=protocol)


class Resolver(AbstractResolver):
    """Looks names up in threads of its own, so that a dead name server delays neither the loop nor its helper threads.

    Of a mixed answer only the allowed addresses are returned: otherwise it would be luck whether a failed call ends as
    blocked or as unreachable. A wholly denied answer is returned as it is, and the guard refuses it at the connect.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="tocsin-lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, lookup, host, port, family)
        return [one for one in found if self._guard.allows(one["host"], port)] or found

    async def close(self) -> None:
        # Not waited for: a lookup without an answer takes as long as the system's resolver likes.
        self._threads.shutdown(wait=False, cancel_futures=True)


def lookup(host: str, port: int, family: int) -> list[ResolveResult]:
    """All addresses of a name, in the system's order of preference. Blocks. Raises OSError."""
    try:
        answers = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except UnicodeError as exc:  # a label that is empty or too long for the name system
        raise OSError(None, f"{host!r} is not a valid host name") from exc
    return [
        ResolveResult(
            hostname=host,
            host=str(sockaddr[0]),
            port=port,
            family=answer_family,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for answer_family, _, protocol, _, sockaddr in answers
        if answer_family in (socket.AF_INET, socket.AF_INET6)
    ]
