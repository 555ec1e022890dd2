"""How many jobs each tenant has in line in each tag: a tenant's limit is over all its lines, which lie in 64 tags.

Each process knows what the tags answered to its own pushes, and asks all of them about once a second. So a limit may be passed
by what many processes push within a second; within one tag it is exact.
"""

from __future__ import annotations

from collections.abc import Iterable

from tocsin.near.redis.keys import Keys
from tocsin.near.redis.programs import Programs
from tocsin.near.redis.scripts import Script

FRESH_MS = 1_000
_TENANTS_KEPT = 10_000
_TENANTS = Script("lines_tenants")


class TenantTotals:
    """The numbers as this process last saw them."""

    def __init__(self, programs: Programs, keys: Keys) -> None:
        self._programs, self._keys = programs, keys
        self._seen_at: dict[str, int] = {}
        self._numbers: dict[str, dict[str, int]] = {}

    async def refresh(self, tenants: Iterable[str]) -> None:
        """Ask for those not asked for within a second."""
        now = self._programs.steady.now_ms()
        old = [tenant for tenant in tenants if abs(now - self._seen_at.get(tenant, -FRESH_MS)) >= FRESH_MS]
        if not old:
            return
        tags = self._keys.line_tags
        answers = await self._programs.run([self._programs.plain(_TENANTS, tag, *old) for tag in tags])
        if len(self._seen_at) + len(old) > _TENANTS_KEPT:
            self._seen_at.clear()
            self._numbers.clear()
        for at, tenant in enumerate(old):
            self._seen_at[tenant] = now
            self._numbers[tenant] = {
                tag: int(answer[at]) for tag, answer in zip(tags, answers, strict=True) if answer[at] is not None
            }

    def note(self, tenant: str, tag: str, number: int) -> None:
        """A tag has just said how many jobs the tenant has there."""
        self._numbers.setdefault(tenant, {})[tag] = number

    def elsewhere(self, tenant: str, tag: str) -> int:
        """How many the tenant has in the other tags."""
        numbers = self._numbers.get(tenant)
        return 0 if numbers is None else sum(numbers.values()) - numbers.get(tag, 0)
