"""The clock by which processes agree how long something lasts: the wall clock's reading, carried on by the elapsed clock.

A step of one machine's wall clock must neither free what is in hand nor keep it, but elapsed clocks of two machines have nothing
in common. So each process takes the wall clock as a beginning and counts on; a step is followed only when it has lasted a
minute: then it was no mistake, or the beginning was one.
"""

from __future__ import annotations

from tocsin.clock import Clock

_APART_MS = 100
_BELIEVE_S = 60.0


class SteadyClock:
    """The steady time of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = self._measured_ms()
        self._apart_since_s: float | None = None

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, as above."""
        elapsed_s = self._clock.elapsed_s()
        if abs(self._measured_ms() - self._offset_ms) <= _APART_MS:
            self._apart_since_s = None
        elif self._apart_since_s is None:
            self._apart_since_s = elapsed_s
        elif elapsed_s - self._apart_since_s >= _BELIEVE_S:
            self._offset_ms, self._apart_since_s = self._measured_ms(), None
        return round(elapsed_s * 1000) + self._offset_ms

    def _measured_ms(self) -> int:
        return self._clock.now_ms() - round(self._clock.elapsed_s() * 1000)
