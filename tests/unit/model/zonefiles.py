"""The zone database as its files have it (RFC 9636), read without the help of what is tested."""

import struct
from functools import cache
from importlib import resources


@cache
def names() -> list[str]:
    """All names, without the placeholder."""
    return sorted(set((resources.files("tzdata") / "zones").read_text(encoding="utf-8").split()) - {"Factory"})


@cache
def changes(name: str) -> list[tuple[int, int, int]]:
    """Where a zone's offset changes, as far as the file lists it: the instant, the offset before and the offset after, in seconds."""
    raw = (resources.files("tzdata") / "zoneinfo").joinpath(*name.split("/")).read_bytes()
    start = 0
    for size in (4, 8):  # the data twice, the second time in 64 bits
        marks, standards, leaps, times, types, letters = struct.unpack_from(">6l", raw, start + 20)
        body = start + 44
        start = body + times * size + times + types * 6 + letters + leaps * (size + 4) + standards + marks
    instants = struct.unpack_from(f">{times}q", raw, body)
    kinds = raw[body + times * 8 : body + times * 9]
    seconds = [struct.unpack_from(">l", raw, body + times * 9 + kind * 6)[0] for kind in range(types)]
    found = []
    before = seconds[0]
    for at, kind in zip(instants, kinds, strict=True):
        if seconds[kind] != before:
            found.append((at, before, seconds[kind]))
            before = seconds[kind]
    return found
