"""Contract tests of all stores: the promises of `dpolicy.ledger.store`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import apsw
import psycopg
import pytest
from tests.ledger.postgres_servers import PostgresServer
from tests.ledger.records import chain_records, last_head, verify_chain

from dpolicy.errors import InvariantBroken, LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.ledger.stores.postgres import PostgresStore
from dpolicy.ledger.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class StoredLedger:
    """A ledger of one kind of store, and how to open it."""

    kind: str
    open: Callable[..., LedgerStore]
    address: tuple[str, ...] = ()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> StoredLedger:
    """An empty ledger of each kind."""
    if request.param == "memory":
        only: dict[str, MemoryStore] = {}
        return StoredLedger("memory", lambda **o: only.setdefault("", MemoryStore(**o)))
    if request.param == "sqlite":
        path = str(tmp_path / "ledger.db")
        return StoredLedger("sqlite", lambda **o: SqliteStore(path, **o), (path,))
    server: PostgresServer = request.getfixturevalue("postgres")
    schema = f"s{uuid4().hex}"
    return StoredLedger(
        "postgres", lambda **o: PostgresStore(server.url, schema=schema, **o), (server.url, schema)
    )


@pytest.fixture
def store(ledger: StoredLedger) -> Iterator[LedgerStore]:
    """A store with a short lock timeout."""
    opened = ledger.open(wait=0.3)
    yield opened
    opened.close()


def write(store: LedgerStore, *payloads: bytes) -> list[Record]:
    """Append payloads to a store; return their records."""
    with store.open_for_writing() as log:
        made = chain_records(last_head(list(log.records_after(0))), payloads)
        log.append(made)
    return made


def test_an_empty_store_has_nothing(store: LedgerStore) -> None:
    assert list(store.records_after(0)) == []
    assert store.load_snapshot() is None
    with store.open_for_writing() as log:
        assert list(log.records_after(0)) == []
        log.append([])
    assert list(store.records_after(0)) == []


def test_records_come_back_in_order(store: LedgerStore) -> None:
    made = write(store, b"one") + write(store, b"two", b"three") + write(store, b"")
    assert list(store.records_after(0)) == made
    assert verify_chain(store.records_after(0)) == made
    for start in range(5):
        assert list(store.records_after(start)) == made[start:]
        with store.open_for_writing() as log:
            assert list(log.records_after(start)) == made[start:]


def test_several_pages_are_one_sequence(store: LedgerStore) -> None:
    made = write(store, *(b"%d" % n * (n % 300) for n in range(5000)))
    assert list(store.records_after(0)) == made
    assert list(store.records_after(4321)) == made[4321:]


def test_a_writer_sees_what_it_has_added(store: LedgerStore) -> None:
    old = write(store, b"old")
    with store.open_for_writing() as log:
        new = chain_records(last_head(old), [b"new", b"newer"])
        log.append(new[:1])
        assert list(log.records_after(0)) == old + new[:1]
        log.append(new[1:])
        assert list(log.records_after(1)) == new
        assert list(log.records_after(3)) == []
    assert list(store.records_after(0)) == old + new


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_nothing(store: LedgerStore, error: type[BaseException]) -> None:
    old = write(store, b"old")
    with pytest.raises(error), store.open_for_writing() as log:
        log.append(chain_records(last_head(old), [b"a", b"b"]))
        raise error
    assert list(store.records_after(0)) == old
    new = write(store, b"new")
    assert list(store.records_after(0)) == old + new


def test_readers_see_only_what_is_durable_and_do_not_wait(
    store: LedgerStore, ledger: StoredLedger
) -> None:
    old = write(store, b"old")
    other = ledger.open(wait=0.3)
    with store.open_for_writing() as log:
        log.append(chain_records(last_head(old), [b"new"]))
        assert list(store.records_after(0)) == old
        assert list(other.records_after(0)) == old
    assert len(list(store.records_after(0))) == len(list(other.records_after(0))) == 2
    other.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda head: chain_records(Head(head.sequence + 1, head.digest), [b"a gap"]),
        lambda head: chain_records(Head(head.sequence - 1, head.digest), [b"again"]),
        lambda head: chain_records(Head(head.sequence, bytes(32)), [b"another history"]),
        lambda head: [Record(head.sequence + 1, bytes(32), b"a wrong hash")],
        lambda head: list(reversed(chain_records(head, [b"in", b"reverse"]))),
        lambda head: [*chain_records(head, [b"right"]), *chain_records(head, [b"twice"])],
    ],
)
def test_a_record_that_does_not_follow_is_refused(
    store: LedgerStore, wrong: Callable[[Head], list[Record]]
) -> None:
    old = write(store, b"one", b"two")
    with pytest.raises(LedgerDamaged, match="record"), store.open_for_writing() as log:
        log.append(wrong(last_head(old)))
    assert list(store.records_after(0)) == old


def test_reading_after_the_end_detects_an_older_copy(store: LedgerStore) -> None:
    write(store, b"one")
    with pytest.raises(LedgerDamaged, match="record 2 is missing"):
        list(store.records_after(3))
    with pytest.raises(LedgerDamaged, match="record 2 is missing"), store.open_for_writing() as log:
        list(log.records_after(3))


def test_a_log_ends_with_its_block(store: LedgerStore) -> None:
    with store.open_for_writing() as log:
        pass
    with pytest.raises(InvariantBroken):
        log.append(chain_records(Head(), [b"late"]))
    assert list(store.records_after(0)) == []


def test_a_nested_write_block_is_refused(store: LedgerStore) -> None:
    with store.open_for_writing(), pytest.raises(InvariantBroken), store.open_for_writing():
        pass
    write(store, b"and the store still works")


def test_threads_exclude_each_other(store: LedgerStore) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.open_for_writing():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with (
        pytest.raises(LedgerUnavailable, match="is locked by another writer"),
        store.open_for_writing(),
    ):
        pass
    done.set()
    thread.join()
    write(store, b"afterwards")


def test_many_threads_make_one_chain(store: LedgerStore, ledger: StoredLedger) -> None:
    patient = ledger.open(wait=60.0) if ledger.kind != "memory" else store

    def add(name: int) -> None:
        for turn in range(10):
            with patient.open_for_writing() as log:
                log.append(
                    chain_records(last_head(list(log.records_after(0))), [b"%d:%d" % (name, turn)])
                )

    threads = [threading.Thread(target=add, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = verify_chain(patient.records_after(0))
    assert {record.payload for record in records} == {
        b"%d:%d" % (name, turn) for name in range(8) for turn in range(10)
    }
    patient.close()


def test_snapshots_are_replaced_and_only_a_cache(store: LedgerStore) -> None:
    made = write(store, b"one", b"two")
    store.save_snapshot(0, b"empty")
    assert store.load_snapshot() == (0, b"empty")
    store.save_snapshot(2, b"first")
    store.save_snapshot(2, b"second" * 100_000)
    assert store.load_snapshot() == (2, b"second" * 100_000)
    assert list(store.records_after(0)) == made
    with pytest.raises(LedgerDamaged):
        store.save_snapshot(3, b"of the future")
    assert store.load_snapshot() == (2, b"second" * 100_000)


def test_a_store_opened_again_has_everything(ledger: StoredLedger) -> None:
    first = ledger.open()
    made = write(first, b"one", "zwölf £ 😀".encode(), bytes(range(256)))
    first.save_snapshot(3, b"snapshot")
    first.close()
    again = ledger.open()
    assert verify_chain(again.records_after(0)) == made
    assert again.load_snapshot() == (3, b"snapshot")
    again.close()


def test_large_records(store: LedgerStore) -> None:
    made = write(store, b"small", b"x" * 10_000_000, b"\x00\xff" * 1_000_000, b"small again")
    assert list(store.records_after(0)) == made


@pytest.fixture(params=["sqlite", "postgres"])
def shared_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> StoredLedger:
    """A ledger that several processes can open."""
    made: StoredLedger = ledger.__wrapped__(request, tmp_path)  # type: ignore[attr-defined]
    return made


def test_processes_exclude_each_other(shared_ledger: StoredLedger) -> None:
    store = shared_ledger.open(wait=0.3)
    code = (
        "import sys\n"
        "from tests.ledger.store_access import open_at\n"
        "store = open_at(*sys.argv[1:])\n"
        "with store.open_for_writing():\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.readline()\n"
        "store.close()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, *shared_ledger.address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(LedgerUnavailable, match="is locked by another writer"),
            store.open_for_writing(),
        ):
            pass
        assert list(store.records_after(0)) == []
        other.communicate(b"\n")
    assert other.returncode == 0
    write(store, b"afterwards")
    store.close()


def test_many_create_one_ledger(shared_ledger: StoredLedger) -> None:
    barrier = threading.Barrier(8)
    stores: list[LedgerStore] = []

    def create() -> None:
        barrier.wait()
        stores.append(shared_ledger.open())

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 8
    made = [write(store, b"%d" % number)[0] for number, store in enumerate(stores)]
    for store in stores:
        assert list(store.records_after(0)) == made
        store.close()


def execute_sql(ledger: StoredLedger, *statements: str) -> None:
    """Execute SQL on the database of a ledger, without its store."""
    if ledger.kind == "sqlite":
        connection = apsw.Connection(ledger.address[0])
        try:
            for statement in statements:
                connection.execute(statement)
        finally:
            connection.close()
        return
    url, schema = ledger.address
    with psycopg.connect(url, options=f"-c search_path={schema}", autocommit=True) as server:
        for statement in statements:
            server.execute(statement.encode())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET payload = payload WHERE sequence = 1",
        "UPDATE record SET sequence = 7 WHERE sequence = 2",
        "DELETE FROM record",
        "DELETE FROM record WHERE sequence = 2",
        "DELETE FROM head",
        "UPDATE head SET sequence = 1",
        "UPDATE head SET sequence = 3",
        "INSERT INTO record SELECT 1, digest, payload FROM record WHERE sequence = 1",
        "INSERT INTO record SELECT 4, digest, payload FROM record WHERE sequence = 1",
    ],
)
def test_the_database_itself_refuses_changes(shared_ledger: StoredLedger, statement: str) -> None:
    store = shared_ledger.open()
    made = write(store, b"one", b"two")
    store.close()
    with pytest.raises((apsw.ConstraintError, psycopg.DatabaseError)):
        execute_sql(shared_ledger, statement)
    again = shared_ledger.open()
    assert verify_chain(again.records_after(0)) == made
    again.close()


def test_a_snapshot_that_was_deleted_or_changed_is_not_used(shared_ledger: StoredLedger) -> None:
    store = shared_ledger.open()
    made = write(store, b"one", b"two")
    store.save_snapshot(2, b"balances")
    store.close()
    execute_sql(shared_ledger, "UPDATE snapshot SET data = digest")
    again = shared_ledger.open()
    assert again.load_snapshot() is None
    again.save_snapshot(1, b"balances")
    again.close()
    execute_sql(shared_ledger, "UPDATE snapshot SET sequence = 2")
    again = shared_ledger.open()
    assert again.load_snapshot() is None
    again.close()
    execute_sql(shared_ledger, "DELETE FROM snapshot")
    again = shared_ledger.open()
    assert again.load_snapshot() is None
    assert list(again.records_after(0)) == made
    again.close()


def test_a_closed_store_refuses_calls(shared_ledger: StoredLedger) -> None:
    store = shared_ledger.open()
    store.close()
    with pytest.raises(LedgerUnavailable, match="was closed"):
        list(store.records_after(0))
    with pytest.raises(LedgerUnavailable, match="was closed"), store.open_for_writing():
        pass
    store.close()
