"""Jobs in hand: popped for a request whose claim is being written, and what was claimed for requests that may come again.

A request that dies between pop and settle leaves its jobs here; ten seconds later they go back into their lines. The time is
the elapsed clock's: a step of the wall clock neither frees nor keeps them. Requests and answers are both in the order of
their time, so only the first is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.model.timer import Due

# Answers are kept for a minute but no more than for so many jobs: ten seconds of claims at 25,000 jobs a second.
REMEMBER_JOBS = 250_000


@dataclass(slots=True)
class _Hand:
    dues: list[Due]
    until_s: float


@dataclass(slots=True)
class _Answer:
    claimed: tuple[tuple[str, int], ...]
    until_s: float


class Hands:
    """In-hand jobs by request, and the answers to requests that were settled."""

    def __init__(self, in_hand_s: float, remember_s: float) -> None:
        self._in_hand_s = in_hand_s
        self._remember_s = remember_s
        self._hands: dict[str, _Hand] = {}
        self._answers: dict[str, _Answer] = {}
        self._answered_jobs = 0
        self.jobs: dict[str, Due] = {}

    def __len__(self) -> int:
        return len(self.jobs)

    def give(self, request_id: str, dues: list[Due], elapsed_s: float) -> None:
        """These jobs are now in the request's hand."""
        self._hands[request_id] = _Hand(dues, elapsed_s + self._in_hand_s)
        jobs = self.jobs
        for due in dues:
            jobs[due[1]] = due

    def of(self, request_id: str) -> list[Due] | None:
        """What the request has in hand; None: nothing."""
        hand = self._hands.get(request_id)
        return hand.dues if hand is not None else None

    def answer(self, request_id: str) -> tuple[tuple[str, int], ...] | None:
        """What a settled request got."""
        answer = self._answers.get(request_id)
        return answer.claimed if answer is not None else None

    def open(self, request_id: str) -> list[Due] | None:
        """Empty the request's hand; answers what was in it, less what was removed. None: there was no such hand."""
        hand = self._hands.pop(request_id, None)
        return None if hand is None else self._release(hand)

    def overdue(self, elapsed_s: float) -> list[Due]:
        """Empty the hands that were not settled in time."""
        back: list[Due] = []
        hands = self._hands
        while hands:
            request_id = next(iter(hands))
            if hands[request_id].until_s > elapsed_s:
                break
            back += self._release(hands.pop(request_id))
        return back

    def remember(self, request_id: str, claimed: Sequence[tuple[str, int]], elapsed_s: float) -> None:
        """Keep an answer for a repeat of the request."""
        before = self._answers.pop(request_id, None)
        if before is not None:
            self._answered_jobs -= 1 + len(before.claimed)
        self._answers[request_id] = _Answer(tuple(claimed), elapsed_s + self._remember_s)
        self._answered_jobs += 1 + len(claimed)
        self.forget_old(elapsed_s)

    def forget_old(self, elapsed_s: float) -> None:
        """Forget answers that are too old or too many."""
        answers = self._answers
        while answers:
            request_id = next(iter(answers))
            if self._answered_jobs <= REMEMBER_JOBS and answers[request_id].until_s > elapsed_s:
                break
            self._answered_jobs -= 1 + len(answers.pop(request_id).claimed)

    def _release(self, hand: _Hand) -> list[Due]:
        jobs = self.jobs
        released = []
        for due in hand.dues:
            have = jobs.pop(due[1], None)
            if have is due:
                released.append(due)
            elif have is not None:
                jobs[due[1]] = have
        return released
