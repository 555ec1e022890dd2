"""Where in its window a flexible job fires: spread evenly by a hash of its ID."""

from __future__ import annotations

from hashlib import blake2b

RESERVE_SHARE = 0.05
RESERVE_LEAST_MS = 5_000


def spread_ms(job_id: str, window_ms: int, *, whole: bool = False) -> int:
    """Milliseconds into the window. The last 5 % (at least 5 s) stay free, so that the job also starts inside; a window of 5 s
    or less has no spread. `whole` uses all of it."""
    room = window_ms if whole else window_ms - max(RESERVE_LEAST_MS, round(window_ms * RESERVE_SHARE))
    if room <= 0:
        return 0
    return int.from_bytes(blake2b(job_id.encode(), digest_size=8).digest(), "big") % room
