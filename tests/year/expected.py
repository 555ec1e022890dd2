"""What must become of every occurrence of an almanac, told by the model's timing alone as the year goes by.

While a process runs, each instant's occurrences run. What falls due while none does is looked at when one is back: a single
one of a schedule is only late and runs; of several the policy says which run, and the rest is one skip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from tests.year.almanac import CATCH_UP, Entry


@dataclass(frozen=True, slots=True, order=True)
class Skipped:
    """A range of occurrences that do not run."""

    first: int
    last: int
    count: int
    reason: str


@dataclass(slots=True)
class Course:
    """What has become of one schedule so far."""

    entry: Entry
    next_at: int
    runs: list[int] = field(default_factory=list)
    skips: list[Skipped] = field(default_factory=list)


class Expected:
    """The courses of all schedules, and when the next one of them is due."""

    def __init__(self, entries: Iterable[Entry], begin: int) -> None:
        self.courses = [Course(entry, _next(entry, begin)) for entry in entries]
        self._queue = [(course.next_at, number) for number, course in enumerate(self.courses)]
        heapify(self._queue)

    @property
    def next_at(self) -> int:
        """The next instant at which any schedule is due."""
        return self._queue[0][0]

    def due(self, until: int) -> None:
        """Somebody has looked at all that was due up to that instant, none of it later than its successor."""
        while self._queue[0][0] <= until:
            at, number = heappop(self._queue)
            course = self.courses[number]
            course.runs.append(at)
            self._go_on(number, at)

    def outage(self, until: int, undecided: Collection[str]) -> None:
        """Nobody has looked from the next instant on, up to now. Of the schedules that are due at the very instant at which the
        process died, those that are `undecided` had not moved."""
        died = self.next_at
        while self._queue[0][0] <= until:
            at, number = heappop(self._queue)
            course = self.courses[number]
            if at == died and course.entry.name not in undecided:
                course.runs.append(at)
                self._go_on(number, at)
                continue
            last = self._missed(course, at, until)
            self._go_on(number, last)

    def _missed(self, course: Course, first: int, until: int) -> int:
        """Decide about the occurrences from `first` to `until`; the newest of them."""
        timing = course.entry.timing
        newest = timing.last(until + 1)
        assert newest is not None, "the first one is one"
        if newest.at == first:
            course.runs.append(first)
            return first
        runs = [newest.at]
        match course.entry.policy:
            case "skip":
                runs, reason = [], "missed"
            case "run_latest":
                reason = "missed"
            case "run_all":
                reason = "catch_up_limit"
                while len(runs) < CATCH_UP and runs[0] > first:
                    before = timing.last(runs[0])
                    assert before is not None, "the first one is one"
                    runs.insert(0, before.at)
        if not runs or runs[0] > first:
            last = newest.at if not runs else timing.last(runs[0]).at  # type: ignore[union-attr]
            self._skip(course, Skipped(first, last, timing.count(first - 1, last), reason))
        course.runs += runs
        return newest.at

    def _skip(self, course: Course, skip: Skipped) -> None:
        """A skip that follows right on the last one makes that one longer."""
        before = course.skips[-1] if course.skips else None
        if before is not None and not any(at > before.last for at in course.runs[-1:]):
            course.skips[-1] = Skipped(before.first, skip.last, before.count + skip.count, skip.reason)
        else:
            course.skips.append(skip)

    def _go_on(self, number: int, after: int) -> None:
        course = self.courses[number]
        course.next_at = _next(course.entry, after)
        heappush(self._queue, (course.next_at, number))


def _next(entry: Entry, after: int) -> int:
    run = entry.timing.next(after)
    assert run is not None, "no schedule of the almanac ends"
    return run.at
