"""Store in a SQLite file: one writer across threads and processes; every commit is synced to disk.

    lock (`BEGIN IMMEDIATE`) → read new records → append → `COMMIT`, which returns after the sync

Readers use a separate connection and never wait for the writer. The store assumes that the disk
keeps data that it has confirmed as synced, and that it writes a sector of 512 bytes completely or
not at all.

While a store is open, no other code in the same process may open the file: closing it there would
drop the locks of the store (a property of POSIX locks).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from dpolicy.errors import InvariantBroken, LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.chain import Record, record_hash
from dpolicy.ledger.chain_reader import Head, advance_head, check_not_older, read_in_pages
from dpolicy.ledger.store import LogWriter
from dpolicy.ledger.stores.sqlite_setup import (
    connect_sqlite,
    flush,
    prepare_file,
    translate_sqlite_errors,
)
from dpolicy.ledger.write_lock import LOCK_TIMEOUT, StoreLock

_HEAD = "SELECT sequence, digest FROM head"
_LAST = "SELECT sequence, digest FROM record ORDER BY sequence DESC LIMIT 1"
_PAGE = "SELECT sequence, digest, payload FROM record WHERE sequence > ? ORDER BY sequence LIMIT ?"


class SqliteStore:
    """A ledger in one file, with two files of SQLite next to it; created if it does not exist."""

    def __init__(
        self, path: str | os.PathLike[str], *, wait: float = LOCK_TIMEOUT, vfs: str | None = None
    ) -> None:
        self._name = os.fspath(path)
        self._path = Path(path).resolve()
        self._log_path = Path(f"{self._path}-wal")
        self._wait, self._vfs = wait, vfs
        prepare_file(self._path, self._name)
        self._write_lock, self._read_lock = StoreLock(self._name, wait), StoreLock(self._name, wait)
        self._writer: apsw.Connection | None = self._connect()
        self._reader: apsw.Connection | None = self._connect()
        with translate_sqlite_errors(self._name):
            _read_head(self._reader)  # SQLite recovers the write-ahead log here
            flush(self._path)
            self._files = self._file_ids()

    @property
    def name(self) -> str:
        """Path as the caller wrote it."""
        return self._name

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        """Hold the write lock across all processes; commit when the block ends normally."""
        with self._write_lock.held():
            connection = self._begin()
            log = _SqliteLog(connection, self._name)
            try:
                with translate_sqlite_errors(self._name):
                    log.start()
                yield log
            except BaseException:
                self._roll_back(connection)
                raise
            finally:
                log.open = False
            self._commit(connection)

    def records_after(self, sequence: int) -> Iterator[Record]:
        """Return the durable records after a number."""
        return read_in_pages(self._fetch_page, sequence)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """Return the snapshot, or None if it is damaged or belongs to another ledger."""
        with self._read_lock.held(), translate_sqlite_errors(self._name):
            connection = self._require_open(self._reader)
            for row in connection.execute("SELECT sequence, digest, data FROM snapshot"):
                sequence, digest, data = row
                if _is_blob(data) and digest == _snapshot_hash(connection, sequence, data):
                    return sequence, data
        return None

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        """Replace the snapshot."""
        with self._write_lock.held():
            connection = self._begin()
            try:
                with translate_sqlite_errors(self._name):
                    check_not_older(_read_head(connection), sequence)
                    row = (sequence, _snapshot_hash(connection, sequence, data), data)
                    connection.execute("REPLACE INTO snapshot VALUES (1, ?, ?, ?)", row)
            except BaseException:
                self._roll_back(connection)
                raise
            self._commit(connection)

    def close(self) -> None:
        """Close the file. The last process to close it merges the write-ahead log into it."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                with translate_sqlite_errors(self._name):
                    connection.close()
        self._reader = self._writer = None

    def _connect(self) -> apsw.Connection:
        return connect_sqlite(self._path, self._name, wait=self._wait, vfs=self._vfs)

    def _require_open(self, connection: apsw.Connection | None) -> apsw.Connection:
        if connection is None:
            raise LedgerUnavailable(f"ledger `{self._name}` was closed")
        return connection

    def _fetch_page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        with self._read_lock.held(), translate_sqlite_errors(self._name):
            connection = self._require_open(self._reader)
            return _read_head(connection), _read_records(connection, sequence, limit)

    def _begin(self) -> apsw.Connection:
        connection = self._require_open(self._writer)
        with translate_sqlite_errors(self._name):
            if connection.in_transaction:  # an earlier rollback failed: reconnect
                connection.close(force=True)
                connection = self._writer = self._connect()
            connection.execute("BEGIN IMMEDIATE")
        try:
            self._check_in_place()
        except BaseException:
            self._roll_back(connection)
            raise
        return connection

    def _commit(self, connection: apsw.Connection) -> None:
        try:
            connection.execute("COMMIT")
            self._check_in_place()
        except (apsw.Error, LedgerUnavailable) as error:
            self._roll_back(connection)
            raise LedgerUnavailable(
                f"ledger `{self._name}` did not confirm a commit: {error}; "
                "the outcome is unknown\nhelp: retry with the same id"
            ) from error

    def _roll_back(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            return  # nothing was committed; `_begin` detects the open transaction and reconnects

    def _file_ids(self) -> tuple[tuple[int, int], ...]:
        """Return device and inode of the ledger file and its log."""
        stats = [self._path.stat(), self._log_path.stat()]
        return tuple((stat.st_dev, stat.st_ino) for stat in stats)

    def _check_in_place(self) -> None:
        """Raise `LedgerUnavailable` if the path names another file than the open one.

        SQLite would still write to a file that was moved away, and those records would be lost.
        """
        try:
            current: object = self._file_ids()
        except FileNotFoundError:
            current = None
        if current != self._files:
            raise LedgerUnavailable(
                f"the file of ledger `{self._name}` was moved or replaced while in use\n"
                "help: stop all processes that use it, restore it, then start them again"
            )


class _SqliteLog:
    """A log writer within one transaction."""

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._head = Head()
        self.open = True

    def start(self) -> None:
        """Read the head. Raise `LedgerDamaged` if it does not match the last record."""
        self._head = _read_head(self._connection)
        last = [Head(*row) for row in self._connection.execute(_LAST)] or [Head()]
        if last[0] != self._head:
            number = min(last[0].sequence, self._head.sequence)
            raise LedgerDamaged(f"record {number + 1} is missing, or record {number} was changed")

    def records_after(self, sequence: int) -> Iterator[Record]:
        if sequence == self._head.sequence:
            return iter(())
        return read_in_pages(self._fetch_page, sequence)

    def append(self, records: Sequence[Record]) -> None:
        self._check_open()
        head = advance_head(self._head, records)
        rows = [(record.sequence, record.digest, record.payload) for record in records]
        with translate_sqlite_errors(self._name):
            self._connection.executemany("INSERT INTO record VALUES (?, ?, ?)", rows)
        self._head = head

    def _fetch_page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        self._check_open()
        with translate_sqlite_errors(self._name):
            return self._head, _read_records(self._connection, sequence, limit)

    def _check_open(self) -> None:
        if not self.open:
            raise InvariantBroken("a log writer is used after its write block has ended")


def _read_head(connection: apsw.Connection) -> Head:
    for sequence, digest in connection.execute(_HEAD):
        if isinstance(sequence, int) and _is_blob(digest):
            return Head(sequence, digest)
    raise LedgerDamaged("the ledger has no head record")


def _read_records(connection: apsw.Connection, sequence: int, limit: int) -> Sequence[Record]:
    rows = connection.execute(_PAGE, (sequence, limit)).fetchall()
    return [_check_row(number, digest, payload) for number, digest, payload in rows]


def _check_row(number: object, digest: object, payload: object) -> Record:
    if isinstance(number, int) and isinstance(digest, bytes) and isinstance(payload, bytes):
        return Record(number, digest, payload)
    raise LedgerDamaged(f"record {number} is not stored as bytes")


def _snapshot_hash(connection: apsw.Connection, sequence: int, data: bytes) -> bytes:
    """Return the hash that ties a snapshot to the record that it was made at."""
    rows = connection.execute("SELECT digest FROM record WHERE sequence = ?", (sequence,))
    digests = [row[0] for row in rows if _is_blob(row[0])]
    return record_hash(digests[0] if digests else b"", sequence, data)


def _is_blob(value: object) -> bool:
    return isinstance(value, bytes)
