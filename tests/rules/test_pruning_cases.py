"""The Hasse figure of the paper and the situations P1 to P12 of theory 1.5, one policy each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.properties.pruning_harness import bound_in_fractions
from tests.reference import rules as twin

from dpolicy.errors import PolicyRejected
from dpolicy.rules.compiler import CompiledPolicy, compile_policy, load_policy
from dpolicy.text.yaml_reader import Source

CASES = Path(__file__).parent.parent / "cases/pruning"
JANUARY, FEBRUARY = (date(2024, 1, 1), 31), (date(2024, 2, 1), 29)


def mechanism(
    cost: twin.Cost | Mapping[str, twin.Cost],
    attributes: tuple[str, ...] = (),
    days: tuple[date, int] | None = None,
    **where: str,
) -> twin.Mechanism:
    """A mechanism with the same cost in every unit, or one for each."""
    costs = cost if isinstance(cost, Mapping) else dict.fromkeys(UNITS, cost)
    read = None if days is None else frozenset(days[0] + timedelta(n) for n in range(days[1]))
    used = frozenset(attributes) | where.keys()
    return twin.Mechanism(
        used, costs=costs, where={k: frozenset({v}) for k, v in where.items()}, days=read
    )


UNITS = ("user", "user-month", "user-week", "user-day")


def pure(epsilon: str) -> twin.Cost:
    """Laplace and the like, by their ε alone."""
    return {"pure": Fraction(epsilon)}, Fraction(0)


def gaussian(rho: str) -> twin.Cost:
    """A Gaussian: ρα at every order, μ² = 2ρ, no pure ε."""
    r = Fraction(rho)
    return {"rho": r, "mu": 2 * r, **{order: r * order for order in twin.GRID}}, Fraction(0)


def leak(delta: str) -> twin.Cost:
    """Nothing, except that with probability δ everything is told."""
    nothing: list[twin.Key] = ["pure", "rho", "mu", *twin.GRID]
    return dict.fromkeys(nothing, Fraction(0)), Fraction(delta)


@dataclass(frozen=True)
class Case:
    """What is kept, what implies each pruned rule, and what a history breaks in the full set."""

    kept: tuple[str, ...]
    pruned: Mapping[str, str] = field(default_factory=dict)
    history: tuple[twin.Mechanism, ...] = ()
    broken: tuple[str, ...] = ()


PLACES = tuple(mechanism(pure("0.8"), country=value) for value in ("AT", "CH"))
TWO_MONTHS = tuple(mechanism(gaussian("0.5"), days=days) for days in (JANUARY, FEBRUARY))
N1 = mechanism({"user": pure("1"), "user-month": pure("2")})
TABLE: dict[str, Case] = {
    "hasse-figure": Case(
        ("1", "4", "6"),
        {"2": "1", "3": "1", "5": "1", "7": "4"},
        (mechanism(pure("4"), ("b",)),),
        ("6",),
    ),
    "p01-different-deltas": Case(
        ("tight", "loose"), {}, (mechanism(gaussian("0.44")),), ("loose",)
    ),
    "p02-different-notions": Case(
        ("approximate", "concentrated"), {}, (mechanism(leak("5e-9")),), ("concentrated",)
    ),
    "p03-different-orders": Case(
        ("low-orders", "high-orders"), {}, (mechanism(gaussian("0.25")),), ("high-orders",)
    ),
    "p04-weights-by-epsilon": Case(("smaller", "larger")),
    "p05-units-by-length": Case(
        ("monthly", "weekly"), {"daily": "monthly"}, TWO_MONTHS, ("weekly",)
    ),
    "p06-add-remove": Case(("all-time", "monthly"), {}, (N1,), ("monthly",)),
    "p06-add-remove-additive": Case(("all-time",), {"monthly": "all-time"}),
    "p07-inconsistent-costs": Case(("all-time",), {"monthly": "all-time"}),
    "p08-partition-is-attribute": Case(
        ("global", "per-attribute[country]"),
        {"per-attribute[zip]": "global"},
        PLACES,
        ("per-attribute[country]",),
    ),
    "p08-setting-about-partition": Case(
        ("global × located", "global × any"), {}, PLACES, ("global × located",)
    ),
    "p09-collapsed-time": Case(("tight",), {"loose": "tight"}),
    "p10-mutual-cover": Case(("one",), {"two": "one", "three": "one"}),
    "p11-before": Case(("global",), {"health": "global"}),
    "p11-loosened": Case(
        ("global", "health"), {}, (mechanism(pure("0.8"), ("diagnosis",)),) * 2, ("health",)
    ),
    "p12-later-horizon": Case(("new",), {"old": "new"}),
}


def compiled(name: str) -> tuple[CompiledPolicy, Any, list[twin.Rule]]:
    """A case as compiled, as a dict, and as rules of the twin with the code's thresholds."""
    path = CASES / f"{name}.yaml"
    policy, plain = load_policy(path), yaml.safe_load(path.read_text())
    spelled = {(r.name, r.unit): r for r in twin.expand(plain, "policies")}
    rules = [
        twin.Rule(
            rule.name,
            rule.unit,
            spelled[rule.name, rule.unit].predicates,
            {},
            False,
            *bound_in_fractions(rule.bound),
        )
        for rule in policy.cumulative.rules
    ]
    return policy, plain, rules


def test_every_case_is_in_the_table() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_what_is_kept_and_what_implies_the_rest(name: str) -> None:
    policy, _, _ = compiled(name)
    by_name = {rule.name: witness and witness.name for rule, witness in policy.all_rules}
    assert tuple(n for n, witness in by_name.items() if witness is None) == TABLE[name].kept
    assert {n: w for n, w in by_name.items() if w is not None} == TABLE[name].pruned


@pytest.mark.parametrize("name", [name for name, case in TABLE.items() if case.history])
def test_the_history_breaks_a_rule_that_naive_pruning_would_drop(name: str) -> None:
    _, plain, rules = compiled(name)
    *past, asked = TABLE[name].history
    broken = [rule.name for rule in rules if twin.broken(plain, rule, past, [asked])]
    assert tuple(broken) == TABLE[name].broken
    assert {*broken} <= {*TABLE[name].kept}
    before = [rule for rule in rules if past and twin.broken(plain, rule, past[:-1], [past[-1]])]
    assert not before, "the history itself was allowed"


def test_p4_a_larger_epsilon_allows_less_at_the_order_of_the_smaller_one() -> None:
    _, plain, rules = compiled("p04-weights-by-epsilon")
    smaller, larger = rules
    only_there = [
        c for c in smaller.clauses if not any(c.keys() == d.keys() for d in larger.clauses)
    ]
    assert only_there, "the anchor of ε 5 is no order of ε 6"
    asked = mechanism((only_there[0], Fraction(0)))
    assert not twin.broken(plain, smaller, [], [asked])
    assert twin.broken(plain, larger, [], [asked])


def test_p5_months_pay_half_and_the_week_between_pays_all() -> None:
    _, plain, rules = compiled("p05-units-by-length")
    inside = [mechanism(gaussian("0.5"), days=(date(2024, 1, 8), 2)) for _ in range(2)]
    broken = [rule.name for rule in rules if twin.broken(plain, rule, inside[:1], inside[1:])]
    assert broken == ["monthly", "weekly", "daily"], "in one month nothing is told apart"


def test_p7_closed_costs_never_break_the_pruned_rule_alone() -> None:
    _, plain, rules = compiled("p07-inconsistent-costs")
    declared = {"user": pure("0.3"), "user-month": pure("14.4")}
    closed = {**declared, "user-month": min(declared.values(), key=lambda cost: cost[0]["pure"])}
    assert [twin.broken(plain, r, [], [mechanism(declared)]) for r in rules] == [False, True]
    assert [twin.broken(plain, r, [], [mechanism(closed)]) for r in rules] == [False, False]


def test_p11_the_rule_that_is_back_counts_what_was_released_before() -> None:
    _, before, rules = compiled("p11-before")
    _, after, again = compiled("p11-loosened")
    first, second = (mechanism(pure("0.8"), ("diagnosis",)) for _ in range(2))
    assert twin.decide(before, rules, [], [first])
    assert not twin.decide(after, again, [first], [second])
    assert twin.decide(after, again[:1], [first], [second]), "only the rule that is back objects"


@pytest.mark.parametrize(
    ("name", "key"), [("p09-collapsed-time", "collapse"), ("p12-later-horizon", "since")]
)
def test_the_language_cannot_say_p9_and_p12(name: str, key: str) -> None:
    text = (CASES / f"{name}.yaml").read_text().replace("rho: 0.6}}", f"rho: 0.6}}, {key}: 2024}}")
    with pytest.raises(PolicyRejected) as rejected:
        compile_policy([Source("policy.yaml", text)])
    assert f"`{key}`" in str(rejected.value)
