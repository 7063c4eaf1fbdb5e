"""SQLite stores: refused paths and settings, and detected damage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from tests.ledger.records import chain_records, last_head, verify_chain

from dpolicy.errors import LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.events import FORMAT
from dpolicy.ledger.stores import file_systems, sqlite_setup
from dpolicy.ledger.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]


def create_ledger(path: Path) -> None:
    """Create a ledger with one record."""
    store = SqliteStore(path)
    with store.open_for_writing() as log:
        log.append(chain_records(last_head([]), [b"one"]))
    store.close()


def test_settings_are_durable(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db")
    assert store._writer
    assert store._writer.pragma("journal_mode") == "wal"
    assert store._writer.pragma("synchronous") == 2
    assert store.name == str(tmp_path / "ledger.db")
    store.close()


def test_a_setting_that_sqlite_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_setup, "SETTINGS", [("synchronous=OFF", 2)])
    with pytest.raises(LedgerUnavailable, match="SQLite refuses `synchronous=OFF`"):
        SqliteStore(tmp_path / "ledger.db")


def test_creation_leaves_one_file(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "ledger.db").close()
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.7.0"])
def test_a_library_with_the_reset_bug(version: str) -> None:
    with pytest.raises(LedgerUnavailable, match="help: install the `apsw` wheel"):
        sqlite_setup.check_library(version)


def test_the_bundled_library_is_fine() -> None:
    sqlite_setup.check_library("3.51.3")
    sqlite_setup.check_library(apsw.sqlite_lib_version())


def test_a_path_that_cannot_hold_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="create it first"):
        SqliteStore(tmp_path / "missing" / "ledger.db")
    with pytest.raises(LedgerUnavailable, match="is not a file"):
        SqliteStore(tmp_path)
    with pytest.raises(LedgerUnavailable, match="is not a file"):
        SqliteStore("/dev/null")


@pytest.mark.parametrize("read_only", ["file", "folder"])
def test_a_read_only_path(tmp_path: Path, read_only: str) -> None:
    path = tmp_path / "ledger.db"
    create_ledger(path)
    tmp_path.chmod(0o777 if read_only == "file" else 0o555)
    path.chmod(0o444 if read_only == "file" else 0o666)
    # Root may write anywhere, so another user tries. Its working directory is the folder, because
    # that user may have no access to the parent folders.
    code = (
        "import os\n"
        "from dpolicy.errors import LedgerUnavailable\n"
        "from dpolicy.ledger.stores.sqlite import SqliteStore\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "import dpolicy.ledger.stores.sqlite_setup as setup\n"
        "from pathlib import Path\n"
        "try: setup._check_path(Path('ledger.db'), 'ledger.db')\n"
        "except LedgerUnavailable as error: print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "is read-only\nhelp: give this user write access" in ended.stdout
    tmp_path.chmod(0o700)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    text, foreign, empty = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    text.write_bytes(b"some text\n" * 1000)
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE record (sequence)")
    connection.close()
    empty.write_bytes(b"")
    for path, message in (
        (text, "another file"),
        (foreign, "another file"),
        (empty, "an empty file"),
    ):
        before = path.read_bytes()
        with pytest.raises(LedgerDamaged, match=message):
            SqliteStore(path)
        assert path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_newer_format_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    create_ledger(path)
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version={FORMAT + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerDamaged, match=f"has format {FORMAT + 1}; this version reads"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_missing_table(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    create_ledger(path)
    connection = apsw.Connection(str(path))
    connection.execute("DROP TABLE snapshot")
    connection.close()
    with pytest.raises(LedgerDamaged, match="no table `snapshot`"):
        SqliteStore(path)


def test_a_log_without_its_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger.db-wal").write_bytes(b"left")
    with pytest.raises(LedgerDamaged, match=r"is missing, but its log file `ledger\.db-wal`"):
        SqliteStore(tmp_path / "ledger.db")


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_files_that_are_moved_while_in_use(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "ledger.db"
    store = SqliteStore(path)
    Path(f"{path}{ending}").rename(tmp_path / "moved")
    with pytest.raises(LedgerUnavailable, match="was moved or replaced"), store.open_for_writing():
        pass
    (tmp_path / "moved").rename(f"{path}{ending}")
    with store.open_for_writing() as log:
        log.append(chain_records(last_head([]), [b"back"]))
    store.close()


def test_files_that_are_moved_during_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    store = SqliteStore(path)
    with (
        pytest.raises(LedgerUnavailable, match="the outcome is unknown"),
        store.open_for_writing() as log,
    ):
        log.append(chain_records(last_head([]), [b"one"]))
        path.rename(tmp_path / "moved")
    (tmp_path / "moved").rename(path)
    store.close()


def test_a_store_is_not_used_after_a_fork(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db")
    store._write_lock._process = store._read_lock._process = -1
    with pytest.raises(LedgerUnavailable, match="before this process was forked"):
        list(store.records_after(0))
    with (
        pytest.raises(LedgerUnavailable, match="open it in each process"),
        store.open_for_writing(),
    ):
        pass
    store.close()


def test_the_log_of_a_killed_writer_is_synced_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    store = SqliteStore(path)
    with store.open_for_writing() as log:
        log.append(chain_records(last_head([]), [b"one"]))
    synced: list[Path] = []
    monkeypatch.setattr(sqlite_setup, "_sync", synced.append)
    other = SqliteStore(path)
    assert synced == [tmp_path / "ledger.db-wal", tmp_path]
    assert len(verify_chain(other.records_after(0))) == 1
    other.close()
    store.close()


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /data rw,relatime shared:1 - nfs4 server:/x rw
31 30 8:2 / /data/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /with\\040space rw - fuse.sshfs user@server: rw
33 22 0:42 / /twice rw - ext4 /dev/sdc rw
34 22 0:43 / /twice rw - cifs //server/x rw
nonsense
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/database", "ext4"),
        ("/data", "nfs4"),
        ("/data/deep/er", "nfs4"),
        ("/data/local/x", "xfs"),
        ("/with space/x", "fuse.sshfs"),
        ("/twice", "cifs"),
    ],
)
def test_the_file_system_of_a_folder(folder: str, kind: str) -> None:
    assert file_systems.file_system(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "fuseblk", "9p"])
def test_network_file_systems_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"22 1 8:1 / / rw - {kind} x rw\n")
    monkeypatch.setattr(file_systems, "MOUNTS", mounts)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(LedgerUnavailable, match=f"on a `{kind}` file system"):
        SqliteStore(tmp_path / "ledger.db")
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "missing")
    with pytest.raises(LedgerUnavailable, match="cannot determine the file system of"):
        SqliteStore(tmp_path / "ledger.db")
    monkeypatch.setattr(sys, "platform", "elsewhere")
    SqliteStore(tmp_path / "ledger.db").close()
