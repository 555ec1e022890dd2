"""How long to wait before asking a server again: full jitter under a doubling cap, so that no fleet returns at once."""

from __future__ import annotations

from tocsin.clock import Entropy


class Backoff:
    """The pauses of one caller. `next_s` after each failure, `reset` after each success."""

    def __init__(self, entropy: Entropy, *, first_s: float = 0.25, cap_s: float = 15.0) -> None:
        self._entropy = entropy
        self._first_s, self._cap_s = first_s, cap_s
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The pause before the next try: random in [0, min(cap, first x 2^failures)], but no less than `at_least_s`."""
        ceiling = min(self._cap_s, self._first_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        # Never quite zero: a server that fails at once must not be asked in a tight loop.
        return max(at_least_s, 0.02, ceiling * self._entropy.uniform())

    def reset(self) -> None:
        self.failures = 0
