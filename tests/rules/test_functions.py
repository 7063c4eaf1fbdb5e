"""Budget functions: exact on ε, ρ and μ alike, δ stays; what is wrong with one is reported."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.rules.texts import codes, compiled, rejected

from dpolicy.errors import InvalidValue
from dpolicy.policy.model import BudgetFunction, Plus, Same, Through, Times
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.rules.budget_functions import apply_budget_function
from dpolicy.text.yaml_reader import Source, Span

HERE = Span(Source("policy.yaml", ""), 1, 1, 1, 2)
DELTA = Fraction(1, 10**7)


def f(text: str) -> Fraction:
    """The decimal as written."""
    return Fraction(text)


def line(*points: tuple[str, str], extend: bool = False) -> Through:
    """A `through` function."""
    return Through(tuple((f(x), f(y)) for x, y in points), extend, HERE)


BENT = line(("1", "1"), ("1.7", "3"), ("2", "10"))


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [
        (Same(), "1.3", "1.3"),
        (Times(f("1.5"), HERE), "0.1", "0.15"),
        (Plus(f("0.1"), HERE), "0.2", "0.3"),
        (Plus(f("-0.1"), HERE), "0.2", "0.1"),
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
    for make in (Zcdp, Gdp, lambda x: EpsilonDelta(x, DELTA), lambda x: EpsilonDelta(x, f("0"))):
        assert apply_budget_function(function, make(f(before)), {}) == make(f(after))


@pytest.mark.parametrize("value", ["0.99", "2.01"])
def test_outside_the_points_there_is_no_value(value: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        apply_budget_function(BENT, Zcdp(f(value)), {})
    assert refused.value.code == "P042"


@pytest.mark.parametrize("function", [Plus(f("-2"), HERE), Times(f("100000"), HERE)])
def test_what_is_no_budget_is_refused(function: BudgetFunction) -> None:
    with pytest.raises(InvalidValue) as refused:
        apply_budget_function(function, Zcdp(f("1.5")), {})
    assert refused.value.code == "P043"


@pytest.mark.parametrize("function", [Same(), Times(f("2"), HERE), BENT])
def test_unlimited_stays_unlimited(function: BudgetFunction) -> None:
    assert apply_budget_function(function, Unlimited(), {}) == Unlimited()


def test_only_same_applies_to_stated_orders() -> None:
    budget: Budget = Renyi(((f("2"), f("0.3")),))
    assert apply_budget_function(Same(), budget, {}) == budget
    with pytest.raises(InvalidValue) as refused:
        apply_budget_function(Times(f("2"), HERE), budget, {})
    assert refused.value.code == "P043"


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


def text(function: str) -> str:
    """Budgets 2, 1 and 0.5, and a setting that does something to them."""
    return SCHEMA.replace("FUNCTION", function)


def test_cel_gives_each_budget_its_own() -> None:
    made = compiled(text("{cel: 'budget.epsilon < 1.0 ? budget.epsilon : budget.epsilon * 3.0'}"))
    budgets = {rule.name: rule.budget for rule in made.cumulative.rules}
    found = [budgets[f"per-attribute[{name}] × other"] for name in "abc"]
    assert found == [EpsilonDelta(f(value), DELTA) for value in ("6", "3", "0.5")]


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
def test_functions_that_are_errors(function: str, code: str) -> None:
    assert code in rejected(text(function))


@pytest.mark.parametrize(
    "function", ["{times: 0.9}", "{plus: -0.1}", "{cel: 'budget.epsilon / 2.0'}"]
)
def test_lowering_is_a_warning(function: str) -> None:
    assert "P105" in codes(compiled(text(function)))


@pytest.mark.parametrize("function", ["same", "{times: 1}", "{plus: 0}", "{times: 3}"])
def test_raising_is_no_warning(function: str) -> None:
    assert "P105" not in codes(compiled(text(function)))


def test_budgets_of_different_deltas_are_not_compared() -> None:
    """0.5 with one δ and 2 with another have no order, so no function can break it."""
    mixed = text("{cel: 'budget.epsilon < 1.0 ? 3.0 : budget.epsilon'}")
    mixed = mixed.replace("{epsilon: 0.5}", "{epsilon: 0.5, delta: 1e-9}")
    assert "P041" not in codes(compiled(mixed))
