"""A file → a store: one writer over threads and processes, every commit synced to disk.

    lock (`BEGIN IMMEDIATE`) → catch up → append → `COMMIT`, which returns when the disk has it

Readers use a connection of their own and never wait. What is assumed: the disk keeps what it has
confirmed as synced, and writes sectors of 512 bytes wholly or not at all.

Do not open the file with anything else in the same process while a store is open: closing it
there would drop the locks (a property of POSIX).
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
from dpolicy.ledger.write_lock import LOCK_TIMEOUT, WriteLock

_HEAD = "SELECT sequence, digest FROM head"
_LAST = "SELECT sequence, digest FROM record ORDER BY sequence DESC LIMIT 1"
_PAGE = "SELECT sequence, digest, payload FROM record WHERE sequence > ? ORDER BY sequence LIMIT ?"


class SqliteStore:
    """A ledger in one file (and SQLite's two beside it), created if it does not exist."""

    def __init__(
        self, path: str | os.PathLike[str], *, wait: float = LOCK_TIMEOUT, vfs: str | None = None
    ) -> None:
        self._name = os.fspath(path)
        self._path = Path(path).resolve()
        self._log_path = Path(f"{self._path}-wal")
        self._wait, self._vfs = wait, vfs
        prepare_file(self._path, self._name)
        self._writers, self._readers = WriteLock(self._name, wait), WriteLock(self._name, wait)
        self._writer: apsw.Connection | None = self._connected()
        self._reader: apsw.Connection | None = self._connected()
        with translate_sqlite_errors(self._name):
            _head(self._reader)  # recovers the log, if there is one to recover
            flush(self._path)
            self._files = self._found()

    @property
    def name(self) -> str:
        """The path, as it was given."""
        return self._name

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        """Be the only writer over all processes; durable when the block ends normally."""
        with self._writers.held():
            connection = self._begun()
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
        """The durable records behind a number."""
        return read_in_pages(self._page, sequence)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """The snapshot, unless it is damaged or of another history."""
        with self._readers.held(), translate_sqlite_errors(self._name):
            connection = self._open(self._reader)
            for row in connection.execute("SELECT sequence, digest, data FROM snapshot"):
                sequence, digest, data = row
                if _is_blob(data) and digest == _seal(connection, sequence, data):
                    return sequence, data
        return None

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        """Replace the snapshot."""
        with self._writers.held():
            connection = self._begun()
            try:
                with translate_sqlite_errors(self._name):
                    check_not_older(_head(connection), sequence)
                    row = (sequence, _seal(connection, sequence, data), data)
                    connection.execute("REPLACE INTO snapshot VALUES (1, ?, ?, ?)", row)
            except BaseException:
                self._roll_back(connection)
                raise
            self._commit(connection)

    def close(self) -> None:
        """Let go of the file; the last to do so folds the log into it."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                with translate_sqlite_errors(self._name):
                    connection.close()
        self._reader = self._writer = None

    def _connected(self) -> apsw.Connection:
        return connect_sqlite(self._path, self._name, wait=self._wait, vfs=self._vfs)

    def _open(self, connection: apsw.Connection | None) -> apsw.Connection:
        if connection is None:
            raise LedgerUnavailable(f"the ledger `{self._name}` was closed")
        return connection

    def _page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        with self._readers.held(), translate_sqlite_errors(self._name):
            connection = self._open(self._reader)
            return _head(connection), _records(connection, sequence, limit)

    def _begun(self) -> apsw.Connection:
        connection = self._open(self._writer)
        with translate_sqlite_errors(self._name):
            if connection.in_transaction:  # a roll-back failed: start afresh
                connection.close(force=True)
                connection = self._writer = self._connected()
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
                f"the ledger `{self._name}` could not confirm a commit: {error}; "
                "the outcome is not known\nhelp: ask again with the same id"
            ) from error

    def _roll_back(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            return  # `_begun` notices, and what was written is not committed either way

    def _found(self) -> tuple[tuple[int, int], ...]:
        """Which files the ledger and its log are, whatever their names point to later."""
        stats = [self._path.stat(), self._log_path.stat()]
        return tuple((stat.st_dev, stat.st_ino) for stat in stats)

    def _check_in_place(self) -> None:
        """A file that was moved away still takes writes, and nobody would find them again."""
        try:
            found: object = self._found()
        except FileNotFoundError:
            found = None
        if found != self._files:
            raise LedgerUnavailable(
                f"the file of the ledger `{self._name}` was moved or replaced while in use\n"
                "help: stop every process that uses it before you restore it, then start again"
            )


class _SqliteLog:
    """The ledger while its transaction is open."""

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._head = Head()
        self.open = True

    def start(self) -> None:
        """Read the head, which must be the last record."""
        self._head = _head(self._connection)
        last = [Head(*row) for row in self._connection.execute(_LAST)] or [Head()]
        if last[0] != self._head:
            at = min(last[0].sequence, self._head.sequence)
            raise LedgerDamaged(f"record {at + 1} is missing, or record {at} was changed")

    def records_after(self, sequence: int) -> Iterator[Record]:
        if sequence == self._head.sequence:
            return iter(())
        return read_in_pages(self._page, sequence)

    def append(self, records: Sequence[Record]) -> None:
        self._check_open()
        head = advance_head(self._head, records)
        rows = [(record.sequence, record.digest, record.payload) for record in records]
        with translate_sqlite_errors(self._name):
            self._connection.executemany("INSERT INTO record VALUES (?, ?, ?)", rows)
        self._head = head

    def _page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        self._check_open()
        with translate_sqlite_errors(self._name):
            return self._head, _records(self._connection, sequence, limit)

    def _check_open(self) -> None:
        if not self.open:
            raise InvariantBroken("a ledger is used after its writing has ended")


def _head(connection: apsw.Connection) -> Head:
    for sequence, digest in connection.execute(_HEAD):
        if isinstance(sequence, int) and _is_blob(digest):
            return Head(sequence, digest)
    raise LedgerDamaged("the ledger does not say where it ends")


def _records(connection: apsw.Connection, sequence: int, limit: int) -> Sequence[Record]:
    rows = connection.execute(_PAGE, (sequence, limit)).fetchall()
    return [_record(number, digest, payload) for number, digest, payload in rows]


def _record(number: object, digest: object, payload: object) -> Record:
    if isinstance(number, int) and isinstance(digest, bytes) and isinstance(payload, bytes):
        return Record(number, digest, payload)
    raise LedgerDamaged(f"record {number} is not made of bytes")


def _seal(connection: apsw.Connection, sequence: int, data: bytes) -> bytes:
    """What ties a snapshot to the history that it is of."""
    found = connection.execute("SELECT digest FROM record WHERE sequence = ?", (sequence,))
    digests = [row[0] for row in found if _is_blob(row[0])]
    return record_hash(digests[0] if digests else b"", sequence, data)


def _is_blob(value: object) -> bool:
    return isinstance(value, bytes)
