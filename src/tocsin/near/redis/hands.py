"""In hand: what a claim has popped and not yet settled, and what requests were given that may come again.

A hand is in the tags that its jobs came from: a worker's in its queue's, the executor's in several. This process remembers
which, since it is the one that settles; a request that it does not know any more is looked for in all tags. A hand that
nobody settles goes back after ten seconds, by whoever next pops in that tag or counts what is there: the executor's claims and
the figures look at all tags, so the hands of queues that nobody asks for are emptied as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from tocsin.model.timer import Due
from tocsin.near.port import IN_HAND_MS, REMEMBER_REQUEST_MS, Pop, Popped
from tocsin.near.redis.keys import Keys
from tocsin.near.redis.lines import place_of
from tocsin.near.redis.members import due_of
from tocsin.near.redis.programs import LineScript, Programs
from tocsin.near.redis.scripts import Call
from tocsin.near.redis.waits import Waits

# Answers are kept for a minute but no more in one tag than for so many jobs: ten seconds of claims at 25,000 jobs a second.
REMEMBER_JOBS = 250_000
_REQUESTS_KEPT = 10_000
_POP = LineScript("lines_pop")
_SETTLE = LineScript("lines_settle")
_UNPOP = LineScript("lines_unpop")


class Hands:
    """Pops of tasks, and what becomes of all pops."""

    def __init__(self, programs: Programs, keys: Keys, waits: Waits) -> None:
        self._programs, self._keys, self._waits = programs, keys, waits
        self._tags: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    async def pop(self, wish: Pop) -> Popped:
        """Take tasks of one queue for a request; see the port."""
        tenant, queue = wish.tenant or "", wish.queue or ""
        tag = self._keys.line_tag(tenant, queue)
        kinds = ("all",) if wish.handlers is None else ("these", *wish.handlers)
        until = self._programs.steady.now_ms() + IN_HAND_MS
        what, callbacks, *rest = await self._programs.run_one(
            _POP, tag, wish.request_id, until, wish.most, place_of(tenant, queue), *kinds, now_ms=wish.now_ms
        )
        await self._waits.wake_callbacks({tag: callbacks})
        if what == "ASK":
            return Popped(dues=[], ask=((tenant, queue),))
        if what == "ANSWER":
            return Popped(dues=[], repeated=True, attempts=attempts_of(rest[0]))
        dues = dues_of(rest)
        if dues:
            self.note(wish.request_id, (tag,))
        return Popped(dues=dues, again=what == "HAND")

    def note(self, request_id: str, tags: tuple[str, ...]) -> None:
        """The request has jobs in hand in these tags."""
        self._tags[request_id] = tags
        self._tags.move_to_end(request_id)
        if len(self._tags) > _REQUESTS_KEPT:
            self._tags.popitem(last=False)

    async def settle(self, request_id: str, claimed: Sequence[tuple[str, int]]) -> None:
        """The request's claim is written. What it was given is remembered in its first tag, or where its hand is found."""
        known = self._tags.get(request_id)
        until = self._programs.steady.now_ms() + REMEMBER_REQUEST_MS
        flat = [part for pair in claimed for part in pair]
        await self._in_tags(
            request_id,
            lambda tag: self._programs.call(
                _SETTLE,
                tag,
                request_id,
                until,
                REMEMBER_JOBS,
                "held" if known is None else "yes" if tag == known[0] else "no",
                *flat,
            ),
        )

    async def unpop(self, request_id: str) -> None:
        """Put a request's jobs back in line."""
        await self._in_tags(request_id, lambda tag: self._programs.call(_UNPOP, tag, request_id))

    async def _in_tags(self, request_id: str, call: Callable[[str], Call]) -> None:
        """End a request's hand wherever it is; a call that fails may be repeated."""
        tags = self._tags.get(request_id, self._keys.line_tags)
        back = await self._programs.run([call(tag) for tag in tags])
        self._tags.pop(request_id, None)
        await self._waits.wake_callbacks(dict(zip(tags, back, strict=True)))


def dues_of(flat: Sequence[str]) -> list[Due]:
    """Jobs and members by turns."""
    return [due_of(job_id, text) for job_id, text in zip(flat[::2], flat[1::2], strict=True)]


def attempts_of(text: str) -> tuple[tuple[str, int], ...]:
    """An answer as the programs keep it: a number, then jobs and attempts by turns."""
    _, *flat = text.split(" ")
    return tuple((job_id, int(attempt)) for job_id, attempt in zip(flat[::2], flat[1::2], strict=True))
