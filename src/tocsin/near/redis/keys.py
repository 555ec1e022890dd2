"""The names of everything in Redis.

    {acme:p3}:alive                     the epoch that this tag holds; missing: nothing may be read or written here
    {acme:p3}:<epoch>:jobs              what belongs to an epoch has the epoch in its name, so a new one begins empty
    {acme:q17}:<epoch>:...              ready lines, by a hash of tenant and queue
    {acme:epoch}                        the present epoch, and which servers held it

What stands in braces is the tag: all keys of a tag lie on one server, also in a cluster, so a script may use them together. A
script is given its tag's alive key (`KEYS[1]`) and the epoch (`ARGV[1]`) and makes the other names from these two; no name in
a script comes from anywhere else.
"""

from __future__ import annotations

import re
from zlib import crc32

from tocsin.errors import ConfigError

LINE_TAGS = 64
_INSTALLATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OF_AN_EPOCH = re.compile(r"\{[^{}]*\}:([0-9]+):")


class Keys:
    """The names of one installation."""

    def __init__(self, installation: str, partitions: int) -> None:
        if not _INSTALLATION.fullmatch(installation):
            raise ConfigError(
                f"the installation's name is {installation!r}; it must be 1 to 64 letters, digits, dots, dashes or underscores"
            )
        self.epoch = f"{{{installation}:epoch}}"
        self.partition_tags = tuple(f"{{{installation}:p{number}}}" for number in range(partitions))
        self.line_tags = tuple(f"{{{installation}:q{number}}}" for number in range(LINE_TAGS))
        self.due_channel = f"{installation}:due"
        self.ready_channel = f"{installation}:ready"
        self.pattern = f"{{{installation}:*}}:*"

    def line_tag(self, tenant: str, queue: str) -> str:
        """The tag of all ready lines of a queue."""
        return self.line_tags[crc32(f"{tenant}/{queue}".encode()) % LINE_TAGS]


def alive_key(tag: str) -> str:
    """The key that says which epoch a tag holds."""
    return f"{tag}:alive"


def key(tag: str, epoch: str, name: str) -> str:
    """A key of an epoch, as scripts name it."""
    return f"{tag}:{epoch}:{name}"


def epoch_of(name: str) -> str | None:
    """The epoch that a key's name carries."""
    found = _OF_AN_EPOCH.match(name)
    return found[1] if found else None
