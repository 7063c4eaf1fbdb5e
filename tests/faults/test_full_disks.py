"""A full or failing disk at every call of a commit: an error, and no partial commit."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import apsw
import pytest
from tests.faults.faulty_disks import FailingDisk
from tests.ledger.records import chain_records, last_head, verify_chain

from dpolicy.errors import LedgerUnavailable
from dpolicy.ledger.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
OLD = [b"old" * 400] * 3
NEW = [b"new" * 1000, b"newer"]


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    """A disk that fails at a chosen call."""
    made = FailingDisk(f"failing-{uuid4().hex}")
    yield made
    made.unregister()


def store_with_old(path: Path, disk: FailingDisk) -> SqliteStore:
    """Return a store whose next commit also checkpoints its log."""
    store = SqliteStore(path, vfs=disk.vfs)
    assert store._writer
    store._writer.wal_autocheckpoint(2)
    with store.open_for_writing() as log:
        log.append(chain_records(last_head([]), OLD))
    return store


def append_new(store: SqliteStore) -> None:
    """Append the records of the commit under test."""
    with store.open_for_writing() as log:
        log.append(chain_records(last_head(list(log.records_after(0))), NEW))


def commit_calls(folder: Path, disk: FailingDisk) -> int:
    """Return how many calls a commit makes if none fails."""
    store = store_with_old(folder / "whole.db", disk)
    before = disk.calls
    append_new(store)
    number = disk.calls - before
    store.close()
    return number


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError])
@pytest.mark.parametrize("how", ["once", "lasting"])
def test_a_failure_at_every_call_of_a_commit(
    tmp_path: Path, disk: FailingDisk, error: type[apsw.Error], how: str
) -> None:
    number = commit_calls(tmp_path, disk)
    assert number > 8  # frames, their sync, and the checkpoint
    disk.error, disk.lasting = error, how == "lasting"
    raised = kept = 0
    for n in range(1, number + 1):
        path = tmp_path / f"{n}.db"
        store = store_with_old(path, disk)
        disk.remaining = n
        try:
            append_new(store)
            confirmed = True
        except LedgerUnavailable:
            confirmed = False
            raised += 1
        disk.remaining = None
        # The commit is stored completely or not at all, and a confirmed commit is stored. (A stored
        # commit can still raise: `apsw` reports an error of the checkpoint after the commit, which
        # SQLite treats as harmless.)
        expected = [r.payload for r in verify_chain(store.records_after(0))]
        assert expected in ([OLD + NEW] if confirmed else [OLD, OLD + NEW])
        kept += expected == OLD
        # The store works again as soon as the disk does.
        append_new(store)
        assert [r.payload for r in verify_chain(store.records_after(0))] == expected + NEW
        store.close()
        # A store that is opened later reads the same records.
        again = SqliteStore(path)
        assert [r.payload for r in verify_chain(again.records_after(0))] == expected + NEW
        again.close()
    print(f"{error.__name__} {how}: {number} calls, {raised} raised, {kept} of them unchanged")
    assert kept


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError])
def test_a_crash_after_a_failure_leaves_before_or_after(
    tmp_path: Path, disk: FailingDisk, error: type[apsw.Error]
) -> None:
    """Copy the files right after the failure and open the copy."""
    number = commit_calls(tmp_path, disk)
    disk.error = error
    for n in range(1, number + 1):
        path = tmp_path / f"{n}.db"
        store = store_with_old(path, disk)
        disk.remaining = n
        confirmed = True
        try:
            append_new(store)
        except LedgerUnavailable:
            confirmed = False
        copy = tmp_path / f"{n}-copy.db"
        for ending in ("", "-wal"):
            # With `cp`: opening and closing the file in this process would drop its locks.
            subprocess.run(["cp", f"{path}{ending}", f"{copy}{ending}"], check=True)
        disk.remaining = None
        store.close()
        again = SqliteStore(copy)
        stored = [r.payload for r in verify_chain(again.records_after(0))]
        assert stored in ([OLD + NEW] if confirmed else [OLD, OLD + NEW])
        again.close()


def test_the_canary_swallows_the_error(tmp_path: Path, disk: FailingDisk) -> None:
    """A store that ignored the error would confirm records that are not stored."""
    store = store_with_old(tmp_path / "ledger.db", disk)
    disk.remaining = 1
    with contextlib.suppress(LedgerUnavailable):
        append_new(store)
    disk.remaining = None
    assert [r.payload for r in verify_chain(store.records_after(0))] != OLD + NEW
    store.close()


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """Let the kernel refuse a write, in a child process with a limit on file sizes."""
    code = (
        "import sys\n"
        "from dpolicy.errors import LedgerUnavailable\n"
        "from dpolicy.ledger.chain_reader import Head\n"
        "from dpolicy.ledger.stores.sqlite import SqliteStore\n"
        "from tests.ledger.records import chain_records, last_head\n"
        "store, head = SqliteStore(sys.argv[1]), Head()\n"
        "try:\n"
        "    while True:\n"
        "        with store.open_for_writing() as log:\n"
        "            records = chain_records(head, [b'x' * 5000])\n"
        "            log.append(records)\n"
        "        head = last_head(records)\n"
        "except LedgerUnavailable:\n"
        "    print(head.sequence)\n"
    )
    path = tmp_path / "ledger.db"
    limit = 600_000
    ended = subprocess.run(
        [sys.executable, "-c", code, path],
        cwd=ROOT,
        check=True,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    store = SqliteStore(path)
    stored = verify_chain(store.records_after(0))
    assert len(stored) - int(ended.stdout) in {0, 1}
    assert len(stored) > 10
    append_new(store)
    store.close()
