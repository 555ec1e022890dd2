"""How much of what could be tried a run tries: a share of it, or all with `make test-long`.

A share is not the same each time. Where it begins follows the seed of the run's random order, so that what one run leaves out
another one tries, and `--randomly-seed` makes a failed run again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import count

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "short")
# `thorough` is longer still, and looks elsewhere each time.
LONG = PROFILE in ("long", "thorough")


def examples(most: int) -> int:
    """So many examples of a property in a long run, a third of them in a short one."""
    return most if LONG else most // 3


def one_in(share: int) -> Iterator[int]:
    """0, 1, 2 … in a long run; in a short one each `share`-th of them, beginning with any of the first ones."""
    return count() if LONG else count(random.randrange(share), share)
