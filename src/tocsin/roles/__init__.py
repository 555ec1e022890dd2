"""The composition root: which adapters stand behind the ports, and what a process of which role runs.

The only package that names concrete adapters (`adapters`). `build` puts one process together from its settings (`process`),
`serving` runs it; `access` makes the tokens that a process itself needs.
"""

from tocsin.roles.access import (
    DEV_SCOPES,
    DEV_TENANT,
    EXECUTOR_TENANT,
    EXECUTOR_TOKEN_ID,
    embedded_executor,
    executor_token,
    prepare_dev,
    token_row,
)
from tocsin.roles.adapters import examine_store, open_store
from tocsin.roles.process import Process, build

__all__ = [
    "DEV_SCOPES",
    "DEV_TENANT",
    "EXECUTOR_TENANT",
    "EXECUTOR_TOKEN_ID",
    "Process",
    "build",
    "embedded_executor",
    "examine_store",
    "executor_token",
    "open_store",
    "prepare_dev",
    "token_row",
]
