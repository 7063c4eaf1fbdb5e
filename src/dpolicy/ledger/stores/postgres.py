"""A PostgreSQL database → a store: any number of decision points, one log.

    lock the head row → catch up → append → commit, which returns when the server has it

The lock is a row, so it ends with its transaction, also behind a pooler. Whether commits are
durable is asked in each of those transactions. A commit that got no answer may have happened: the
error says so, and the same id asked again gives the recorded decision.
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
    redacted_message,
    translate_postgres_errors,
)
from dpolicy.ledger.write_lock import LOCK_TIMEOUT, WriteLock

_T = TypeVar("_T")


class PostgresStore:
    """A ledger in a schema of its own, created if it does not exist."""

    def __init__(self, url: str, *, schema: str = "dpolicy", wait: float = LOCK_TIMEOUT) -> None:
        self._url, server = parse_address(url)
        self._name = server if schema == "dpolicy" else f"{server}#{schema}"
        self._wait = wait
        self._sql = _Statements(schema)
        self._writers, self._readers = WriteLock(self._name, wait), WriteLock(self._name, wait)
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
        """The address, without a password."""
        return self._name

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        """Be the only writer over all machines; durable when the block ends normally."""
        with self._writers.held(), self._transaction() as (connection, head):
            log = _PostgresLog(connection, head, self._sql, lambda: self._errors())
            try:
                yield log
            finally:
                log.open = False

    def records_after(self, sequence: int) -> Iterator[Record]:
        """The durable records behind a number."""
        return read_in_pages(self._page, sequence)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """The snapshot, unless it is damaged or of another history."""
        found = self._read(lambda c: c.execute(self._sql.load, binary=True).fetchone())
        if found is None:
            return None
        sequence, digest, data, record = found
        return (sequence, data) if digest == record_hash(record or b"", sequence, data) else None

    def save_snapshot(self, sequence: int, data: bytes) -> None:
        """Replace the snapshot."""
        with self._writers.held(), self._transaction() as (connection, head):
            check_not_older(head, sequence)
            with self._errors():
                found = connection.execute(self._sql.digest, (sequence,)).fetchone()
                seal = record_hash(found[0] if found else b"", sequence, data)
                connection.execute(self._sql.save, (sequence, seal, data))

    def close(self) -> None:
        """Let go of the connections."""
        self._closed = True
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with translate_postgres_errors(self._url, self._name):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Connection, Head]]:
        with self._errors():
            try:
                connection, head = self._locked()
            except errors.LockNotAvailable:
                raise
            except OperationalError:
                # The server was restarted, or another went first. Nothing was written: once more.
                self._drop_writer()
                connection, head = self._locked()
        try:
            yield connection, head
        except BaseException:
            self._roll_back(connection)
            raise
        self._commit(connection)

    def _locked(self) -> tuple[Connection, Head]:
        """Wait for the head row. Nothing was written if this fails."""
        connection = self._writing_connection()
        try:
            with connection.pipeline():
                lock = connection.execute(self._sql.lock, binary=True)
                last = connection.execute(self._sql.last, binary=True)
            row = lock.fetchone()
            if row is None:
                raise LedgerDamaged(f"the ledger `{self._name}` does not say where it ends")
            sequence, digest, commit, standbys = row
            check_commit(commit, standbys, name=self._name)
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
            raise self._unknown(redacted_message(error, self._url)) from error
        if self._warnings:  # it stopped waiting for its standbys
            raise self._unknown(" ".join(self._warnings[0].split()))

    def _unknown(self, why: str) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"the ledger `{self._name}` did not confirm a commit: {why}; "
            "the outcome is not known\nhelp: ask again with the same id"
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
            self._writer = self._connected()
            self._writer.add_notice_handler(self._notice)
        return self._writer

    def _notice(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "a warning")

    def _connected(self) -> Connection:
        if self._closed:
            raise LedgerUnavailable(f"the ledger `{self._name}` was closed")
        return connect_postgres(self._url, self._name, wait=self._wait)

    def _page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        return self._read(lambda c: _fetched(c, self._sql, sequence, limit))

    def _read(self, question: Callable[[Connection], _T]) -> _T:
        """Ask; once more if the connection was lost meanwhile, which changes nothing."""
        with self._readers.held(), self._errors():
            try:
                return question(self._reading_connection())
            except OperationalError:
                if self._reader is not None:
                    self._reader.close()
                return question(self._reading_connection())

    def _reading_connection(self) -> Connection:
        if self._reader is None or self._reader.closed:
            self._reader = self._connected()
            self._reader.autocommit = True
        return self._reader


class _Statements:
    """What is said to the server about one schema."""

    def __init__(self, schema: str) -> None:
        own = sql.Identifier(schema)
        self.lock = sql.SQL(
            "SELECT sequence, digest, current_setting('synchronous_commit'), "
            "current_setting('synchronous_standby_names') FROM {}.head FOR UPDATE"
        ).format(own)
        self.last = sql.SQL(
            "SELECT sequence, digest FROM {}.record ORDER BY sequence DESC LIMIT 1"
        ).format(own)
        self.page = sql.SQL(
            "SELECT h.sequence, h.digest, r.sequence, r.digest, r.payload FROM {0}.head AS h "
            "LEFT JOIN LATERAL (SELECT * FROM {0}.record WHERE sequence > %s "
            "ORDER BY sequence LIMIT %s) AS r ON true ORDER BY r.sequence"
        ).format(own)
        self.insert = sql.SQL(
            "INSERT INTO {}.record SELECT * FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[])"
        ).format(own)
        self.digest = sql.SQL("SELECT digest FROM {}.record WHERE sequence = %s").format(own)
        self.load = sql.SQL(
            "SELECT s.sequence, s.digest, s.data, r.digest FROM {0}.snapshot AS s "
            "LEFT JOIN {0}.record AS r USING (sequence)"
        ).format(own)
        self.save = sql.SQL(
            "INSERT INTO {}.snapshot VALUES (true, %b, %b, %b) ON CONFLICT (one) DO UPDATE "
            "SET sequence = EXCLUDED.sequence, digest = EXCLUDED.digest, data = EXCLUDED.data"
        ).format(own)


class _PostgresLog:
    """The ledger while its transaction is open."""

    def __init__(
        self,
        connection: Connection,
        head: Head,
        statements: _Statements,
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._connection = connection
        self._head = head
        self._sql = statements
        self._errors = errors
        self.open = True

    def records_after(self, sequence: int) -> Iterator[Record]:
        if sequence == self._head.sequence:
            return iter(())
        return read_in_pages(self._page, sequence)

    def append(self, records: Sequence[Record]) -> None:
        self._check_open()
        head = advance_head(self._head, records)
        if not records:
            return
        columns = tuple(zip(*((r.sequence, r.digest, r.payload) for r in records), strict=True))
        with self._errors():
            self._connection.execute(self._sql.insert, [list(column) for column in columns])
        self._head = head

    def _page(self, sequence: int, limit: int) -> tuple[Head, Sequence[Record]]:
        self._check_open()
        with self._errors():
            return _fetched(self._connection, self._sql, sequence, limit)

    def _check_open(self) -> None:
        if not self.open:
            raise InvariantBroken("a ledger is used after its writing has ended")


def _fetched(
    connection: Connection, statements: _Statements, sequence: int, limit: int
) -> tuple[Head, Sequence[Record]]:
    rows = connection.execute(statements.page, (sequence, limit), binary=True).fetchall()
    if not rows:
        raise LedgerDamaged("the ledger does not say where it ends")
    found = [Record(*row[2:]) for row in rows if row[2] is not None]
    return Head(rows[0][0], rows[0][1]), found


def _check_last(head: Head, last: Head) -> None:
    if head != last:
        at = min(last.sequence, head.sequence)
        raise LedgerDamaged(f"record {at + 1} is missing, or record {at} was changed")
