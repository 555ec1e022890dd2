"""What the writer is asked: kinds of writes, requests that wait for their answers, and batches that are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tocsin.errors import TocsinError
from tocsin.store.sqlite.work import Work

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Raises:
    """Stands for "the request fails" where a kind has no answer for an item that cannot be written."""


RAISES = Raises()


@dataclass(frozen=True, eq=False)
class Kind(Generic[Item, Answer]):
    """A kind of write. `rank` 0 is served first; past `bound` queued rows it is refused (None: never); an item counts as
    `weight` rows; `refused` answers for an item that cannot be written."""

    name: str
    rank: int
    run: Callable[[Work, Sequence[Item]], list[Answer]]
    refused: Any
    bound: int | None
    batch: int = 500
    weight: int = 1


@dataclass(eq=False, slots=True)
class Request:
    """What one caller waits for. `taken` items have gone into batches, `answers` of them are committed."""

    kind: Kind[Any, Any]
    items: Sequence[Any]
    done: asyncio.Future[list[Any]]
    number: int
    taken: int = 0
    answers: list[Any] = field(default_factory=list)
    error: TocsinError | None = None


@dataclass(eq=False, slots=True)
class Batch:
    """Items of one kind that are written together, and whose they are."""

    kind: Kind[Any, Any]
    items: list[Any] = field(default_factory=list)
    parts: list[tuple[Request, int]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def split(self) -> list[Batch]:
        """Each request's part by itself."""
        at, parts = 0, []
        for request, count in self.parts:
            parts.append(Batch(self.kind, self.items[at : at + count], [(request, count)]))
            at += count
        return parts

    def settle(self, error: TocsinError | None) -> list[Request]:
        """Hand out what was committed, or why nothing was; the requests that are complete with it."""
        at, complete = 0, []
        for request, count in self.parts:
            if error is None:
                request.answers.extend(self.answers[at : at + count])
            elif request.error is None:
                request.error = error
            at += count
            if request.error is not None or len(request.answers) == len(request.items):
                complete.append(request)
        return complete
