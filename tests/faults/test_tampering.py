"""A flipped byte, or a changed, deleted, moved or truncated row: reading reports the record."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import psycopg
import pytest
from tests.ledger.postgres_servers import PostgresServer
from tests.ledger.records import chain_records, last_head, seeded_random, verify_chain
from tests.ledger.store_access import Address, new_address, open_at

from dpolicy.errors import LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.chain import Record
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.sqlite import SqliteStore

SHARES = 2


def write_records(store: LedgerStore, number: int = 9) -> list[Record]:
    """Append records to an empty ledger."""
    with store.open_for_writing() as log:
        made = chain_records(
            last_head([]), [b"record %d: " % n + bytes(range(n, n + 90)) for n in range(number)]
        )
        log.append(made)
    return made


def read(path: Path) -> list[Record] | None:
    """Return the records of a file, or None if the store refuses it."""
    try:
        store = SqliteStore(path)
    except (LedgerDamaged, LedgerUnavailable):
        return None
    try:
        return verify_chain(store.records_after(0))
    except (LedgerDamaged, LedgerUnavailable):
        return None
    finally:
        store.close()


@pytest.mark.parametrize("share", range(SHARES))
def test_a_flipped_byte_is_detected_or_harmless(memory_folder: Path, share: int) -> None:
    generator = seeded_random(f"flips-{share}")
    path = memory_folder / "ledger.db"
    store = SqliteStore(path)
    made = write_records(store)
    store.save_snapshot(9, b"snapshot")
    store.close()
    whole = path.read_bytes()
    covered = {
        at
        for record in made
        for part in (record.digest, record.payload)
        for match in re.finditer(re.escape(part), whole)
        for at in range(*match.span())
    }
    assert len(covered) >= sum(32 + len(record.payload) for record in made)
    detected = 0
    for at in range(share, len(whole), SHARES):
        for old in memory_folder.glob("ledger.db*"):
            old.unlink()
        mask = generator.randrange(1, 256)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
        records = read(path)
        assert records is None or records == made, f"byte {at} with {mask} changed the records"
        assert records is None or at not in covered, f"byte {at} with {mask} was not detected"
        detected += records is None
    print(f"{len(whole) // SHARES} bytes flipped, {detected} detected, the others harmless")
    assert detected


def test_a_truncated_file_is_detected_or_harmless(memory_folder: Path) -> None:
    path = memory_folder / "ledger.db"
    store = SqliteStore(path)
    made = write_records(store)
    store.close()
    whole = path.read_bytes()
    for size in range(0, len(whole), 61):
        path.write_bytes(whole[:size])
        assert read(path) in (None, made)
    path.write_bytes(whole[: len(whole) // 2])
    assert read(path) is None
    path.write_bytes(b"")
    with pytest.raises(LedgerDamaged, match="an empty file"):
        SqliteStore(path)


TAMPERING = {
    "UPDATE record SET payload = digest WHERE sequence = 4": "hash mismatch at record 4:",
    "UPDATE record SET digest = (SELECT digest FROM head) WHERE sequence = 4": (
        "hash mismatch at record 4:"
    ),
    "DELETE FROM record WHERE sequence = 1": "record 1 is missing",
    "DELETE FROM record WHERE sequence = 5": "record 5 is missing",
    "DELETE FROM record WHERE sequence = 9": "record 9 is missing",
    "DELETE FROM record WHERE sequence > 6": "record 7 is missing",
    "DELETE FROM record": "record 1 is missing",
    "UPDATE record SET sequence = 0 - sequence WHERE sequence IN (3, 4);"
    "UPDATE record SET sequence = 7 + sequence WHERE sequence IN (0-3, 0-4)": (
        "hash mismatch at record 3:"
    ),
    "DELETE FROM record WHERE sequence > 6; UPDATE head SET sequence = 6": "record 6 ",
    "DELETE FROM head": "no head record",
    "UPDATE head SET sequence = 8": "record 8 ",
    "UPDATE head SET sequence = 12": "record 10 is missing",
}


@pytest.mark.parametrize("statements", TAMPERING)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_changes_in_sql_are_detected(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, statements: str
) -> None:
    address = new_address(tmp_path)
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = new_address(server.url)
    store = open_at(*address)
    write_records(store)
    store.close()
    (_tamper_sqlite if kind == "sqlite" else _tamper_postgres)(address, statements)
    with pytest.raises(LedgerDamaged, match=TAMPERING[statements]):
        again = open_at(*address)
        try:
            verify_chain(again.records_after(0))
        finally:
            again.close()


def test_a_reader_that_has_read_more_detects_an_older_copy(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    store = SqliteStore(path)
    made = write_records(store)
    store.close()
    older = path.read_bytes()
    store = SqliteStore(path)
    with store.open_for_writing() as log:
        log.append(chain_records(last_head(made), [b"lost"]))
    store.close()
    path.write_bytes(older)
    store = SqliteStore(path)
    with pytest.raises(LedgerDamaged, match=r"record 10 is missing.*older copy"):
        list(store.records_after(10))
    store.close()


def _tamper_sqlite(address: Address, statements: str) -> None:
    connection = apsw.Connection(address[0])
    triggers = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type='trigger'")
    ]
    for trigger in triggers:
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(statements).fetchall()
    connection.close()


def _tamper_postgres(address: Address, statements: str) -> None:
    url, schema = address
    with psycopg.connect(url, options=f"-c search_path={schema}") as connection:
        connection.execute("SET session_replication_role = replica")  # no triggers
        for statement in statements.split(";"):
            connection.execute(statement.encode())
