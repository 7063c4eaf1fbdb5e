"""Open the store of a ledger address."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from dpolicy.errors import LedgerUnavailable
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore

_SERVERS = ("postgresql://", "postgres://")


def open_store(address: str) -> LedgerStore:
    """Open a PostgreSQL ledger (`postgresql://…`), one in memory (`:memory:`), or a SQLite file.

    A ledger that does not exist is created.
    """
    if address == ":memory:":
        return MemoryStore()
    # Each store needs a library that the others should not load.
    if not address.startswith(_SERVERS):
        store: LedgerStore = import_module("dpolicy.ledger.stores.sqlite").SqliteStore(address)
        return store
    try:
        module = import_module("dpolicy.ledger.stores.postgres")
    except ImportError as error:
        raise LedgerUnavailable(
            "a ledger in PostgreSQL needs `psycopg`\nhelp: pip install 'dpolicy[postgres]'"
        ) from error
    server: LedgerStore = module.PostgresStore(address)
    return server


def open_existing(address: str) -> LedgerStore:
    """Open a store like `open_store`, but raise `LedgerUnavailable` if a ledger file is missing."""
    if address != ":memory:" and not address.startswith(_SERVERS) and not Path(address).exists():
        raise LedgerUnavailable(
            f"there is no ledger `{address}`\n"
            "help: check the path; `dpolicy apply` creates a new ledger"
        )
    return open_store(address)
