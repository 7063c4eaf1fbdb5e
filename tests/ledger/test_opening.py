"""Addresses of ledgers and the stores that they open."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ledger.postgres_servers import PostgresServer

from dpolicy.errors import LedgerUnavailable
from dpolicy.ledger.store_address import open_existing, open_store
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.ledger.stores.postgres import PostgresStore
from dpolicy.ledger.stores.sqlite import SqliteStore


def test_addresses(tmp_path: Path, postgres: PostgresServer) -> None:
    path = str(tmp_path / "ledger.db")
    other = postgres.url.replace("postgresql://", "postgres://")
    kinds = {":memory:": MemoryStore, path: SqliteStore}
    for address, kind in {**kinds, postgres.url: PostgresStore, other: PostgresStore}.items():
        store = open_store(address)
        assert isinstance(store, kind)
        assert list(store.records_after(0)) == []
        store.close()


def test_a_path_without_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with pytest.raises(
        LedgerUnavailable,
        match=r"there is no ledger .*\nhelp: check the path; `dpolicy apply` creates",
    ):
        open_existing(str(path))
    assert not path.exists()
    open_store(str(path)).close()
    open_existing(str(path)).close()
    open_existing(":memory:").close()
