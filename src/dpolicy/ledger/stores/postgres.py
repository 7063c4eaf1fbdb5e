"""Store in a PostgreSQL database: any number of decision points share one log.

    lock the head row → read new records → append → commit, which returns after the server's sync

The lock is a row lock, so it ends with its transaction, also behind a connection pooler. Each
transaction checks that commits are durable. If a commit gets no response, its outcome is unknown
and the error reports that; a retry with the same id returns the recorded decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from psycopg import Error, OperationalError, errors, sql
from psycopg.errors import Diagnostic

from dpolicy.errors import InvariantBroken, LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.chain import Record, record_hash
from dpolicy.ledger.chain_reader import Head, advance_head, check_not_older, read_in_pages
from dpolicy.ledger.store import LogWriter
from dpolicy.ledger.stores.postgres_setup import (
    Connection,
    check_commit,
    connect_postgres,
    ensure_schema,
    parse_address,
    redact_message,
    translate_postgres_errors,
)
from dpolicy.ledger.write_lock import LOCK_TIMEOUT, StoreLock

_T = TypeVar("_T")


class PostgresStore:
    """A ledger in one schema of a database; created if it does not exist."""

    def __init__(self, url: str, *, schema: str = "dpolicy", wait: float = LOCK_TIMEOUT) -> None:
        self._url, server = parse_address(url)
        self._name = server if schema == "dpolicy" else f"{server}#{schema}"
        self._wait = wait
        self._sql = _Statements(schema)
        self._write_lock, self._read_lock = StoreLock(self._name, wait), StoreLock(self._name, wait)
        self._closed = False
        self._warnings: list[str] = []
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        connection = self._writing_connection()
        try:
            with translate_postgres_errors(self._url, self._name):
                ensure_schema(connection, schema, self._name)
        except BaseException:
            connection.close()
            raise

    @property
    def name(self) -> str:
        """Address without a password."""
        return self._name

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        """Hold the write lock across all machines; commit when the block ends normally."""
        with self._write_lock.held(), self._transaction() as (connection, head):
            log = _PostgresLog(connection, head, self._sql, self._translate_errors)
            try:
                yield log
            finally:
                log.open = False

    def records_after(self, sequence: int) -> Iterator[Record]:
        """Return the durable records after a number."""
        return read_in_pages(self._fetch_page, sequence)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """Return the snapshot, or None if it is damaged or belongs to another ledger."""
        row = self._read(lambda c: c.execute(self._sql.load, binary=True).fetchone())
        if row is None:
            return None
        sequence, snapshot_hash, data, digest = row
        expected = record_hash(digest or b"", sequence, data)
        return (sequence, data) if snapshot_hash == expected else None

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        """Replace the snapshot."""
        with self._write_lock.held(), self._transaction() as (connection, head):
            check_not_older(head, sequence)
            with self._translate_errors():
                row = connection.execute(self._sql.digest, (sequence,)).fetchone()
                snapshot_hash = record_hash(row[0] if row else b"", sequence, data)
                connection.execute(self._sql.save, (sequence, snapshot_hash, data))

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        with translate_postgres_errors(self._url, self._name):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Connection, Head]]:
        with self._translate_errors():
            try:
                connection, head = self._lock_head()
            except errors.LockNotAvailable:
                raise
            except OperationalError:
                # The server restarted or closed the connection. Nothing was written: retry once.
                self._drop_writer()
                connection, head = self._lock_head()
        try:
            yield connection, head
        except BaseException:
            self._roll_back(connection)
            raise
        self._commit(connection)

    def _lock_head(self) -> tuple[Connection, Head]:
        """Begin a transaction and lock the head row. If this raises, nothing was written."""
        connection = self._writing_connection()
        try:
            with connection.pipeline():
                lock = connection.execute(self._sql.lock, binary=True)
                last = connection.execute(self._sql.last, binary=True)
            row = lock.fetchone()
            if row is None:
                raise LedgerDamaged(f"ledger `{self._name}` has no head record")
            sequence, digest, synchronous_commit, standby_names = row
            check_commit(synchronous_commit, standby_names, name=self._name)
            _check_last(Head(sequence, digest), Head(*(last.fetchone() or ())))
        except BaseException:
            self._roll_back(connection)
            raise
        return connection, Head(sequence, digest)

    def _commit(self, connection: Connection) -> None:
        self._warnings.clear()
        try:
            connection.commit()
        except Error as error:
            self._drop_writer()
            raise self._unknown_outcome_error(redact_message(error, self._url)) from error
        if self._warnings:  # the server stopped waiting for its standbys
            raise self._unknown_outcome_error(" ".join(self._warnings[0].split()))

    def _unknown_outcome_error(self, reason: str) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"ledger `{self._name}` did not confirm a commit: {reason}; "
            "the outcome is unknown\nhelp: retry with the same id"
        )

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except Error:
            self._drop_writer()

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _writing_connection(self) -> Connection:
        if self._writer is None or self._writer.closed:
            self._writer = self._connect()
            self._writer.add_notice_handler(self._collect_warning)
        return self._writer

    def _collect_warning(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "a warning")

    def _connect(self) -> Connection:
        if self._closed:
            raise LedgerUnavailable(f"ledger `{self._name}` was closed")
        return connect_postgres(self._url, self._name, wait=self._wait)

    def _fetch_page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        return self._read(lambda c: _fetch_records(c, self._sql, sequence, limit))

    def _read(self, query: Callable[[Connection], _T]) -> _T:
        """Run a read-only query; retry once if the connection was lost."""
        with self._read_lock.held(), self._translate_errors():
            try:
                return query(self._reading_connection())
            except OperationalError:
                if self._reader is not None:
                    self._reader.close()
                return query(self._reading_connection())

    def _reading_connection(self) -> Connection:
        if self._reader is None or self._reader.closed:
            self._reader = self._connect()
            self._reader.autocommit = True
        return self._reader


class _Statements:
    """SQL statements for one schema."""

    def __init__(self, schema: str) -> None:
        name = sql.Identifier(schema)
        self.lock = sql.SQL(
            "SELECT sequence, digest, current_setting('synchronous_commit'), "
            "current_setting('synchronous_standby_names') FROM {}.head FOR UPDATE"
        ).format(name)
        self.last = sql.SQL(
            "SELECT sequence, digest FROM {}.record ORDER BY sequence DESC LIMIT 1"
        ).format(name)
        self.page = sql.SQL(
            "SELECT h.sequence, h.digest, r.sequence, r.digest, r.payload FROM {0}.head AS h "
            "LEFT JOIN LATERAL (SELECT * FROM {0}.record WHERE sequence > %s "
            "ORDER BY sequence LIMIT %s) AS r ON true ORDER BY r.sequence"
        ).format(name)
        self.insert = sql.SQL(
            "INSERT INTO {}.record SELECT * FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[])"
        ).format(name)
        self.digest = sql.SQL("SELECT digest FROM {}.record WHERE sequence = %s").format(name)
        self.load = sql.SQL(
            "SELECT s.sequence, s.digest, s.data, r.digest FROM {0}.snapshot AS s "
            "LEFT JOIN {0}.record AS r USING (sequence)"
        ).format(name)
        self.save = sql.SQL(
            "INSERT INTO {}.snapshot VALUES (true, %b, %b, %b) ON CONFLICT (one) DO UPDATE "
            "SET sequence = EXCLUDED.sequence, digest = EXCLUDED.digest, data = EXCLUDED.data"
        ).format(name)


class _PostgresLog:
    """A log writer within one transaction."""

    def __init__(
        self,
        connection: Connection,
        head: Head,
        statements: _Statements,
        translate_errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._connection = connection
        self._head = head
        self._sql = statements
        self._translate_errors = translate_errors
        self.open = True

    def records_after(self, sequence: int) -> Iterator[Record]:
        if sequence == self._head.sequence:
            return iter(())
        return read_in_pages(self._fetch_page, sequence)

    def append(self, records: Sequence[Record]) -> None:
        self._check_open()
        head = advance_head(self._head, records)
        if not records:
            return
        columns = tuple(zip(*((r.sequence, r.digest, r.payload) for r in records), strict=True))
        with self._translate_errors():
            self._connection.execute(self._sql.insert, [list(column) for column in columns])
        self._head = head

    def _fetch_page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        self._check_open()
        with self._translate_errors():
            return _fetch_records(self._connection, self._sql, sequence, limit)

    def _check_open(self) -> None:
        if not self.open:
            raise InvariantBroken("a log writer is used after its write block has ended")


def _fetch_records(
    connection: Connection, statements: _Statements, sequence: int, limit: int
) -> tuple[Head, Sequence[Record]]:
    rows = connection.execute(statements.page, (sequence, limit), binary=True).fetchall()
    if not rows:
        raise LedgerDamaged("the ledger has no head record")
    records = [Record(*row[2:]) for row in rows if row[2] is not None]
    return Head(rows[0][0], rows[0][1]), records


def _check_last(head: Head, last: Head) -> None:
    if head != last:
        number = min(last.sequence, head.sequence)
        raise LedgerDamaged(f"record {number + 1} is missing, or record {number} was changed")
