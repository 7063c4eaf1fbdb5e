"""`dpolicy headroom`: text, JSON and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpolicy.cli.main import exit_code

POLICY = """
dpolicy: 1
accounting: {delta: 1e-7}
schema: {attributes: {zip: {risk: high}, views: {risk: low}}}
policies:
  - {name: zips, kind: custom, when: '"zip" in attributes', unit: user, budget: {epsilon: 1}}
each-release:
  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 0.5}}
"""
RELEASE = (
    "release: r1\nmechanisms: [{mechanism: {kind: declared, epsilon: %s}, attributes: [%s]}]\n"
)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY, "utf-8")
    Path("small.yaml").write_text(RELEASE % ("0.25", "zip"), "utf-8")
    Path("large.yaml").write_text(RELEASE % ("0.75", "zip"), "utf-8")
    Path("views.yaml").write_text(RELEASE % ("0.25", "views"), "utf-8")
    monkeypatch.setenv("DPOLICY_LEDGER", str(tmp_path / "ledger.db"))
    assert exit_code(["apply", "policy.yaml"]) == 0
    return tmp_path / "ledger.db"


def test_the_text_has_the_first_limit_and_a_line_per_rule(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert exit_code(["headroom", "small.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "4 more like r1; first limit: zips (unit user)",
        "    4 more  zips  unit user  spent 0 of ε 1 (alone 0.25)",
        "  no limit  cap  unit user  0.25 of ε 0.5 (each release alone)",
    ]


def test_a_recorded_release_is_named_by_its_id(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["submit", "small.yaml"]) == 0
    capsys.readouterr()
    assert exit_code(["headroom", "r1", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["release"] == "r1" and answer["more"] == 3
    assert [rule["more"] for rule in answer["rules"]] == [3, None]
    assert answer["most-accurate"] is None


def test_a_denied_release_has_exit_code_2(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["headroom", "large.yaml", "--most-accurate"]) == 2
    out = capsys.readouterr().out
    assert "0 more like r1; first limit: cap (unit user)" in out
    assert out.endswith("most accurate version that fits now: epsilon 0.75 → 0.5\n")


def test_an_uncovered_release_has_exit_code_2(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["headroom", "views.yaml"]) == 2
    assert "no cumulative rule covers mechanism `mechanism 1`" in capsys.readouterr().out


def test_neither_a_file_nor_a_release_is_wrong_usage(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["headroom", "missing.yaml"]) == 64
    assert "neither a file nor a recorded release" in capsys.readouterr().err
