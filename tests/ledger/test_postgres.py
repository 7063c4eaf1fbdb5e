"""PostgreSQL stores: refused settings, lost connections, and messages without passwords."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.ledger.postgres_servers import PostgresServer
from tests.ledger.records import chain_records, last_head, verify_chain

from dpolicy.errors import LedgerDamaged, LedgerUnavailable
from dpolicy.ledger.stores.postgres import PostgresStore
from dpolicy.ledger.stores.postgres_setup import (
    ServerSettings,
    check_settings,
    parse_address,
    redact_message,
)

ROOT = Path(__file__).parents[2]
SAFE = ServerSettings(
    is_standby=False,
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    standby_names="",
    attached_standbys=0,
    single_node="",
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_standby": True}, "is a standby"),
        ({"fsync": "off"}, "fsync is `off`"),
        ({"full_page_writes": "off"}, "full_page_writes is `off`"),
        ({"synchronous_commit": "off"}, "synchronous_commit is `off`"),
        ({"synchronous_commit": "off", "standby_names": "b"}, "synchronous_commit is `off`"),
        ({"synchronous_commit": "local", "standby_names": "b"}, "synchronous_commit is `local`"),
        (
            {"synchronous_commit": "remote_write", "standby_names": "b"},
            "synchronous_commit is `remote_write`",
        ),
        ({"attached_standbys": 1}, "dpolicy.single_node = 'on'"),
        ({"attached_standbys": 2, "single_node": "off"}, "synchronous_standby_names"),
    ],
)
def test_settings_that_lose_decisions(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LedgerUnavailable, match=message):
        check_settings(SAFE._replace(**changes), name="x")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"synchronous_commit": "local"},
        {"synchronous_commit": "remote_write"},
        {"synchronous_commit": "remote_apply", "standby_names": "b", "attached_standbys": 1},
        {"standby_names": "b", "attached_standbys": 1},
        {"attached_standbys": 1, "single_node": "on"},
    ],
)
def test_settings_that_keep_decisions(changes: dict[str, Any]) -> None:
    check_settings(SAFE._replace(**changes), name="x")


def test_a_server_that_confirms_too_early(postgres: PostgresServer) -> None:
    early = f"{postgres.url}&options=-c%20synchronous_commit%3Doff"
    with pytest.raises(LedgerUnavailable, match="synchronous_commit is `off`\nhelp: `ALTER ROLE"):
        PostgresStore(early)


def test_a_session_that_was_changed_later(postgres: PostgresServer) -> None:
    store = PostgresStore(postgres.url, schema=f"s{uuid4().hex}")
    assert store._writer
    store._writer.execute("SET synchronous_commit = off")
    store._writer.commit()
    with pytest.raises(LedgerUnavailable, match="synchronous_commit"), store.open_for_writing():
        pass
    store.close()


def test_a_newer_format(postgres: PostgresServer) -> None:
    schema = f"s{uuid4().hex}"
    PostgresStore(postgres.url, schema=schema).close()
    with psycopg.connect(postgres.url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(f"UPDATE {schema}.head SET format = 2".encode())
    with pytest.raises(LedgerDamaged, match="has format 2; this version reads format 1"):
        PostgresStore(postgres.url, schema=schema)


def test_a_strange_schema_is_only_a_name(postgres: PostgresServer) -> None:
    store = PostgresStore(postgres.url, schema='Robert"); DROP TABLE x; --')
    with store.open_for_writing() as log:
        log.append(chain_records(last_head([]), [b"one"]))
    store.close()


def terminate_connections(postgres: PostgresServer) -> None:
    """Terminate every other connection to the server."""
    with psycopg.connect(postgres.url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def test_a_lost_connection_is_reopened_if_nothing_was_written(
    postgres: PostgresServer,
) -> None:
    store = PostgresStore(postgres.url, schema=f"s{uuid4().hex}")
    with store.open_for_writing() as log:
        log.append(chain_records(last_head([]), [b"one"]))
    assert len(list(store.records_after(0))) == 1
    terminate_connections(postgres)
    assert len(list(store.records_after(0))) == 1
    with store.open_for_writing() as log:
        log.append(chain_records(last_head(list(log.records_after(0))), [b"two"]))
    assert len(verify_chain(store.records_after(0))) == 2
    store.close()


def test_a_connection_lost_before_the_commit(postgres: PostgresServer) -> None:
    store = PostgresStore(postgres.url, schema=f"s{uuid4().hex}")
    with (
        pytest.raises(LedgerUnavailable, match="nothing was written"),
        store.open_for_writing() as log,
    ):
        terminate_connections(postgres)
        log.append(chain_records(last_head([]), [b"one"]))
    assert list(store.records_after(0)) == []
    store.close()


def test_a_connection_lost_in_the_commit(postgres: PostgresServer) -> None:
    store = PostgresStore(postgres.url, schema=f"s{uuid4().hex}")
    with (
        pytest.raises(
            LedgerUnavailable, match="the outcome is unknown\nhelp: retry with the same id"
        ),
        store.open_for_writing() as log,
    ):
        log.append(chain_records(last_head([]), [b"one"]))
        terminate_connections(postgres)
    assert list(store.records_after(0)) == []
    with store.open_for_writing() as log:
        log.append(chain_records(last_head([]), [b"one"]))
    assert len(verify_chain(store.records_after(0))) == 1
    store.close()


def test_a_commit_that_stopped_waiting_for_its_standby(postgres: PostgresServer) -> None:
    store = PostgresStore(postgres.url, schema=f"s{uuid4().hex}", wait=5.0)
    name = f"app{uuid4().hex[:8]}"
    assert store._writer
    store._writer.execute(f"SET application_name = '{name}'".encode())
    store._writer.commit()
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
        admin.execute("SELECT pg_reload_conf()")
        canceller = subprocess.Popen([sys.executable, "-c", _CANCEL, postgres.url, name])
        try:
            with pytest.raises(LedgerUnavailable, match="canceling wait for synchronous"):
                for _ in range(1000):  # a busy server takes up the setting after some commits
                    with store.open_for_writing() as log:
                        log.append(chain_records(last_head(list(log.records_after(0))), [b"one"]))
                    sleep(0.02)
        finally:
            canceller.wait()
            admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
            admin.execute("SELECT pg_reload_conf()")
    store.close()


_CANCEL = """
import sys, time, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    query = ("SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
             "WHERE application_name = %s AND wait_event = 'SyncRep'")
    for _ in range(3000):
        if connection.execute(query, (sys.argv[2],)).fetchall():
            break
        time.sleep(0.02)
"""

SECRET = "s3cr3t@/ü"
QUOTED = "s3cr3t%40%2F%C3%BC"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{QUOTED}@127.0.0.1:1/database",
        f"postgresql://user@127.0.0.1:1/database?password={QUOTED}",
        f"postgresql://user:{SECRET}@nowhere.invalid:1/database",
        "postgresql://user:p@s3cr3t@nowhere.invalid:1/database",
        f"postgresql://user:{QUOTED}@127.0.0.1:port/database",
        f"postgresql://user:{QUOTED}@127.0.0.1:1/database?unknown={QUOTED}",
    ],
)
def test_a_message_never_contains_a_password(url: str) -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        PostgresStore(url)
    trace = "".join(traceback.format_exception(caught.value))
    lines = [line for line in trace.splitlines() if "Error" in line or "Unavailable" in line]
    for text in (str(caught.value), *lines):
        assert "s3cr3t" not in text


def test_names_and_messages_without_passwords() -> None:
    url = f"postgresql://user:{QUOTED}@host:5433/database"
    assert parse_address(url)[1] == "postgresql://user@host:5433/database"
    error = RuntimeError(f"bad\n  {SECRET} or {QUOTED} or postgresql://a:b@c/d")
    assert redact_message(error, url) == "bad … or … or postgresql://a:…@c/d"


def test_without_the_library() -> None:
    code = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "from dpolicy.errors import LedgerUnavailable\n"
        "from dpolicy.ledger.store_address import open_store\n"
        "try: open_store('postgresql://x/y')\n"
        "except LedgerUnavailable as error: print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "pip install 'dpolicy[postgres]'" in ended.stdout
