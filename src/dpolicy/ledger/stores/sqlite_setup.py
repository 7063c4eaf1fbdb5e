"""A path → a connection to a ledger file that is safe to write, or the reason why there is none.

Measured on every prefix of a commit's writes (`tests/faults`): a write-ahead log with
`synchronous=FULL` loses nothing; Python's default settings do. Releases of SQLite before 3.51.3 can
corrupt a write-ahead log that two connections use, so they are refused.
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

#: The first release without the WAL-reset bug.
MIN_SQLITE_VERSION = (3, 51, 3)

#: What marks a SQLite file as a ledger: "dpol".
APPLICATION_ID = 0x64706F6C

#: Every connection is set up so; the second column is what SQLite must answer.
SETTINGS = (
    ("journal_mode=WAL", "wal"),
    ("synchronous=FULL", 2),
    ("fullfsync=ON", 1),  # macOS: through the disk's cache
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
    """Check that a ledger can be kept at a path, and create it if there is none."""
    check_library(apsw.sqlite_lib_version())
    _check_place(path, name)
    if not path.exists():
        _check_no_rest(path, name)
        with translate_sqlite_errors(name):
            _create(path)


def connect_sqlite(path: Path, name: str, *, wait: float, vfs: str | None) -> apsw.Connection:
    """A connection to a ledger that exists, with durable settings that SQLite has confirmed."""
    with translate_sqlite_errors(name):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        try:
            connection.set_busy_timeout(int(wait * 1000))
            _check_is_ledger(connection, name)
            for setting, confirmed in SETTINGS:
                found = _one(connection, f"PRAGMA {setting}", f"PRAGMA {setting.split('=')[0]}")
                if found != confirmed:
                    raise LedgerUnavailable(f"SQLite refuses `{setting}` for `{name}`: {found}")
            _check_tables(connection, name)
        except BaseException:
            connection.close(force=True)
            raise
    return connection


def flush(path: Path) -> None:
    """Make durable what a process that was killed may have left unsynced, before it is relied on.

    Its last commit can be in the log file, and be recovered from there, without ever having been
    synced; and the ledger itself may have been created a moment ago.
    """
    for place in (path.with_name(path.name + "-wal"), path.parent):
        with suppress(FileNotFoundError):
            _sync(place)


def check_library(version: str) -> None:
    """Raise `LedgerUnavailable` for a release of SQLite that can corrupt its log."""
    if tuple(int(part) for part in version.split(".")) < MIN_SQLITE_VERSION:
        oldest = ".".join(map(str, MIN_SQLITE_VERSION))
        raise LedgerUnavailable(
            f"SQLite {version} can corrupt its write-ahead log; {oldest} is the first that cannot\n"
            "help: install the `apsw` wheel, which brings its own SQLite"
        )


@contextmanager
def translate_sqlite_errors(name: str) -> Iterator[None]:
    """SQLite's errors → ours."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise lock_timeout_error(name) from error
    except _DAMAGE as error:
        raise LedgerDamaged(f"the ledger `{name}` is damaged: {error}") from error
    except (apsw.FullError, apsw.TooBigError) as error:
        raise LedgerUnavailable(
            f"there is no room for the ledger `{name}`; nothing was written\n"
            "help: make room; nothing needs repair"
        ) from error
    except (apsw.Error, OSError) as error:
        raise LedgerUnavailable(f"the ledger `{name}` cannot be used: {error}") from error


_DAMAGE = (
    apsw.ConstraintError,
    apsw.CorruptError,
    apsw.FormatError,
    apsw.MismatchError,
    apsw.NotADBError,
    apsw.SQLError,
    UnicodeDecodeError,
)


def _check_place(path: Path, name: str) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise LedgerUnavailable(
            f"the folder of the ledger `{name}` does not exist\nhelp: create it first"
        )
    check_file_system(folder)
    if path.exists() and not path.is_file():
        raise LedgerUnavailable(f"`{name}` is not a file\nhelp: name a file in that folder")
    unwritable = [p for p in (folder, path) if p.exists() and not os.access(p, os.W_OK)]
    if unwritable:
        raise LedgerUnavailable(
            f"the ledger `{name}` cannot be written here: `{unwritable[0].name}` is read-only\n"
            "help: let this user write the file and its folder; SQLite keeps its log next to it"
        )


def _check_no_rest(path: Path, name: str) -> None:
    for ending in ("-wal", "-journal"):
        if path.with_name(path.name + ending).exists():
            raise LedgerDamaged(
                f"`{name}` is missing, but the log of a ledger is there: `{path.name}{ending}`\n"
                "help: put both back together; to start anew, move the log away"
            )


def _create(path: Path) -> None:
    """A whole ledger appears under its name at once, or not at all; never over another."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        connection = apsw.Connection(str(fresh))
        try:
            connection.execute(SCHEMA).fetchall()  # or it stops at the first row
        finally:
            connection.close()
        _sync(fresh)
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    _sync(path.parent)


def _check_is_ledger(connection: apsw.Connection, name: str) -> None:
    application = _one(connection, "PRAGMA application_id")
    if application != APPLICATION_ID:
        what = "an empty file" if Path(connection.filename).stat().st_size == 0 else "another file"
        raise LedgerDamaged(
            f"`{name}` is not a ledger but {what}\n"
            "help: if a ledger was there, put it back; else name a file that does not exist yet"
        )
    version = _one(connection, "PRAGMA user_version")
    if version != FORMAT:
        raise LedgerDamaged(
            f"the ledger `{name}` has format {version}; this version reads format {FORMAT}\n"
            "help: use the version of dpolicy that wrote it, or a newer one"
        )


def _check_tables(connection: apsw.Connection, name: str) -> None:
    found = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    for table in ("record", "head", "snapshot"):
        if table not in found:
            raise LedgerDamaged(f"the ledger `{name}` has no table `{table}`")


def _one(connection: apsw.Connection, *statements: str) -> object:
    """The last value that statements answer with."""
    rows = [row for statement in statements for row in connection.execute(statement)]
    return rows[-1][0] if rows else None


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
