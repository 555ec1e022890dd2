"""The store in one SQLite file: WAL, `synchronous=FULL`, one thread that writes in groups, a few bounded readers.

This is the record of truth of the embedded shape, durable when answered. `writer.py` shares commits among requests; one
module per concern says what a batch of requests does to the rows; `sql/` and `migrations/` hold every statement. A crash
leaves whole groups or nothing; the file needs no repair.
"""

from tocsin.store.sqlite.examine import Examination, examine
from tocsin.store.sqlite.store import SqliteStore, open_store
from tocsin.store.sqlite.transfer import SqliteTransfer, open_transfer

__all__ = ["Examination", "SqliteStore", "SqliteTransfer", "examine", "open_store", "open_transfer"]
