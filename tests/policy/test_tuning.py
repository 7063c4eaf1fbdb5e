"""`tuned-for`: part of the content of a policy, and the shares of δ of its rules."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from tests.policy.diagnose import diagnose

from dpolicy import DecisionPoint
from dpolicy.cli.main import exit_code
from dpolicy.policy.accounting.accounting_defaults import (
    DEFAULTS,
    NEWEST_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.privacy.thresholds import Profile
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.diagnostics import Severity
from dpolicy.text.yaml_reader import Source

TEXT = """
dpolicy: 1
accounting: {delta: 1e-5, profile: anchored%s}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 1}}
  - {name: more, kind: custom, when: always, unit: user, budget: {epsilon: 3}}
"""
SLOW = "{kind: dp-sgd, noise-multiplier: 1, sampling-rate: 0.001, steps: 10000}"
QUICK = "{kind: dp-sgd, noise-multiplier: 1.1, sampling-rate: 0.004267, steps: 1000}"
TUNED = f", tuned-for: [{SLOW}, {QUICK}]"


def compiled(more: str, defaults: AccountingDefaults = NEWEST_DEFAULTS) -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", TEXT % more)], defaults)


def training(name: str, noise: str, rate: str, steps: int) -> dict[str, object]:
    parameters = {
        "noise-multiplier": Fraction(noise),
        "sampling-rate": Fraction(rate),
        "steps": Fraction(steps),
    }
    return {
        "release": name,
        "mechanisms": [{"mechanism": {"kind": "dp-sgd", **parameters}, "relation": "add-remove"}],
    }


@pytest.mark.parametrize("number", DEFAULTS)
def test_tuned_rules_do_not_depend_on_the_defaults_of_the_ladder(number: int) -> None:
    policy = compiled(f"{TUNED}, leaks: 10 %", DEFAULTS[number])
    assert policy.accounting.shares_for(Profile.ANCHORED) == policy.accounting.tuned is not None
    assert policy.accounting.shares_for(Profile.CLASSIC) is None
    newest = compiled(f"{TUNED}, leaks: 10 %")
    assert [r.bound for r in policy.rules] == [r.bound for r in newest.rules]


def test_a_looser_rule_is_still_pruned() -> None:
    assert [rule.name for rule in compiled(TUNED).rules] == ["all"]


def test_typical_mechanisms_and_weights_are_part_of_the_digest() -> None:
    heavier = TUNED.replace("steps: 1000}", "steps: 1000, weight: 2}")
    once = TUNED.replace("steps: 1000}", "steps: 1000, weight: 1}")
    digests = [compiled(more).digest for more in ("", TUNED, heavier, once)]
    assert len(set(digests)) == 3 and digests[1] == digests[3]


@pytest.mark.parametrize(
    ("entry", "code"),
    (
        ("{kind: gauss, sigma: 1}", "P048"),
        ("{kind: gaussian}", "P048"),
        ("{kind: gaussian, sigma: 0}", "P048"),
        ("{kind: gaussian, sigma: 1, weight: 0}", "P009"),
        ("{kind: gaussian, sigma: 1, weight: much}", "P007"),
        ("gaussian", "P007"),
        ("{kind: declared, epsilon: 30}", None),
    ),
)
def test_invalid_entries_are_reported(entry: str, code: str | None) -> None:
    found = diagnose(TEXT % f", tuned-for: [{entry}]")
    codes = [d.code for d in found if d.severity is Severity.ERROR]
    assert code is None or codes == [code]


def test_an_empty_list_and_unusable_sections_are_reported() -> None:
    classic = (TEXT % TUNED).replace("profile: anchored", "profile: classic")
    tiny = (TEXT % ", tuned-for: [{kind: declared, rho: 10}]").replace("epsilon: 3", "rho: 1")
    tiny = tiny.replace("epsilon: 1", "epsilon: 1e-4")
    for text, code in ((TEXT % ", tuned-for: []", "P007"), (classic, "P049"), (tiny, "P049")):
        assert [d.code for d in diagnose(text) if d.severity is Severity.ERROR] == [code]


def test_trainings_are_allowed_under_a_policy_that_is_tuned_for_them() -> None:
    """Rows 1, 2 and 4 of the referee's table at (1, 10⁻⁵); exact accounting needs at most 0.599."""
    rows = (("1", "0.001", 1), ("1", "0.001", 10_000), ("1.1", "0.004267", 1000))
    for more, allowed in ((TUNED, [True, True, True]), ("", [True, False, False])):
        decisions = []
        for number, row in enumerate(rows):
            point = DecisionPoint(":memory:")
            point.apply(compiled(more), by="officer", because="start")
            decisions.append(bool(point.submit(training(f"r{number}", *row)).allowed))
            point.close()
        assert decisions == allowed


def test_tune_prints_the_section_that_it_proposes_from_a_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, file = tmp_path / "ledger.db", tmp_path / "policy.yaml"
    file.write_text(TEXT % TUNED, "utf-8")
    point = DecisionPoint(ledger)
    point.apply(compiled(TUNED), by="officer", because="start")
    for number in range(3):
        assert point.submit(training(f"s{number}", "2", "0.001", 10)).allowed
    assert point.submit(training("q", "1.5", "0.001", 10)).allowed
    assert not point.submit(training("denied", "0.5", "1", 10)).allowed
    point.close()
    assert exit_code(["tune", str(file), "--ledger", str(ledger), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [entry["weight"] for entry in answer["tuned-for"]] == [3, 1]
    assert answer["tuned-for"][0]["noise-multiplier"] == 2
    assert exit_code(["tune", str(file), "--ledger", str(ledger)]) == 0
    section = capsys.readouterr().out
    again = section + "  delta: 1e-5\n" + (TEXT % "").split("\n", 3)[3]
    proposed = compile_policy([Source("policy.yaml", "dpolicy: 1\n" + again)])
    assert [float(t.weight) for t in proposed.accounting.tuned_for or ()] == [3, 1]


def test_tune_prints_the_shares_of_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(TEXT % TUNED, "utf-8")
    assert exit_code(["tune", str(file), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    tuned = compiled(TUNED).accounting.tuned
    assert tuned is not None
    assert [part["share"] for part in answer["shares"]] == [float(share) for _, share in tuned]
    assert all(budget["tuned"] > budget["untuned"] for budget in answer["budgets"])
    file.write_text(TEXT % "", "utf-8")
    assert exit_code(["tune", str(file)]) == 64
