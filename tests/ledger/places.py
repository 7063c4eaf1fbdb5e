"""The arguments of a child process → the store that they name."""

from __future__ import annotations

from dpolicy.ledger.store import LedgerStore

#: Seconds: so many processes on so few cores may have to wait for long.
PATIENCE = 300.0


def opened(where: str, schema: str | None = None) -> LedgerStore:
    """A path, or an address and a schema → a patient store; loads only what that needs."""
    if schema is None:
        from dpolicy.ledger.stores.sqlite import SqliteStore

        return SqliteStore(where, wait=PATIENCE)
    from dpolicy.ledger.stores.postgres import PostgresStore

    return PostgresStore(where, schema=schema, wait=PATIENCE)
