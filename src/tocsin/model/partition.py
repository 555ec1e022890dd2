"""Which partition a job belongs to, and which minute bucket a timer."""

from __future__ import annotations

from tocsin.errors import ConfigError
from tocsin.model.ids import SLICES, slice_of

BUCKET_MS = 60_000


def check_partitions(count: int) -> None:
    """Raise ConfigError unless `count` can be an installation's number of partitions."""
    if count < 1 or count > SLICES or count & (count - 1):
        raise ConfigError(f"partitions is {count}; it must be a power of two from 1 to {SLICES}")


def partition_of(job_id: str, partitions: int) -> int:
    """The partition of a job: slice x P // 4,096."""
    return slice_of(job_id) * partitions // SLICES


def bucket_of(at_ms: int) -> int:
    """The minute bucket of an instant: minutes since 1970 UTC."""
    return at_ms // BUCKET_MS
