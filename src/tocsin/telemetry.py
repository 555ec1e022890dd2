"""Metrics and logs. No label can grow without bound: no tenant, no queue, no job is one (figures of those are in the API).

| metric | kind | means |
|---|---|---|
| tocsin_jobs_total{event} | counter | steps in the lives of jobs: created, fired, claimed, succeeded, retried, died, … |
| tocsin_lateness_seconds{lane} | histogram | claimed_at less the time at which the attempt was due |
| tocsin_fire_lateness_seconds{lane} | histogram | fired less due |
| tocsin_stage_passes_total{stage}, tocsin_stage_failures_total{stage} | counter | passes of background stages |
| tocsin_recheck_total{found} | counter | jobs that the recheck looked at: offered, pushed, held; and timers below_floor |
| tocsin_near{what} | gauge | members due, ready, in hand, leases |
| tocsin_store_oldest_snapshot_seconds | gauge | how long ago the oldest open transaction of the store began |
| tocsin_near_bytes{what} | gauge | memory of the near tier's server: used, limit (0: none) |
| tocsin_near_lost_total | counter | times that the near tier's content was lost (restart, failover, eviction) and rebuilt |
| tocsin_near_not_told_total{what} | counter | commits that the near tier could not be told of: told again, or found by the recheck |
| tocsin_due_not_fired_seconds | gauge | how long the oldest due job of this node's partitions has not fired |
| tocsin_partitions_behind | gauge | owned partitions that are not rebuilt in the near tier yet |
| tocsin_clock_offset_seconds | gauge | what the store's clock shows more than this process's; beyond 0.25 it fires nothing |
| tocsin_canary_lateness_seconds | histogram | claimed less due of the canaries |
| tocsin_canary_overdue_seconds | gauge | by how much the oldest canary that has not come back is overdue |
| tocsin_canaries_lost_total | counter | canaries that never came back |
| tocsin_partitions_unreachable | gauge | partitions whose database cannot be used now; more than 0 only where there are several |
| tocsin_floor_age_seconds | gauge | how far the recheck is behind, worst partition |
| tocsin_reports_refused_total{why} | counter | late, repeated or forged reports of workers |
| tocsin_schedule_skips_total{reason} | counter | occurrences of schedules that did not run, by reason |
| tocsin_schedules{status} | gauge | schedules by status; `broken` above 0 needs somebody to look |
| tocsin_schedule_repairs_total{what} | counter | what the sweep of schedules had to mend or move |
| tocsin_zone_data_info{version} | gauge | 1 for the version of the zone data in use |
| tocsin_partitions_owned | gauge | partitions that this node may act for now; the sum over all nodes is the number of partitions |
| tocsin_sessions_lost_total | counter | sessions of this node that ended before it did: it hung, was cut off, or was revoked |
| tocsin_partition_moves_total{why} | counter | partitions that this node, as the coordinator, gave to another owner |
"""

from __future__ import annotations

import bisect
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry(auto_describe=True)
log: structlog.stdlib.BoundLogger = structlog.get_logger("tocsin")

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)


class BatchHistogram(Collector):
    """A histogram that takes whole batches: one call per batch of jobs, not one per job."""

    def __init__(self, name: str, text: str, label: str, values: Sequence[str]) -> None:
        self._name, self._text, self._label = name, text, label
        self._counts = {value: [0] * (len(BOUNDS_S) + 1) for value in values}
        self._sums = dict.fromkeys(values, 0.0)
        REGISTRY.register(self)

    def observe(self, value: str, seconds: Iterable[float]) -> None:
        """Count measurements under the label's `value`. What fell due together is late together: equal ones cost one look-up."""
        counts, total = self._counts[value], 0.0
        for measured, times in Counts(seconds).items():
            counts[bisect.bisect_left(BOUNDS_S, measured)] += times
            total += measured * times
        self._sums[value] += total

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=[self._label])
        for value, counts in self._counts.items():
            running, buckets = 0, []
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True):
                running += count
                buckets.append((bound, float(running)))
            family.add_metric([value], buckets, self._sums[value])
        yield family


JOBS = Counter("tocsin_jobs", "Steps in the lives of jobs.", ["event"], registry=REGISTRY)
PASSES = Counter("tocsin_stage_passes", "Passes of background stages.", ["stage"], registry=REGISTRY)
PASS_FAILURES = Counter("tocsin_stage_failures", "Passes that failed and are repeated.", ["stage"], registry=REGISTRY)
RECHECK = Counter("tocsin_recheck", "What the recheck had to mend.", ["found"], registry=REGISTRY)
REFUSED = Counter("tocsin_reports_refused", "Workers' calls that were refused.", ["why"], registry=REGISTRY)
NEAR = Gauge("tocsin_near", "What the near tier holds.", ["what"], registry=REGISTRY)
NOT_TOLD = Counter(
    "tocsin_near_not_told",
    "Commits that the near tier could not be told of; the recheck finds them.",
    ["what"],
    registry=REGISTRY,
)
GENERATIONS = Counter(
    "tocsin_near_lost",
    "Times that the content of the near tier was lost and rebuilt from the store.",
    registry=REGISTRY,
)
OLDEST_SNAPSHOT = Gauge(
    "tocsin_store_oldest_snapshot_seconds",
    "How long ago the oldest open transaction of the store began.",
    registry=REGISTRY,
)
OVERDUE = Gauge(
    "tocsin_due_not_fired_seconds",
    "How long the oldest due job of this node's partitions has not fired.",
    registry=REGISTRY,
)
NEAR_BYTES = Gauge("tocsin_near_bytes", "Memory of the near tier's server: used, limit.", ["what"], registry=REGISTRY)
PARTITIONS_BEHIND = Gauge(
    "tocsin_partitions_behind", "Partitions of this node that are not rebuilt in the near tier yet.", registry=REGISTRY
)
CLOCK_OFFSET = Gauge(
    "tocsin_clock_offset_seconds", "What the store's clock shows more than this process's.", registry=REGISTRY
)
CANARY_AGE = Gauge(
    "tocsin_canary_overdue_seconds",
    "By how much the oldest canary that has not come back is overdue.",
    registry=REGISTRY,
)
CANARIES_LOST = Counter("tocsin_canaries_lost", "Canaries that never came back.", registry=REGISTRY)
CANARY_LATENESS = BatchHistogram(
    "tocsin_canary_lateness_seconds", "Start less due time of canaries.", "lane", ("precise",)
)
UNREACHABLE = Gauge("tocsin_partitions_unreachable", "Partitions whose database cannot be used now.", registry=REGISTRY)
FLOOR_AGE = Gauge("tocsin_floor_age_seconds", "Age of the oldest bucket not rechecked.", registry=REGISTRY)
LATENESS = BatchHistogram("tocsin_lateness_seconds", "Start less due time.", "lane", ("precise", "flexible"))
FIRE_LATENESS = BatchHistogram("tocsin_fire_lateness_seconds", "Fire less due time.", "lane", ("precise", "flexible"))

SCHEDULE_SKIPS = Counter("tocsin_schedule_skips", "Occurrences that did not run.", ["reason"], registry=REGISTRY)
SCHEDULES = Gauge("tocsin_schedules", "Schedules by status.", ["status"], registry=REGISTRY)
SCHEDULE_REPAIRS = Counter("tocsin_schedule_repairs", "What the sweep of schedules did.", ["what"], registry=REGISTRY)
ZONE_DATA = Gauge("tocsin_zone_data_info", "The zone data in use.", ["version"], registry=REGISTRY)
PARTITIONS_OWNED = Gauge("tocsin_partitions_owned", "Partitions that this node may act for.", registry=REGISTRY)
SESSIONS_LOST = Counter("tocsin_sessions_lost", "Sessions that ended before their node did.", registry=REGISTRY)
PARTITION_MOVES = Counter("tocsin_partition_moves", "Partitions given to another owner.", ["why"], registry=REGISTRY)

CREATED, REPLAYED = JOBS.labels("created"), JOBS.labels("replayed")
FIRED, VOIDED, PARKED, UNPARKED = (JOBS.labels(x) for x in ("fired", "void", "parked", "unparked"))
CLAIMED, SUCCEEDED, RETRIED, DIED = (JOBS.labels(x) for x in ("claimed", "succeeded", "retried", "died"))
RELEASED, CANCELLED, SKIPPED, LOST = (JOBS.labels(x) for x in ("released", "cancelled", "skipped", "lost"))
REDRIVEN, DISCARDED = JOBS.labels("redriven"), JOBS.labels("discarded")


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)


def set_up_logs(fmt: str = "text", level: str = "info") -> None:
    """Send logs to standard error, as lines for people (`text`) or JSON objects (`json`)."""
    import logging
    import sys

    chain: list[structlog.types.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # As plain text: a renderer of its own would print local variables, and tokens with them.
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.types.Processor = structlog.processors.JSONRenderer() if fmt == "json" else _line
    structlog.configure(
        processors=[*chain, renderer],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=False,
    )


def _line(_: object, __: str, event: structlog.types.EventDict) -> str:
    """A log line for people: time, level, what happened, then the rest as name=value."""
    at, level, what = event.pop("timestamp"), event.pop("level"), event.pop("event")
    trace = event.pop("exception", "")
    rest = " ".join(f"{name}={value!r}" for name, value in event.items())
    return f"{at} {level:8} {what} {rest}".rstrip() + (f"\n{trace}" if trace else "")
