"""An address → the store that it names."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from dpolicy.errors import LedgerUnavailable
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore

_SERVERS = ("postgresql://", "postgres://")


def open_store(where: str) -> LedgerStore:
    """`postgresql://…` → PostgreSQL; `:memory:` → this process; anything else → a file."""
    if where == ":memory:":
        return MemoryStore()
    # Each store brings a library of its own, which the others should not have to load.
    if not where.startswith(_SERVERS):
        store: LedgerStore = import_module("dpolicy.ledger.stores.sqlite").SqliteStore(where)
        return store
    try:
        module = import_module("dpolicy.ledger.stores.postgres")
    except ImportError as error:
        raise LedgerUnavailable(
            "a ledger in PostgreSQL needs `psycopg`\nhelp: pip install 'dpolicy[postgres]'"
        ) from error
    server: LedgerStore = module.PostgresStore(where)
    return server


def open_existing(where: str) -> LedgerStore:
    """The same, but a file must be there: for those who only look, or mistype."""
    if where != ":memory:" and not where.startswith(_SERVERS) and not Path(where).exists():
        raise LedgerUnavailable(
            f"there is no ledger `{where}`\nhelp: check the path; `dpolicy apply` makes a new one"
        )
    return open_store(where)
