"""The registry in PostgreSQL."""

from tocsin.lease.postgres.registry import PostgresRegistry, open_registry

__all__ = ["PostgresRegistry", "open_registry"]
