"""Addresses of test ledgers, and stores that wait long for the write lock.

An address is a tuple of texts, so that it can be passed to a child process: a path, or the URL of
a PostgreSQL server and a schema.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from dpolicy.ledger.store import LedgerStore

#: Seconds to wait for the write lock: many processes share few cores.
LOCK_TIMEOUT = 300.0

Address = tuple[str, ...]


def new_address(location: Path | str) -> Address:
    """Return an unused address in a folder, or on the PostgreSQL server with a URL."""
    name = uuid4().hex
    return (str(location / name),) if isinstance(location, Path) else (location, f"s{name}")


def open_at(url: str, schema: str | None = None) -> LedgerStore:
    """Open the store of an address; import only the library that it needs."""
    if schema is None:
        from dpolicy.ledger.stores.sqlite import SqliteStore

        return SqliteStore(url, wait=LOCK_TIMEOUT)
    from dpolicy.ledger.stores.postgres import PostgresStore

    return PostgresStore(url, schema=schema, wait=LOCK_TIMEOUT)
