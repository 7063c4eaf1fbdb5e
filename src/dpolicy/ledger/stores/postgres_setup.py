"""Connect to a PostgreSQL server whose commits are durable, and create the schema of a ledger.

Refused are: a standby; `fsync` or `full_page_writes` off; `synchronous_commit` off; and a primary
whose standbys may take over without the last decisions. In 8 failovers to an asynchronous standby,
2 lost decisions that clients had already received.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import psycopg
from psycopg import conninfo, errors, sql

from dpolicy.errors import LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.chain import GENESIS
from dpolicy.ledger.events import FORMAT
from dpolicy.ledger.write_lock import lock_timeout_error

#: `Any`: each query checks the types of its rows.
Connection = psycopg.Connection[tuple[Any, ...]]

#: Seconds to wait for a connection.
CONNECT_TIMEOUT = 10

_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.head (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  format integer NOT NULL,
  sequence bigint NOT NULL,
  digest bytea NOT NULL CHECK (octet_length(digest) = 32)
);
CREATE TABLE {schema}.record (
  sequence bigint PRIMARY KEY,
  digest bytea NOT NULL CHECK (octet_length(digest) = 32),
  payload bytea NOT NULL
);
CREATE TABLE {schema}.snapshot (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  sequence bigint NOT NULL,
  digest bytea NOT NULL,
  data bytea NOT NULL
);
INSERT INTO {schema}.head VALUES (true, {format}, 0, {genesis});

CREATE FUNCTION {schema}.follow() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE last {schema}.head;
BEGIN
  SELECT * INTO STRICT last FROM {schema}.head FOR UPDATE;
  IF EXISTS (
    SELECT FROM (
      SELECT sequence, digest, payload,
        last.sequence + row_number() OVER (ORDER BY sequence) AS expected,
        lag(digest, 1, last.digest) OVER (ORDER BY sequence) AS before
      FROM added
    ) AS each
    WHERE sequence <> expected OR digest <> sha256(before || int8send(sequence) || payload)
  ) THEN RAISE EXCEPTION 'a record must follow the last one'; END IF;
  UPDATE {schema}.head AS h SET sequence = a.sequence, digest = a.digest
    FROM (SELECT sequence, digest FROM added ORDER BY sequence DESC LIMIT 1) AS a;
  RETURN NULL;
END $$;
CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a record is never changed or deleted'; END $$;
CREATE FUNCTION {schema}.advance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.sequence <= OLD.sequence OR NOT EXISTS (
    SELECT FROM {schema}.record AS r WHERE r.sequence = NEW.sequence AND r.digest = NEW.digest
  ) THEN RAISE EXCEPTION 'the head is the last record'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER follow AFTER INSERT ON {schema}.record
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {schema}.follow();
CREATE TRIGGER refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.record
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse();
CREATE TRIGGER refuse BEFORE DELETE OR TRUNCATE ON {schema}.head
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse();
CREATE TRIGGER advance BEFORE UPDATE ON {schema}.head
  FOR EACH ROW EXECUTE FUNCTION {schema}.advance();
"""

_SETTINGS = """
SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
  current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
  (SELECT count(*) FROM pg_stat_replication),
  coalesce(current_setting('dpolicy.single_node', true), '')
"""


def parse_address(url: str) -> tuple[str, str]:
    """Return the connection string, and the name of the server for messages, without a password."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        parts = {}
    if not parts or any("@" in str(parts.get(part)) for part in ("host", "port", "dbname")):
        # The message and its cause must not quote the address: it may contain the password.
        raise LedgerUnavailable(
            "invalid address of a ledger\n"
            "help: write `postgresql://user@host:5432/database`, with special characters as %40"
        )
    user = f"{quote(str(parts['user']))}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    host = quote(str(parts.get("host") or ""), safe="/,.:[]")
    return url, f"postgresql://{user}{host}{port}/{parts.get('dbname') or ''}"


def connect_postgres(url: str, name: str, *, wait: float) -> Connection:
    """Connect to a server. Raise `LedgerUnavailable` if it could lose a confirmed commit."""
    with translate_postgres_errors(url, name):
        connection = psycopg.connect(
            url,
            connect_timeout=CONNECT_TIMEOUT,
            tcp_user_timeout=int(wait * 1000),
            fallback_application_name="dpolicy",
        )
    try:
        with translate_postgres_errors(url, name):
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.read_only = False
            milliseconds = int(wait * 1000)
            connection.execute(f"SET lock_timeout = {milliseconds}")
            # The server disconnects a writer that hangs with the lock; nothing is committed.
            connection.execute(f"SET idle_in_transaction_session_timeout = {2 * milliseconds}")
            row = connection.execute(_SETTINGS).fetchone()
            connection.commit()
        check_settings(ServerSettings(*(row or ())), name=name)
    except BaseException:
        connection.close()
        raise
    return connection


class ServerSettings(NamedTuple):
    """Settings of a server that decide whether its commits are durable: a row of `_SETTINGS`."""

    is_standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    #: `synchronous_standby_names`; empty if commits wait for no standby.
    standby_names: str
    attached_standbys: int
    #: `on` if the operator declares that no standby is ever promoted.
    single_node: str


def check_settings(settings: ServerSettings, *, name: str) -> None:
    """Raise `LedgerUnavailable` if a server with these settings could lose a confirmed commit."""
    if settings.is_standby:
        raise LedgerUnavailable(f"`{name}` is a standby\nhelp: connect to the primary")
    if settings.fsync != "on" or settings.full_page_writes != "on":
        raise LedgerUnavailable(
            f"`{name}` would lose decisions in a crash of the machine: fsync is "
            f"`{settings.fsync}`, full_page_writes is `{settings.full_page_writes}`\n"
            "help: set both to `on`"
        )
    check_commit(settings.synchronous_commit, settings.standby_names, name=name)
    unsafe_failover = settings.attached_standbys and not settings.standby_names
    if unsafe_failover and settings.single_node != "on":
        raise LedgerUnavailable(
            f"`{name}` has standbys that may take over without the last decisions\n"
            "help: set `synchronous_standby_names`; or, if no standby is ever promoted, "
            "`ALTER DATABASE … SET dpolicy.single_node = 'on'`"
        )


def check_commit(synchronous_commit: str, standby_names: str, *, name: str) -> None:
    """Raise `LedgerUnavailable` if the server confirms a commit before it is durable."""
    unsafe = {"off", "local", "remote_write"} if standby_names else {"off"}
    if synchronous_commit in unsafe:
        raise LedgerUnavailable(
            f"`{name}` confirms commits before they are durable: "
            f"synchronous_commit is `{synchronous_commit}`\n"
            "help: `ALTER ROLE … SET synchronous_commit = 'on'`; `local` is enough only on a "
            "single node, without `synchronous_standby_names`"
        )


def ensure_schema(connection: Connection, schema: str, name: str) -> None:
    """Create the tables if they are missing. Raise `LedgerDamaged` for an unsupported format."""
    quoted = sql.Identifier(schema)
    if not _has_schema(connection, schema):
        # If several processes open a new ledger at once, only one creates it.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"{schema}.head",))
        if not _has_schema(connection, schema):
            values = {"format": sql.Literal(FORMAT), "genesis": sql.Literal(GENESIS)}
            connection.execute(sql.SQL(_SCHEMA).format(schema=quoted, **values))
    row = connection.execute(sql.SQL("SELECT format FROM {}.head").format(quoted)).fetchone()
    connection.commit()
    if row is None:
        raise LedgerDamaged(f"ledger `{name}` has no head record")
    if row != (FORMAT,):
        raise LedgerDamaged(
            f"ledger `{name}` has format {row[0]}; this version reads format {FORMAT}\n"
            "help: use the version of dpolicy that wrote it, or a newer one"
        )


@contextmanager
def translate_postgres_errors(url: str, name: str) -> Iterator[None]:
    """Translate errors of PostgreSQL to `DPolicyError`s whose messages contain no password."""
    try:
        yield
    except errors.LockNotAvailable as error:
        raise lock_timeout_error(name) from error
    except _DAMAGE as error:
        raise LedgerDamaged(f"ledger `{name}` is damaged: {redact_message(error, url)}") from error
    except psycopg.Error as error:
        raise LedgerUnavailable(
            f"cannot use ledger `{name}`: {redact_message(error, url)}; nothing was written"
        ) from error


_DAMAGE = (
    errors.DataCorrupted,
    errors.IndexCorrupted,
    errors.RaiseException,
    errors.UndefinedColumn,
    errors.UndefinedTable,
    errors.UniqueViolation,
    errors.CheckViolation,
)


def redact_message(error: Exception, url: str) -> str:
    """Return the message of an error in one line, without the password."""
    text = " ".join(str(error).split())
    password = conninfo.conninfo_to_dict(url).get("password")
    if password:
        for secret in (str(password), quote(str(password)), quote(str(password), safe="")):
            text = text.replace(secret, "…")
    return re.sub(r"(postgres(?:ql)?://[^:@/\s]*):[^@/\s]*@", r"\1:…@", text)


def _has_schema(connection: Connection, schema: str) -> bool:
    # Not `to_regclass`: it caches a negative result.
    query = "SELECT FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'head'"
    return connection.execute(query, (schema,)).fetchone() is not None
