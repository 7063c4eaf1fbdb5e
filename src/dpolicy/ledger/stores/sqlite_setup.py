"""Create ledger files and connect to them with settings that are safe to write with.

`tests/faults` cuts the power after every write of a commit: a write-ahead log with
`synchronous=FULL` loses nothing; the default settings of Python's `sqlite3` lose commits. SQLite
before 3.51.3 can corrupt a write-ahead log that two connections use, so it is refused.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from dpolicy.errors import LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.chain import GENESIS
from dpolicy.ledger.events import FORMAT
from dpolicy.ledger.stores.file_systems import check_file_system
from dpolicy.ledger.write_lock import lock_timeout_error

#: The first version without the WAL-reset bug.
MIN_SQLITE_VERSION = (3, 51, 3)

#: Identifies a SQLite file as a ledger: "dpol" in ASCII.
APPLICATION_ID = 0x64706F6C

#: Settings of every connection, with the value that SQLite must confirm.
SETTINGS = (
    ("journal_mode=WAL", "wal"),
    ("synchronous=FULL", 2),
    ("fullfsync=ON", 1),  # macOS: flush the disk cache too
    ("checkpoint_fullfsync=ON", 1),
    ("cell_size_check=ON", 1),
    ("trusted_schema=OFF", 0),
)

SCHEMA = f"""
PRAGMA journal_mode=WAL;
BEGIN IMMEDIATE;
CREATE TABLE record (
  sequence INTEGER PRIMARY KEY,
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  payload BLOB NOT NULL
) STRICT;
CREATE TABLE head (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  sequence INTEGER NOT NULL,
  digest BLOB NOT NULL CHECK (length(digest) = 32)
) STRICT;
CREATE TABLE snapshot (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  sequence INTEGER NOT NULL,
  digest BLOB NOT NULL,
  data BLOB NOT NULL
) STRICT;
INSERT INTO head VALUES (1, 0, x'{GENESIS.hex()}');
CREATE TRIGGER record_follows BEFORE INSERT ON record
  WHEN NEW.sequence <> (SELECT sequence + 1 FROM head)
  BEGIN SELECT RAISE(ABORT, 'a record must follow the last one'); END;
CREATE TRIGGER record_is_head AFTER INSERT ON record
  BEGIN UPDATE head SET sequence = NEW.sequence, digest = NEW.digest; END;
CREATE TRIGGER record_stays BEFORE UPDATE ON record
  BEGIN SELECT RAISE(ABORT, 'a record is never changed'); END;
CREATE TRIGGER record_is_kept BEFORE DELETE ON record
  BEGIN SELECT RAISE(ABORT, 'a record is never deleted'); END;
CREATE TRIGGER head_advances BEFORE UPDATE ON head
  WHEN NEW.sequence <> OLD.sequence + 1
    OR NOT EXISTS (SELECT 1 FROM record WHERE sequence = NEW.sequence AND digest = NEW.digest)
  BEGIN SELECT RAISE(ABORT, 'the head is the last record'); END;
CREATE TRIGGER head_stays BEFORE DELETE ON head
  BEGIN SELECT RAISE(ABORT, 'the head is never deleted'); END;
PRAGMA application_id={APPLICATION_ID};
PRAGMA user_version={FORMAT};
COMMIT;
"""


def prepare_file(path: Path, name: str) -> None:
    """Check that a path is safe for a ledger, and create the ledger if it does not exist."""
    check_library(apsw.sqlite_lib_version())
    _check_path(path, name)
    if not path.exists():
        _check_no_orphaned_log(path, name)
        with translate_sqlite_errors(name):
            _create(path)


def connect_sqlite(path: Path, name: str, *, wait: float, vfs: str | None) -> apsw.Connection:
    """Connect to an existing ledger. Raise `LedgerUnavailable` if SQLite refuses a safe setting."""
    with translate_sqlite_errors(name):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        try:
            connection.set_busy_timeout(int(wait * 1000))
            _check_is_ledger(connection, name)
            for setting, confirmed in SETTINGS:
                statements = (f"PRAGMA {setting}", f"PRAGMA {setting.split('=')[0]}")
                value = _last_value(connection, *statements)
                if value != confirmed:
                    raise LedgerUnavailable(f"SQLite refuses `{setting}` for `{name}`: {value}")
            _check_tables(connection, name)
        except BaseException:
            connection.close(force=True)
            raise
    return connection


def flush(path: Path) -> None:
    """Sync the log file and the folder of a ledger before its records are used.

    If a process was killed, SQLite can recover its last commit from the log file although the log
    was never synced. The ledger file itself may also be new and its folder entry not yet synced.
    """
    for target in (path.with_name(path.name + "-wal"), path.parent):
        with suppress(FileNotFoundError):
            _sync(target)


def check_library(version: str) -> None:
    """Raise `LedgerUnavailable` for a version of SQLite that can corrupt its log."""
    if tuple(int(part) for part in version.split(".")) < MIN_SQLITE_VERSION:
        oldest = ".".join(map(str, MIN_SQLITE_VERSION))
        raise LedgerUnavailable(
            f"SQLite {version} can corrupt its write-ahead log; version {oldest} fixes that\n"
            "help: install the `apsw` wheel, which contains SQLite"
        )


@contextmanager
def translate_sqlite_errors(name: str) -> Iterator[None]:
    """Translate errors of SQLite and the operating system to `DPolicyError`s."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise lock_timeout_error(name) from error
    except apsw.NotADBError as error:
        raise _other_file_error(name, "another file") from error
    except _DAMAGE as error:
        raise LedgerDamaged(f"ledger `{name}` is damaged: {error}") from error
    except (apsw.FullError, apsw.TooBigError) as error:
        raise LedgerUnavailable(
            f"the disk of ledger `{name}` is full; nothing was written\n"
            "help: free some space; the ledger needs no repair"
        ) from error
    except (apsw.Error, OSError) as error:
        raise LedgerUnavailable(f"cannot use ledger `{name}`: {error}") from error


_DAMAGE = (
    apsw.ConstraintError,
    apsw.CorruptError,
    apsw.FormatError,
    apsw.MismatchError,
    apsw.SQLError,
    UnicodeDecodeError,
)


def _check_path(path: Path, name: str) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise LedgerUnavailable(
            f"the folder of ledger `{name}` does not exist\nhelp: create it first"
        )
    check_file_system(folder)
    if path.exists() and not path.is_file():
        raise LedgerUnavailable(f"`{name}` is not a file\nhelp: give the path of a file")
    unwritable = [p for p in (folder, path) if p.exists() and not os.access(p, os.W_OK)]
    if unwritable:
        raise LedgerUnavailable(
            f"cannot write ledger `{name}`: `{unwritable[0].name}` is read-only\n"
            "help: give this user write access to the file and its folder; SQLite keeps a log there"
        )


def _check_no_orphaned_log(path: Path, name: str) -> None:
    for ending in ("-wal", "-journal"):
        if path.with_name(path.name + ending).exists():
            raise LedgerDamaged(
                f"`{name}` is missing, but its log file `{path.name}{ending}` exists\n"
                "help: restore both files together; for a new ledger, move the log file away"
            )


def _create(path: Path) -> None:
    """Create a complete ledger at a path atomically; never replace an existing file."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        connection = apsw.Connection(str(fresh))
        try:
            connection.execute(
                SCHEMA
            ).fetchall()  # execute all statements, not only the first that returns a row
        finally:
            connection.close()
        _sync(fresh)
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    _sync(path.parent)


def _check_is_ledger(connection: apsw.Connection, name: str) -> None:
    application = _last_value(connection, "PRAGMA application_id")
    if application != APPLICATION_ID:
        empty = Path(connection.filename).stat().st_size == 0
        raise _other_file_error(name, "an empty file" if empty else "another file")
    version = _last_value(connection, "PRAGMA user_version")
    if version != FORMAT:
        raise LedgerDamaged(
            f"ledger `{name}` has format {version}; this version reads format {FORMAT}\n"
            "help: use the version of dpolicy that wrote it, or a newer one"
        )


def _other_file_error(name: str, description: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"`{name}` is not a ledger but {description}\n"
        "help: if it was a ledger, restore it; otherwise give a path that does not exist yet"
    )


def _check_tables(connection: apsw.Connection, name: str) -> None:
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    for table in ("record", "head", "snapshot"):
        if table not in names:
            raise LedgerDamaged(f"ledger `{name}` has no table `{table}`")


def _last_value(connection: apsw.Connection, *statements: str) -> object:
    """Execute statements and return the last value that they return."""
    rows = [row for statement in statements for row in connection.execute(statement)]
    return rows[-1][0] if rows else None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
