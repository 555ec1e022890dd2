"""Definitions that were written a moment ago, so that the claim of a job that is due at once need not read its body again.

Only what nobody has changed may be taken from here: a change of a job takes it out, and the claim uses it only where the job
is still at version 1. A change that keeps the version (a schedule's job that waits may be given another template) spoils it: a
create that is told late must not bring the old one back. What is not here (older jobs, later attempts, after a restart) is
read from the file.
"""

from __future__ import annotations

from tocsin.store.port import Change

SOON_MS = 600_000
MOST_BYTES = 32 * 1024 * 1024
MOST_SPOILED = 100_000


class Recent:
    """A bounded memory of definitions by job; the oldest are forgotten first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._docs: dict[str, str] = {}
        self._spoiled: dict[str, None] = {}
        self._most, self._bytes = most_bytes, 0

    def add(self, job_id: str, doc: str) -> None:
        """Remember a definition that was just written."""
        if job_id in self._spoiled:
            return
        self._docs[job_id] = doc
        self._bytes += len(doc)
        while self._bytes > self._most:
            self.take(next(iter(self._docs)))

    def take(self, job_id: str) -> str | None:
        """The definition of a job, which is forgotten with it."""
        doc = self._docs.pop(job_id, None)
        if doc is not None:
            self._bytes -= len(doc)
        return doc

    def change(self, change: Change) -> None:
        """A job is about to be changed."""
        before, after = change.before, change.after
        self.take(before.job_id)
        if after.version == before.version and after.definition is not before.definition:
            self._spoiled[before.job_id] = None
            if len(self._spoiled) > MOST_SPOILED:
                del self._spoiled[next(iter(self._spoiled))]
