"""Quotas: what one tenant may ask of a shared installation at the door.

Counted in this process, approximate, forgotten at a restart and failing open (also for jobs in more different minutes or seconds
than are remembered of a tenant): a quota protects neighbours from a mistake, it is not an account. What is over the line gets
429 with the quota's name and a time to come back, or a wider window where the job allows that (`timing.may_widen`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tocsin import wire
from tocsin.clock import Clock
from tocsin.errors import Refused
from tocsin.flow.tally import Tally
from tocsin.model.job import Lane
from tocsin.store.settings import SettingsStore, TenantRow

FRESH_S = 5.0
# A tenant may have jobs in each second of a year; counting all of them would cost gigabytes.
MOST_COUNTED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every quota with a number. The defaults are finite and generous."""

    creates_per_s: float = 200_000
    jobs_per_minute_bucket: float = 20_000_000
    precise_per_s: float = 2_000_000
    waiting_jobs: float = 100_000_000
    concurrent_callbacks: float = 10_000
    stored_bytes: float = 1e12


NAMES = tuple(Limits.__dataclass_fields__)


class Quotas:
    """The quotas of every tenant and what is used of them."""

    def __init__(self, settings: SettingsStore, tally: Tally, clock: Clock, defaults: Limits | None = None) -> None:
        self._settings, self._tally, self._clock = settings, tally, clock
        self._defaults = defaults or Limits()
        self._limits: dict[str, tuple[float, Limits]] = {}
        self._tokens: dict[str, tuple[float, float]] = {}
        self._minutes: dict[str, dict[int, int]] = defaultdict(dict)
        self._seconds: dict[str, dict[int, int]] = defaultdict(dict)

    async def limits_of(self, tenant: str) -> Limits:
        """A tenant's quotas, at most five seconds old."""
        now = self._clock.elapsed_s()
        cached = self._limits.get(tenant)
        if cached is None or now - cached[0] >= FRESH_S:
            rows = {row.name: row for row in await self._settings.tenants()}
            self._limits = {name: (now, self.merged(row)) for name, row in rows.items()}
            cached = self._limits.setdefault(tenant, (now, self._defaults))
        return cached[1]

    def merged(self, row: TenantRow) -> Limits:
        """A tenant's own quotas over the defaults."""
        return Limits(**{name: row.quotas.get(name, getattr(self._defaults, name)) for name in NAMES})

    def take_creates(self, tenant: str, limits: Limits, count: int) -> int:
        """How many of `count` creates the tenant may make now (a bucket that holds one second's worth, at least one create)."""
        now, most = self._clock.elapsed_s(), limits.creates_per_s
        if 0 < most < 1:
            most = 1.0
        level, at = self._tokens.get(tenant, (most, now))
        level = min(most, level + (now - at) * limits.creates_per_s)
        given = min(count, int(level))
        self._tokens[tenant] = (level - given, now)
        return given

    async def take_one(self, tenant: str) -> None:
        """Count one create: of a schedule, of a run by hand, of a backfill. Refused 429."""
        limits = await self.limits_of(tenant)
        if self._tally.waiting(tenant) >= limits.waiting_jobs:
            raise over("waiting_jobs", limits.waiting_jobs, 1.0)
        if not self.take_creates(tenant, limits, 1):
            raise over("creates_per_s", limits.creates_per_s, 1.0)

    def place(self, tenant: str, limits: Limits, fire_at: int, lane: Lane) -> str | None:
        """Count a job into its minute and second; the name of the quota that refuses it, or None."""
        minutes, seconds = self._minutes[tenant], self._seconds[tenant]
        minute, second = fire_at // 60_000, fire_at // 1000
        if self._tally.waiting(tenant) >= limits.waiting_jobs:
            return "waiting_jobs"
        if minutes.get(minute, 0) >= limits.jobs_per_minute_bucket:
            return "jobs_per_minute_bucket"
        if lane is Lane.PRECISE:
            if seconds.get(second, 0) >= limits.precise_per_s:
                return "precise_per_s"
            _count(seconds, second)
        _count(minutes, minute)
        return None

    def forget_past(self) -> None:
        """Drop counters of minutes and seconds that are over; called by a slow stage."""
        now = self._clock.now_ms()
        for counters, size in ((self._minutes, 60_000), (self._seconds, 1000)):
            for tenant in list(counters):
                counters[tenant] = {at: count for at, count in counters[tenant].items() if at >= now // size - 1}
                if not counters[tenant]:
                    del counters[tenant]

    def usage(self, tenant: str) -> dict[str, float]:
        """What a tenant uses now, by quota."""
        now = self._clock.now_ms()
        minutes, seconds = self._minutes.get(tenant, {}), self._seconds.get(tenant, {})
        return {
            "waiting_jobs": self._tally.waiting(tenant),
            "jobs_per_minute_bucket": minutes.get(now // 60_000, 0),
            "precise_per_s": seconds.get(now // 1000, 0),
        }

    async def limits(self, tenant: str) -> wire.Quotas:
        """A tenant's quotas as answers show them."""
        limits = await self.limits_of(tenant)
        return wire.Quotas(**{name: getattr(limits, name) for name in NAMES})


def _count(counter: dict[int, int], at: int) -> None:
    if at in counter or len(counter) < MOST_COUNTED:
        counter[at] = counter.get(at, 0) + 1


def over(quota: str, limit: float, retry_after_s: float) -> Refused:
    """The problem of a job that a quota refuses."""
    return Refused(
        429,
        "quota-exceeded",
        "Over quota",
        f"the tenant's quota {quota} ({limit:g}) is used up; come back later, spread the jobs or ask the operator for more",
        retry_after_s=retry_after_s,
        extra={"quota": quota},
    )
