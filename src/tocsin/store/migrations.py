"""The steps of a store's schema: numbered plain SQL files, forward only, each known by a checksum of its text."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import LiteralString


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    text: LiteralString

    @property
    def checksum(self) -> str:
        """SHA-256 of the file's text."""
        return sha256(self.text.encode()).hexdigest()


def read_migrations(package: str) -> list[Migration]:
    """All steps in the folder `migrations` of a package, in order."""
    folder = resources.files(package) / "migrations"
    found = sorted((file.name, file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".sql"))
    return [
        # The files are part of the program: their text is as literal as one in the source.
        Migration(int(name[:4]), name.removesuffix(".sql"), text)
        for name, text in found
    ]
