"""What referees found and must not come back: one test each, by what went wrong."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from dpolicy.cli.main import exit_code
from dpolicy.errors import PolicyRejected
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.calibration import calibrate_noise
from dpolicy.privacy.certificates import renyi
from dpolicy.privacy.mechanisms.gaussian import Gaussian, Pate
from dpolicy.privacy.units.group_privacy import cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period
from dpolicy.rules.compiler import CompiledPolicy, compile_policy, load_policy
from dpolicy.text.yaml_reader import Source

USER = PrivacyUnit("user", "user")
DAY = PrivacyUnit("user-day", "user", parse_period("day"))
ORDERS = (renyi(2), renyi(4), renyi(8))


def compiled(text: str) -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", text)])


def test_a_list_that_is_not_empty_is_not_never_true() -> None:
    """`has` on a `many` label counted no value at all, so the rule was pruned by another."""
    policy = compiled(
        "dpolicy: 1\naccounting: {delta: 1e-7}\nschema:\n  attributes: {zip: {}}\n"
        "  labels: {purpose: {values: [research, product], many: true}}\npolicies:\n"
        "  - {name: a, kind: custom, unit: user, budget: {epsilon: 1}, "
        "when: 'has(labels.purpose) && by == \"alice\"'}\n"
        "  - {name: z, kind: custom, unit: user, budget: {epsilon: 0.5}, "
        "when: '\"zip\" in attributes'}\n"
    )
    assert (policy.rule_count, policy.kept_count, policy.warnings) == (2, 2, ())


def costs(mechanism: Gaussian, also: Gaussian | None, *, additive: bool) -> list[float]:
    table = cost_by_unit(
        mechanism,
        USER,
        NeighbouringRelation.ADD_REMOVE,
        units=(USER, DAY),
        certificates=ORDERS,
        additive=additive,
        also={"user-day": also} if also else None,
    )
    return [amount / 10**12 for amount in table["user-day"].amounts]


def test_a_sample_of_users_does_not_amplify_a_restated_day() -> None:
    """P = .99 N(0) + .01 N(1) against Q = .99 N(0) + .01 N(½): exact by quadrature."""
    rate = Fraction(1, 100)
    sampled = Gaussian(Fraction(1), Fraction(1), 1, rate)
    restated = Gaussian(Fraction(1), Fraction(1, 2), 1, rate)
    exact = (6.873e-5, 1.455e-4, 3.463e-4)
    found = costs(sampled, restated, additive=False)
    assert all(ours >= true for ours, true in zip(found, exact, strict=True))


def test_a_sample_of_users_does_not_amplify_a_part_of_an_additive_one() -> None:
    """Two days with v = (1, 0) and (−½, √3/2): every subset sum has norm at most 1."""
    sampled = Gaussian(Fraction(1), Fraction(1), 1, Fraction(1, 100))
    found = costs(sampled, None, additive=True)
    assert found[0] >= 2.0507e-4 and found[1] >= 4.1388e-4
    table = cost_by_unit(
        sampled,
        USER,
        NeighbouringRelation.ADD_REMOVE,
        units=(USER, DAY),
        certificates=ORDERS,
        additive=True,
    )
    larger = table["user"].amounts
    assert all(
        small <= large for small, large in zip(table["user-day"].amounts, larger, strict=True)
    )


def test_teachers_are_sampled_once_for_all_queries() -> None:
    many = Pate(Fraction(40), 1000, 1, Fraction(1, 100))
    one = Gaussian(Fraction(40), Fraction(1), 1, None)
    table = [
        cost_by_unit(m, USER, NeighbouringRelation.ADD_REMOVE, units=(USER,), certificates=ORDERS)[
            "user"
        ]
        for m in (many, one)
    ]
    assert table[0].amounts[0] > 1000 * table[1].amounts[0] / 10**4


def test_a_month_of_a_household_is_not_a_month_of_a_user() -> None:
    head = "dpolicy: 1\naccounting: {delta: 1e-7, relation: change}\n"
    units = "user: {}, user-month: {period: month}, household: {covers: [user]}"
    rule = "\npolicies: [{name: g, kind: custom, when: always, units: [user-month, UNIT], "
    rule += "budget: {epsilon: 1}}]\n"
    named = compiled(
        f"{head}units: {{{units}, household-month: {{period: month}}}}"
        + rule.replace("UNIT", "household-month")
    )
    assert named.checked_policy_set.vocabulary.units["household-month"].entity == "household"
    assert [(r.unit, w and w.unit) for r, w in named.all_rules] == [
        ("user-month", "household-month"),
        ("household-month", None),
    ]
    with pytest.raises(PolicyRejected, match="P018"):
        compiled(
            f"{head}units: {{{units}, monthly: {{period: month}}}}"
            + rule.replace("UNIT", "monthly")
        )


POLICY = "dpolicy: 1\naccounting: {delta: 1e-7}\npolicies:\n  - {name: NAME, kind: custom, "
POLICY += "when: always, unit: user, budget: {epsilon: 1}}\n"


@pytest.mark.parametrize("name", ["b.YAML", "strict_test.yaml", "b.Json"])
def test_no_policy_beside_others_is_left_out(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.yaml").write_text(POLICY.replace("NAME", "a"))
    (tmp_path / name).write_text(
        "policies: [{name: b, kind: custom, when: always, unit: user, budget: {epsilon: 1}}]\n"
        "dpolicy: 1\n"
        if not name.endswith("Json")
        else '{"dpolicy": 1, "policies": [{"name": "b", "kind": "custom", "when": "always", '
        '"unit": "user", "budget": {"epsilon": 1}}]}'
    )
    assert load_policy(tmp_path).rule_count == 2


def test_a_release_that_also_says_policies_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POLICY.replace("NAME", "a"))
    (tmp_path / "c.yaml").write_text("release: x\npolicies: []\n")
    with pytest.raises(PolicyRejected):
        load_policy(tmp_path)


def test_a_rate_that_no_float_tells_from_one_is_no_sample(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "release: r\nmechanisms: [{mechanism: {kind: gaussian, sigma: 1, "
        "sampling-rate: 0.99999999999999999999}}]\n"
    )
    assert exit_code(["cost", str(file)]) == 0


def test_an_empty_mechanism_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("release: r\nmechanisms: [{mechanism: {}}]\n")
    assert exit_code(["cost", str(file)]) == 3
    assert "M001" in capsys.readouterr().err


@pytest.mark.parametrize(("epsilon", "delta"), [("0.01", "0.01"), ("0.001", "0.5")])
def test_a_target_that_needs_no_epsilon_can_be_met(epsilon: str, delta: str) -> None:
    noise, reached = calibrate_noise("gaussian", {}, Fraction(epsilon), Fraction(delta))
    assert noise > 0 and reached <= float(epsilon)


def test_orders_that_are_close_are_shown_apart() -> None:
    policy = compiled(
        "dpolicy: 1\npolicies: [{name: g, kind: custom, when: always, unit: user, "
        "budget: {renyi: {2: 0.3, 2.0000001: 0.4}}}]\n"
    )
    assert budget_to_json(policy.rules[0].budget) == {"renyi": {"2": 0.3, "2.0000001": 0.4}}


def test_a_grid_may_be_empty() -> None:
    policy = compiled(POLICY.replace("{delta: 1e-7}", "{delta: 1e-7, orders: []}"))
    assert policy.rules[0].bound.delta == Fraction("1e-7")


def test_a_release_that_cannot_be_read_is_told_in_json_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text(POLICY.replace("NAME", "a"))
    release = tmp_path / "r.yaml"
    release.write_text(
        "release: r\nmechanisms: [{mechanism: {kind: gaussian, sigma: 1}, attributes: [zpi]}]\n"
    )
    ledger = ["--ledger", str(tmp_path / "ledger.db")]
    assert exit_code(["apply", str(tmp_path / "p.yaml"), *ledger]) == 0
    capsys.readouterr()
    assert exit_code(["submit", str(release), *ledger, "--format", "json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert [problem["code"] for problem in told["diagnostics"]] == ["R002"]
