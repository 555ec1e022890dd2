"""The store in PostgreSQL, for many processes at once: one home database, and more of them (shards) for ranges of partitions.

This is the record of truth of a fleet, durable when answered. Every condition is in the statement that writes, because others
write at the same time; `group.py` joins the requests of one process into batches; one module per concern says what a batch does
to the rows; `sql/` and `migrations/` hold every statement. A crash leaves whole transactions or nothing.
"""

from tocsin.store.postgres.store import PostgresStore, open_store, open_transfer
from tocsin.store.postgres.transfer import PostgresTransfer, has_store

__all__ = ["PostgresStore", "PostgresTransfer", "has_store", "open_store", "open_transfer"]
