"""An address → the store that it names."""

from __future__ import annotations

from importlib import import_module

from dpolicy.ledger.memory import MemoryStore
from dpolicy.ledger.store import Store


def open_store(where: str) -> Store:
    """`postgresql://…` → PostgreSQL; `:memory:` → this process; anything else → a file."""
    if where == ":memory:":
        return MemoryStore()
    # Each store brings a library of its own, which the others should not have to load.
    if where.startswith(("postgresql://", "postgres://")):
        store: Store = import_module("dpolicy.ledger.postgres").PostgresStore(where)
    else:
        store = import_module("dpolicy.ledger.sqlite").SqliteStore(where)
    return store
