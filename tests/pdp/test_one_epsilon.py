"""One ε: cost preview, reason and rule status have the same number for the same rule."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pdp.builders import started

from dpolicy.cli.main import exit_code
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.dry_runs.cost_preview import CostPreview, preview_costs
from dpolicy.privacy.number_text import format_up
from dpolicy.releases.release_parser import release_from_plain

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7, relation: change}
units: {user: {}, user-day: {period: day}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}}
  partitions: {country: {values: [AT, CH]}}
"""

BUDGETS = (
    "{epsilon: 3}",
    "{epsilon: 0.7, delta: 1e-5}",
    "{epsilon: 2, delta: 0}",
    "{rho: 0.3}",
    "{mu: 0.9}",
    "{renyi: {2: 0.3, 8: 1.2}}",
    "unlimited",
)
SCOPES = ("always", "'\"zip\" in attributes'")
UNITS = ("user", "user-day")
CUMULATIVE = ("classic", "anchored", "gaussian")


@st.composite
def rules(draw: st.DrawFn, profiles: tuple[str, ...]) -> str:
    """Draw one to four base policies with the given profiles."""
    lines = []
    for number in range(draw(st.integers(1, 4))):
        budget = draw(st.sampled_from(BUDGETS))
        scope, unit = draw(st.sampled_from(SCOPES)), draw(st.sampled_from(UNITS))
        profile = draw(st.sampled_from(profiles))
        lines.append(
            f"  - {{name: rule-{number}, kind: custom, when: {scope}, unit: {unit}, "
            f"profile: {profile}, budget: {budget}}}\n"
        )
    return "".join(lines)


@st.composite
def mechanisms(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a mechanism of a release, stated for `user` or for `user-day`."""
    size = Fraction(draw(st.integers(1, 400)), 20)
    parameters = draw(
        st.sampled_from(
            [
                {"kind": "gaussian", "sigma": size},
                {"kind": "laplace", "scale": size},
                {"kind": "declared", "epsilon": size / 10},
                {"kind": "declared", "rho": size / 100},
                {"kind": "gaussian", "sigma": size, "count": 3, "sampling-rate": Fraction(1, 10)},
            ]
        )
    )
    fields: dict[str, Any] = {
        "mechanism": parameters,
        "unit": draw(st.sampled_from(UNITS)),
        "attributes": draw(st.sampled_from([[], ["zip"], ["views", "zip"]])),
    }
    if draw(st.booleans()):
        fields["where"] = {"country": ["CH"]}
    if draw(st.booleans()):
        fields["time"] = {"from": "2026-10-01", "to": "2026-10-02"}
    return fields


def preview(point: DecisionPoint, body: dict[str, Any]) -> CostPreview:
    release = release_from_plain(body)
    return point.read_state(lambda state: preview_costs(state, release))


@settings(max_examples=60, deadline=None)
@given(rules(CUMULATIVE), rules((*CUMULATIVE, "static")), mechanisms())
def test_a_rule_has_one_cost_for_a_release_alone(
    cumulative: str, each: str, mechanism: dict[str, Any]
) -> None:
    point = started(cumulative, head=HEAD, each=each.replace("rule-", "cap-"))
    body = {"release": "only", "mechanisms": [mechanism]}
    costs = preview(point, body)
    assert costs.mechanisms == (costs.release,)
    by_rule = {(c.rule.name, c.rule.unit, c.rule.each_release): c for c in costs.release}
    decision = point.check(body)
    for reason in decision.reasons:
        assert reason.cost == reason.after
        cost = by_rule.get((reason.rule, reason.unit, reason.each_release))
        if cost is None:  # counted with another rule
            same = [c for c in costs.release if c.rule.unit == reason.unit and c.rule_count > 1]
            assert any(c.cost == reason.cost for c in same)
        else:
            assert cost.cost == reason.cost
    point.import_past(body)
    spent = {(s.rule.name, s.rule.unit): s.spent for s in point.budgets()}
    for (name, unit, each_release), cost in by_rule.items():
        assert each_release or cost.cost == spent[name, unit]


@settings(max_examples=25, deadline=None)
@given(rules(CUMULATIVE), st.lists(mechanisms(), min_size=2, max_size=3))
def test_the_cost_of_a_release_is_that_of_all_its_mechanisms(
    cumulative: str, parts: list[dict[str, Any]]
) -> None:
    point = started(cumulative, head=HEAD)
    body = {"release": "only", "mechanisms": parts}
    costs = preview(point, body)
    named = {(c.rule.name, c.rule.unit): c.cost for c in costs.release}
    for reason in point.check(body).reasons:
        assert named.get((reason.rule, reason.unit), reason.cost) == reason.cost


POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 3}}
each-release:
  - {name: cap, kind: custom, when: always, unit: user, profile: static, budget: {epsilon: 2}}
"""
RELEASE = "release: r\nmechanisms: [{name: sum, mechanism: {kind: gaussian, sigma: 5.78}}]\n"


@pytest.mark.parametrize(
    ("stated", "profile", "spent"),
    [("", "anchored", "0.843756"), (", profile: classic", "classic", "0.998861")],
)
def test_the_commands_print_the_same_numbers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stated: str,
    profile: str,
    spent: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY.replace("1e-7", f"1e-7{stated}"), "utf-8")
    Path("release.yaml").write_text(RELEASE, "utf-8")

    def run(line: str) -> str:
        assert exit_code(line.split()) == 0
        return capsys.readouterr().out

    run("apply policy.yaml --ledger ledger.db")
    by_policy = json.loads(run("cost release.yaml --policy policy.yaml --format json"))
    by_ledger = json.loads(run("cost release.yaml --ledger ledger.db --format json"))
    assert by_policy == by_ledger
    unit = by_policy["mechanisms"][0]["units"]["user"]
    numbers = {entry["rule"]: entry["cost"]["epsilon"] for entry in unit["filters"]}
    assert unit["epsilon"] < min(numbers.values())
    assert format_up(numbers["global"]) == spent
    profiles = {entry["rule"]: entry["profile"] for entry in unit["filters"]}
    assert profiles == {"cap": "static", "global": profile}

    cap = format_up(numbers["cap"])
    text = run("cost release.yaml --policy policy.yaml")
    decision = json.loads(run("submit release.yaml --ledger ledger.db --format json"))
    assert {r["rule"]: r["cost"]["epsilon"] for r in decision["reasons"]} == numbers
    budgets = json.loads(run("budgets --ledger ledger.db --format json"))["budgets"]
    assert {b["rule"]: b["spent"]["epsilon"] for b in budgets} == {"global": numbers["global"]}

    assert text.splitlines() == [
        "sum",
        "  user  ε 0.798794 exact    pure –           ρ 0.0149663   μ 0.173011",
        f"        ε {cap} by the static filter of cap (each release)",
        f"        ε {spent} by the {profile} filter of global",
    ]
    submitted = run("submit release.yaml --ledger ledger.db")
    assert f"0 → {spent} of ε 3 (alone {spent}, by the rule's filter)" in submitted
    assert f"{cap} of ε 2 (this release alone, by the rule's filter)" in submitted
    assert f"{spent} of ε 3  δ 1e-07" in run("budgets --ledger ledger.db")


def test_a_release_that_a_policy_cannot_decide_has_an_exact_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, release = tmp_path / "policy.yaml", tmp_path / "release.yaml"
    labels = "schema: {labels: {team: {text: true, required: true}}}\npolicies:"
    policy.write_text(POLICY.replace("policies:", labels), "utf-8")
    release.write_text(RELEASE, "utf-8")
    assert exit_code(["cost", str(release), "--policy", str(policy), "--format", "json"]) == 0
    captured = capsys.readouterr()
    unit = json.loads(captured.out)["mechanisms"][0]["units"]["user"]
    assert unit["epsilon"] > 0 and unit["filters"] == []
    assert "R004" in captured.err and "`team`" in captured.err
