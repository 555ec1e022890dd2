"""Looking at a Redis or Valkey without changing it, for `tocsin doctor`: version, eviction, persistence, memory.

Nothing in it is the truth, so what matters is that it neither throws entries away by itself nor spends time on keeping them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from redis.exceptions import RedisError

from tocsin.near.redis.connection import Connection

OLDEST_REDIS, OLDEST_VALKEY = (7, 0), (8, 0)
# Of its limit: above the first somebody should look, above the second offers are about to be refused.
FULL_NOTE, FULL_PROBLEM = 0.6, 0.85


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `do` is empty where nothing has to be done."""

    check: str
    state: Literal["ok", "note", "problem"]
    found: str
    do: str = ""


async def examine(url: str) -> list[Finding]:
    """Look at every server behind `url`. Raises ConfigError, NearUnavailable."""
    connection = Connection(url)
    try:
        findings: list[Finding] = []
        for text in await connection.on_every_server("INFO"):
            facts = _facts(text)
            findings += [_version(facts), _memory(facts), _persistence(facts), _role(facts)]
        try:
            policies = await connection.on_every_server("CONFIG", "GET", "maxmemory-policy")
        except RedisError:
            policies = []
        findings.append(_policy([_value(answer) for answer in policies]))
        return findings
    finally:
        await connection.close()


def _facts(text: Any) -> dict[str, str]:
    if isinstance(text, dict):
        return {str(name): str(value) for name, value in text.items()}
    pairs = (line.partition(":") for line in str(text).splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in pairs}


def _value(answer: Any) -> str:
    if isinstance(answer, dict):
        return str(next(iter(answer.values()), ""))
    return str(answer[1]) if isinstance(answer, list | tuple) and len(answer) > 1 else ""


def _version(facts: dict[str, str]) -> Finding:
    valkey = facts.get("valkey_version")
    name, text = ("Valkey", valkey) if valkey else ("Redis", facts.get("redis_version", ""))
    least = OLDEST_VALKEY if valkey else OLDEST_REDIS
    parts = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if parts < least:
        found = f"{name} {text or 'of unknown version'}"
        return Finding(
            "near tier", "problem", found, f"use Redis {OLDEST_REDIS[0]} or Valkey {OLDEST_VALKEY[0]} at least"
        )
    return Finding("near tier", "ok", f"{name} {text} answers")


def _policy(policies: list[str]) -> Finding:
    known = {policy for policy in policies if policy}
    if not known:
        found = "its eviction policy cannot be read (CONFIG is forbidden)"
        return Finding("eviction", "note", found, "see to it that maxmemory-policy is noeviction")
    if known != {"noeviction"}:
        found = f"maxmemory-policy is {', '.join(sorted(known))}: entries vanish when memory is short"
        return Finding(
            "eviction",
            "problem",
            found,
            "set maxmemory-policy noeviction; until then jobs that vanish start a minute late",
        )
    return Finding("eviction", "ok", "maxmemory-policy is noeviction")


def _memory(facts: dict[str, str]) -> Finding:
    used, limit = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    mib = used / (1 << 20)
    if not limit:
        found = f"{mib:,.0f} MiB used, no limit"
        return Finding(
            "near memory", "note", found, "set maxmemory below the machine's memory, so that it is refused, not killed"
        )
    share = used / limit
    found = f"{mib:,.0f} MiB used of {limit / (1 << 20):,.0f}"
    if share > FULL_PROBLEM:
        return Finding("near memory", "problem", found, "raise maxmemory, or find the queue that nobody works on")
    if share > FULL_NOTE:
        return Finding("near memory", "note", found, "raise maxmemory before it is full")
    return Finding("near memory", "ok", found)


def _persistence(facts: dict[str, str]) -> Finding:
    if facts.get("aof_enabled") == "1":
        found = "it writes an append-only file"
        return Finding(
            "near persistence", "note", found, "turn appendonly off: its content is rebuilt from the store anyway"
        )
    return Finding("near persistence", "ok", "no append-only file; what is lost is rebuilt from the store")


def _role(facts: dict[str, str]) -> Finding:
    if facts.get("role") == "slave":
        return Finding("near role", "problem", "the address leads to a replica", "set near to the primary's address")
    return Finding("near role", "ok", f"primary with {facts.get('connected_slaves', '0')} replicas")
