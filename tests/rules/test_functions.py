"""Budget functions: exact on ε, ρ and μ, keep δ, and report invalid functions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.rules.texts import compile_text, rejection_codes, warning_codes

from dpolicy.errors import InvalidValue
from dpolicy.policy.model import BudgetFunction, Plus, Same, Through, Times
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.rules.budget_functions import apply_budget_function
from dpolicy.text.yaml_reader import Source, Span

SPAN = Span(Source("policy.yaml", ""), 1, 1, 1, 2)
DELTA = Fraction(1, 10**7)


def fraction(decimal: str) -> Fraction:
    """Parse a decimal exactly."""
    return Fraction(decimal)


def line(*points: tuple[str, str], extend: bool = False) -> Through:
    """Return a `through` function."""
    return Through(tuple((fraction(x), fraction(y)) for x, y in points), extend, SPAN)


BENT = line(("1", "1"), ("1.7", "3"), ("2", "10"))


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [
        (Same(), "1.3", "1.3"),
        (Times(fraction("1.5"), SPAN), "0.1", "0.15"),
        (Plus(fraction("0.1"), SPAN), "0.2", "0.3"),
        (Plus(fraction("-0.1"), SPAN), "0.2", "0.1"),
        (BENT, "1", "1"),
        (BENT, "1.7", "3"),
        (BENT, "1.35", "2"),
        (BENT, "1.85", "6.5"),
        (BENT, "2", "10"),
        (line(("1", "5")), "1", "5"),
        (line(("1", "2"), ("2", "4"), extend=True), "3", "6"),
        (line(("1", "2"), ("2", "4"), extend=True), "0.5", "1"),
    ],
)
def test_functions_are_exact_in_every_notion(
    function: BudgetFunction, before: str, after: str
) -> None:
    for make in (
        Zcdp,
        Gdp,
        lambda x: EpsilonDelta(x, DELTA),
        lambda x: EpsilonDelta(x, fraction("0")),
    ):
        assert apply_budget_function(function, make(fraction(before)), {}) == make(fraction(after))


@pytest.mark.parametrize("value", ["0.99", "2.01"])
def test_a_value_outside_the_points_is_rejected(value: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        apply_budget_function(BENT, Zcdp(fraction(value)), {})
    assert caught.value.code == "P042"


@pytest.mark.parametrize("function", [Plus(fraction("-2"), SPAN), Times(fraction("100000"), SPAN)])
def test_a_result_that_is_not_a_budget_is_rejected(function: BudgetFunction) -> None:
    with pytest.raises(InvalidValue) as caught:
        apply_budget_function(function, Zcdp(fraction("1.5")), {})
    assert caught.value.code == "P043"


@pytest.mark.parametrize("function", [Same(), Times(fraction("2"), SPAN), BENT])
def test_an_unlimited_budget_does_not_change(function: BudgetFunction) -> None:
    assert apply_budget_function(function, Unlimited(), {}) == Unlimited()


def test_only_same_applies_to_renyi_budgets() -> None:
    budget: Budget = Renyi(((fraction("2"), fraction("0.3")),))
    assert apply_budget_function(Same(), budget, {}) == budget
    with pytest.raises(InvalidValue) as caught:
        apply_budget_function(Times(fraction("2"), SPAN), budget, {})
    assert caught.value.code == "P043"


SCHEMA = """
dpolicy: 1
accounting: {delta: 1e-7}
schema:
  attributes: {a: {risk: low}, b: {risk: medium}, c: {risk: high}}
policies:
  - name: per-attribute
    kind: attribute
    unit: user
    budgets: {low: {epsilon: 2}, medium: {epsilon: 1}, high: {epsilon: 0.5}}
  - name: x
    kind: extension
    settings:
      - {name: plain, when: always, budget: same}
      - {name: other, when: always, budget: FUNCTION}
"""


def policy_text(function: str) -> str:
    """Return a policy with budgets 2, 1 and 0.5 and a setting that applies `function`."""
    return SCHEMA.replace("FUNCTION", function)


def test_cel_computes_each_budget_separately() -> None:
    policy = compile_text(
        policy_text("{cel: 'budget.epsilon < 1.0 ? budget.epsilon : budget.epsilon * 3.0'}")
    )
    budgets = {rule.name: rule.budget for rule in policy.cumulative.rules}
    results = [budgets[f"per-attribute[{name}] × other"] for name in "abc"]
    assert results == [EpsilonDelta(fraction(value), DELTA) for value in ("6", "3", "0.5")]


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("{cel: 'budget.epsilon < 1.0 ? 3.0 : budget.epsilon'}", "P041"),
        ("{through: [[0, 4], [2, 0]]}", "P041"),
        ("{through: [[1, 1], [2, 2]]}", "P042"),
        ("{plus: -1}", "P043"),
        ("{cel: '1.0 / 0.0'}", "P043"),
        ("{cel: 'budget.rho'}", "P043"),
        ("{cel: 'budget.epsilon > 1.0'}", "P031"),
    ],
)
def test_invalid_functions_are_rejected(function: str, code: str) -> None:
    assert code in rejection_codes(policy_text(function))


@pytest.mark.parametrize(
    "function", ["{times: 0.9}", "{plus: -0.1}", "{cel: 'budget.epsilon / 2.0'}"]
)
def test_a_lowered_budget_gives_a_warning(function: str) -> None:
    assert "P105" in warning_codes(compile_text(policy_text(function)))


@pytest.mark.parametrize("function", ["same", "{times: 1}", "{plus: 0}", "{times: 3}"])
def test_a_budget_that_is_not_lowered_gives_no_warning(function: str) -> None:
    assert "P105" not in warning_codes(compile_text(policy_text(function)))


def test_budgets_of_different_deltas_are_not_compared() -> None:
    """Budgets 0.5 and 2 with different δ are not ordered, so no function can reverse an order."""
    mixed = policy_text("{cel: 'budget.epsilon < 1.0 ? 3.0 : budget.epsilon'}")
    mixed = mixed.replace("{epsilon: 0.5}", "{epsilon: 0.5, delta: 1e-9}")
    assert "P041" not in warning_codes(compile_text(mixed))
