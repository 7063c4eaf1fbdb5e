"""`dpolicy copy` writes a complete backup, updates it, and never overwrites another ledger."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.pdp.builders import pure, started

from dpolicy.cli.main import exit_code
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint


def copy_ledger(tmp_path: Path, ledger: str = "ledger.db", target: str = "copy.db") -> int:
    return exit_code(["copy", str(tmp_path / target), "--ledger", str(tmp_path / ledger)])


def test_a_copy_equals_the_ledger_and_can_be_updated(tmp_path: Path) -> None:
    decision_point = started(store=open_store(str(tmp_path / "ledger.db")))
    for number in range(3):
        decision_point.submit(pure(f"r{number}", "0.001"))
        assert copy_ledger(tmp_path) == 0
        copy = open_store(str(tmp_path / "copy.db"))
        assert list(copy.records_after(0)) == list(decision_point.records())
        assert audit_ledger(copy).findings == ()
        copy.close()
    decision_point.close()
    restored = DecisionPoint(str(tmp_path / "copy.db"))
    assert restored.submit(pure("r0", "0.001")).replayed
    restored.close()


def test_a_copy_made_during_writes_is_consistent(tmp_path: Path) -> None:
    decision_point = started(store=open_store(str(tmp_path / "ledger.db")))
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            decision_point.submit(pure(f"r{number}", "0.000001"))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert [copy_ledger(tmp_path) for _ in range(5)] == [0] * 5
    finally:
        done.set()
        writer.join()
    copy = open_store(str(tmp_path / "copy.db"))
    records = list(copy.records_after(0))
    assert records == list(decision_point.records())[: len(records)]
    assert audit_ledger(copy).findings == ()
    copy.close()
    decision_point.close()


def test_another_ledger_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ledger.db", "copy.db"):
        decision_point = started(store=open_store(str(tmp_path / name)))
        decision_point.submit(pure(f"only-in-{name}", "0.001"))
        decision_point.close()
    before = (tmp_path / "copy.db").read_bytes()
    assert copy_ledger(tmp_path) == 5
    assert "a different ledger" in capsys.readouterr().err
    assert (tmp_path / "copy.db").read_bytes() == before
    longer = DecisionPoint(str(tmp_path / "copy.db"))
    longer.submit(pure("more", "0.001"))
    longer.close()
    assert copy_ledger(tmp_path) == 5
    assert copy_ledger(tmp_path, target="ledger.db") == 64
    assert copy_ledger(tmp_path, ledger="nothing.db") == 1
