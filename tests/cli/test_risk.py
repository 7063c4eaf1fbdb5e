"""`dpolicy risk` and the risk of costs and budgets: one number everywhere, rounded up in texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from dpolicy.cli.exit_codes import USAGE
from dpolicy.cli.main import exit_code
from dpolicy.privacy.budget import EpsilonDelta, Gdp
from dpolicy.privacy.risk.attacker_risk import risk_of_budget
from dpolicy.privacy.risk.risk_text import format_percent

Run = Callable[[str], str]

POLICY = """\
dpolicy: 1
units: {user: {}}
schema: {attributes: {zip: {}}}
accounting: {delta: 1e-9}
policies:
  - {name: global, kind: custom, unit: user, when: "true", budget: {epsilon: 3}}
  - {name: zips, kind: custom, unit: user, when: '"zip" in attributes', budget: {rho: 0.1}}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY, "utf-8")

    def run_command(line: str) -> str:
        assert exit_code(line.split()) == 0
        return capsys.readouterr().out

    return run_command


def test_json_has_the_numbers_of_the_budget(run: Run) -> None:
    risk = risk_of_budget(EpsilonDelta(Fraction(3), Fraction("1e-7")))
    answer = json.loads(run("risk --epsilon 3 --delta 1e-7 --format json"))
    assert answer["budget"] == {"epsilon": 3.0, "delta": 1e-07}
    assert answer["risk"] | risk.as_json() == answer["risk"]
    assert answer["risk"]["guess"]["0.5"] == risk.guess(0.5)
    assert dict(answer["risk"]["tradeoff"])[0.05] == risk.true_positive_rate(0.05)
    assert "worst case" in answer["assumptions"][0]
    assert "1e-06" in answer["assumptions"][1]


def test_printed_shares_are_not_below_the_numbers(run: Run) -> None:
    for mu in ("0.1", "0.7", "1.3"):
        risk = risk_of_budget(Gdp(Fraction(mu)))
        text = run(f"risk --mu {mu} --prior 0.3 --false-alarms 0.02")
        (belief,) = re.findall(r"ends at no more than ([\d.]+) %", text)
        (rate,) = re.findall(r"recognises at most ([\d.]+) %", text)
        assert Fraction(belief) >= 100 * Fraction(repr(risk.posterior(0.3)))
        assert Fraction(rate) >= 100 * Fraction(repr(risk.true_positive_rate(0.02)))


def test_budgets_costs_and_policies_have_the_same_risk(run: Run) -> None:
    run("apply policy.yaml --ledger ledger.db")
    by_policy = json.loads(run("risk --policy policy.yaml --format json"))
    assert json.loads(run("risk --ledger ledger.db --format json")) == by_policy
    statuses = json.loads(run("budgets --ledger ledger.db --format json"))["budgets"]
    assert {json.dumps(s["risk"]) for s in statuses} == {
        json.dumps(row["risk"]) for row in by_policy["budgets"]
    }
    assert {s["risk"]["posterior-failure"] for s in statuses} == {1e-8, 1e-9}
    assert len(run("risk --ledger ledger.db").splitlines()) == 2


def test_the_cost_of_a_gaussian_has_its_exact_rate(run: Run) -> None:
    Path("release.yaml").write_text(
        "release: r\nmechanisms:\n  - {unit: user, mechanism: {kind: gaussian, sigma: 1}}\n",
        "utf-8",
    )
    unit = json.loads(run("cost release.yaml --format json"))["mechanisms"][0]["units"]["user"]
    risk = risk_of_budget(Gdp(Fraction(1)))
    assert unit["risk"]["tpr"] == risk.as_json()["tpr"]
    assert unit["risk"]["advantage"] == risk.advantage
    assert "recognised 9.24 % at 1 % false alarms" in run("cost release.yaml --risk")
    assert "recognised" not in run("cost release.yaml")


@pytest.mark.parametrize(
    "line",
    [
        "risk",
        "risk --epsilon 1 --rho 1",
        "risk --epsilon -1",
        "risk --epsilon x",
        "risk --epsilon 1 --delta 1",
        "risk --epsilon 1 --prior 1.5",
        "risk --mu 1 --false-alarms -0.1",
    ],
)
def test_wrong_options_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(line.split()) == USAGE
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "100 %"),
        (0.9526, "95.3 %"),
        (0.99999, "99.999 %"),
        (1 - 1e-9, "< 100 %"),
        (0.0, "0 %"),
        (0.001, "0.1 %"),
        (1e-9, "1e-07 %"),
    ],
)
def test_percentages(value: float, text: str) -> None:
    assert format_percent(value) == text
