"""Demo: reproducible sample ledger with every kind of record, and a server for all pages."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from dpolicy.cli.main import exit_code
from dpolicy.demo.demo_server import fetch
from dpolicy.demo.sample_ledger import (
    candidate_text,
    policy_text,
    read_text,
    round_text,
    write_sample_ledger,
)
from dpolicy.demo.sample_requests import generate_year
from dpolicy.ledger.store_address import open_existing
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

NOW = datetime(2026, 11, 16, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def sample_store() -> MemoryStore:
    store = MemoryStore()
    write_sample_ledger(store, NOW)
    return store


def test_a_year_is_the_same_every_time() -> None:
    assert generate_year(NOW.date()) == generate_year(NOW.date())
    names = [request.body["release"] for request in generate_year(NOW.date())]
    assert len(names) == len(set(names)) > 400


@pytest.mark.parametrize("day", ["2024-02-29", "2026-01-01", "2027-12-31", "2030-07-15"])
def test_a_sample_ledger_can_end_on_any_day(day: str) -> None:
    store = MemoryStore()
    write_sample_ledger(store, datetime.fromisoformat(f"{day}T23:30:00+00:00"))
    statuses = Counter(entry.status for entry in DecisionPoint(store).entries.values())
    assert statuses["denied"] >= 1 and statuses["allowed"] > 400


def test_the_sample_ledger_has_every_kind_of_release(sample_store: MemoryStore) -> None:
    point = DecisionPoint(sample_store, lambda: NOW)
    statuses = Counter(entry.status for entry in point.entries.values())
    assert {"allowed", "denied", "reserved", "voided", "committed", "imported"} <= set(statuses)
    assert point.entries["home-zone-heat-map"].status == "denied"
    assert [p.subject for p in point.proposals.values()] == ["student-travel-index"]
    assert all(balance.holds for balance in point.budgets())
    candidate = compile_policy([Source("policy.yaml", candidate_text())])
    assert [c.name for c in point.conflicts(candidate)] == ["attribute[home-zone] × standard"]


def test_the_ledger_verifies(sample_store: MemoryStore) -> None:
    assert audit_ledger(sample_store).findings == ()


def test_the_texts_differ_where_they_should() -> None:
    assert candidate_text() != policy_text()
    assert "FIRST" in read_text("round.yaml") and "FIRST" not in round_text(NOW.date())
    assert not compile_policy([Source("policy.yaml", policy_text())]).warnings


def test_the_demo_is_served_until_sigterm() -> None:
    program = "from dpolicy.cli.main import run; run(['demo', '--no-browser'])"
    with Popen([sys.executable, "-c", program], stdout=PIPE, stderr=PIPE, text=True) as demo:
        assert demo.stdout is not None
        url = demo.stdout.readline().split()[-1]
        assert b"home-zone" in fetch(url)
        demo.send_signal(signal.SIGTERM)
        _, stderr = demo.communicate(timeout=60)
    assert (demo.returncode, stderr.count("\n")) == (0, 1)


def test_the_demo_checks_every_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["demo", str(tmp_path / "demo"), "--check"]) == 0
    assert "/releases/home-zone-heat-map" in capsys.readouterr().out
    store = open_existing(str(tmp_path / "demo" / "ledger.db"))
    before = len(list(store.records_after(0)))
    store.close()
    assert exit_code(["demo", str(tmp_path / "demo"), "--check"]) == 0
    store = open_existing(str(tmp_path / "demo" / "ledger.db"))
    assert len(list(store.records_after(0))) == before
    store.close()
