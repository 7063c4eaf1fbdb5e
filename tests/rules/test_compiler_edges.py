"""Edge cases of compilation: label presence, entities of units, policy directories, grids."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dpolicy.errors import PolicyRejected
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.certificates import PURE, Notion
from dpolicy.privacy.shares.anchored_shares import LADDER
from dpolicy.rules.compiler import CompiledPolicy, compile_policy, load_policy
from dpolicy.text.yaml_reader import Source

POLICY = (
    "dpolicy: 1\naccounting: {delta: 1e-7}\npolicies:\n"
    "  - {name: a, kind: custom, when: always, unit: user, budget: {epsilon: 1}}\n"
)


def compile_text(text: str) -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", text)])


def test_has_on_a_many_label_can_be_true() -> None:
    """A rule with `has` on a `many` label must not be pruned as if it were never true."""
    policy = compile_text(
        "dpolicy: 1\naccounting: {delta: 1e-7}\nschema:\n  attributes: {zip: {}}\n"
        "  labels: {purpose: {values: [research, product], many: true}}\npolicies:\n"
        "  - {name: a, kind: custom, unit: user, budget: {epsilon: 1}, "
        "when: 'has(labels.purpose) && by == \"alice\"'}\n"
        "  - {name: z, kind: custom, unit: user, budget: {epsilon: 0.5}, "
        "when: '\"zip\" in attributes'}\n"
    )
    assert (policy.rule_count, policy.kept_count, policy.warnings) == (2, 2, ())


def test_a_household_month_is_not_a_user_month() -> None:
    head = "dpolicy: 1\naccounting: {delta: 1e-7, relation: change}\n"
    units = "user: {}, user-month: {period: month}, household: {covers: [user]}"
    rule = "\npolicies: [{name: g, kind: custom, when: always, units: [user-month, UNIT], "
    rule += "budget: {epsilon: 1}}]\n"
    policy = compile_text(
        f"{head}units: {{{units}, household-month: {{period: month}}}}"
        + rule.replace("UNIT", "household-month")
    )
    assert policy.checked_policy_set.vocabulary.units["household-month"].entity == "household"
    assert [(r.unit, w and w.unit) for r, w in policy.all_rules] == [
        ("user-month", "household-month"),
        ("household-month", None),
    ]
    with pytest.raises(PolicyRejected, match="P018"):
        compile_text(
            f"{head}units: {{{units}, monthly: {{period: month}}}}"
            + rule.replace("UNIT", "monthly")
        )


@pytest.mark.parametrize("name", ["b.YAML", "strict_test.yaml", "b.Json"])
def test_a_directory_loads_every_policy_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.yaml").write_text(POLICY)
    (tmp_path / name).write_text(
        "policies: [{name: b, kind: custom, when: always, unit: user, budget: {epsilon: 1}}]\n"
        "dpolicy: 1\n"
        if not name.endswith("Json")
        else '{"dpolicy": 1, "policies": [{"name": "b", "kind": "custom", "when": "always", '
        '"unit": "user", "budget": {"epsilon": 1}}]}'
    )
    assert load_policy(tmp_path).rule_count == 2


def test_a_release_file_with_policies_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POLICY)
    (tmp_path / "c.yaml").write_text("release: x\npolicies: []\n")
    with pytest.raises(PolicyRejected):
        load_policy(tmp_path)


def test_close_orders_are_printed_differently() -> None:
    policy = compile_text(
        "dpolicy: 1\npolicies: [{name: g, kind: custom, when: always, unit: user, "
        "budget: {renyi: {2: 0.3, 2.0000001: 0.4}}}]\n"
    )
    assert budget_to_json(policy.rules[0].budget) == {"renyi": {"2": 0.3, "2.0000001": 0.4}}


def test_the_grid_of_orders_can_be_empty() -> None:
    """`classic` then offers pure ε only and all of δ for leaks; `anchored` keeps its ladder."""
    bounds = {
        profile: compile_text(
            POLICY.replace("{delta: 1e-7}", f"{{delta: 1e-7, orders: [], profile: {profile}}}")
        )
        .rules[0]
        .bound
        for profile in ("classic", "anchored")
    }
    assert bounds["classic"].delta == Fraction("1e-7")
    assert [c for ((c, _),) in bounds["classic"].clauses] == [PURE]
    assert bounds["anchored"].delta == Fraction("1e-8")
    orders = {c.order for ((c, _),) in bounds["anchored"].clauses if c.notion is Notion.RENYI}
    assert orders and orders <= {*LADDER}
