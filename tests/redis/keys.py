"""What is in a server, as a test looks at it."""

from __future__ import annotations

from redis import Redis

from tests.servers.redis import RedisServer


def client(server: RedisServer) -> Redis:
    """A plain client; use it in a `with`."""
    return Redis.from_url(server.url, decode_responses=True, protocol=2)


def keys(server: RedisServer, pattern: str = "*") -> list[str]:
    """All keys of a server that match."""
    with client(server) as redis:
        return sorted(redis.scan_iter(match=pattern, count=1_000))


def litter(server: RedisServer, installation: str) -> list[str]:
    """Keys that an installation has left when it holds no job: all but which epoch it is and which cut was the last."""
    kept = ("alive", "tokens")
    return [
        name
        for name in keys(server, f"{{{installation}:*")
        if name != f"{{{installation}:epoch}}" and not name.endswith(kept)
    ]
