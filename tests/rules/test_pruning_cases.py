"""Pruning of the paper's Hasse figure and of the cases P1 to P12 of theory 1.5."""

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
from dpolicy.policy.accounting.accounting_defaults import (
    NEWEST_DEFAULTS,
    SECOND_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.policy.parser import read_sources
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
    """Return a mechanism with one cost for all units, or with a cost per unit."""
    costs = cost if isinstance(cost, Mapping) else dict.fromkeys(UNITS, cost)
    day_set = None if days is None else frozenset(days[0] + timedelta(n) for n in range(days[1]))
    used = frozenset(attributes) | where.keys()
    return twin.Mechanism(
        used, costs=costs, where={k: frozenset({v}) for k, v in where.items()}, days=day_set
    )


UNITS = ("user", "user-month", "user-week", "user-day")


def pure(epsilon: str) -> twin.Cost:
    """Return the cost of a mechanism with only a pure ε, such as Laplace."""
    return {"pure": Fraction(epsilon)}, Fraction(0)


def gaussian(rho: str) -> twin.Cost:
    """Return the cost of a Gaussian: ρα at every order, μ² = 2ρ, no pure ε."""
    r = Fraction(rho)
    return {"rho": r, "mu": 2 * r, **{order: r * order for order in twin.GRID}}, Fraction(0)


def leak(delta: str) -> twin.Cost:
    """Return a cost of zero that reveals everything with probability δ."""
    certificates: list[twin.Key] = ["pure", "rho", "mu", *twin.GRID]
    return dict.fromkeys(certificates, Fraction(0)), Fraction(delta)


@dataclass(frozen=True)
class Case:
    """Kept rules, witness of each pruned rule, a history, and the rules that it exceeds.

    A case about the split of older versions has their `defaults`.
    """

    kept: tuple[str, ...]
    pruned: Mapping[str, str] = field(default_factory=dict)
    history: tuple[twin.Mechanism, ...] = ()
    exceeded: tuple[str, ...] = ()
    defaults: AccountingDefaults = NEWEST_DEFAULTS


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
    "p04-weights-by-epsilon": Case(("smaller", "larger"), defaults=SECOND_DEFAULTS),
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


def load_case(name: str) -> tuple[CompiledPolicy, Any, list[twin.Rule]]:
    """Return the compiled case, its plain dict, and the twin's rules with the code's thresholds."""
    path = CASES / f"{name}.yaml"
    policy = compile_policy(read_sources(path), TABLE[name].defaults)
    plain = yaml.safe_load(path.read_text())
    expanded = {(r.name, r.unit): r for r in twin.expand(plain, "policies")}
    rules = [
        twin.Rule(
            rule.name,
            rule.unit,
            expanded[rule.name, rule.unit].predicates,
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
def test_kept_rules_and_witnesses_are_those_of_the_table(name: str) -> None:
    policy, _, _ = load_case(name)
    by_name = {rule.name: witness and witness.name for rule, witness in policy.all_rules}
    assert tuple(n for n, witness in by_name.items() if witness is None) == TABLE[name].kept
    assert {n: w for n, w in by_name.items() if w is not None} == TABLE[name].pruned


@pytest.mark.parametrize("name", [name for name, case in TABLE.items() if case.history])
def test_the_history_exceeds_a_rule_that_naive_pruning_would_drop(name: str) -> None:
    _, plain, rules = load_case(name)
    *past, requested = TABLE[name].history
    exceeded = [rule.name for rule in rules if twin.is_exceeded(plain, rule, past, [requested])]
    assert tuple(exceeded) == TABLE[name].exceeded
    assert {*exceeded} <= {*TABLE[name].kept}
    before = [
        rule for rule in rules if past and twin.is_exceeded(plain, rule, past[:-1], [past[-1]])
    ]
    assert not before, "the history itself was allowed"


def test_p4_a_larger_epsilon_allows_less_at_the_order_of_the_smaller_one() -> None:
    _, plain, rules = load_case("p04-weights-by-epsilon")
    smaller, larger = rules
    only_in_smaller = [
        c for c in smaller.clauses if not any(c.keys() == d.keys() for d in larger.clauses)
    ]
    assert only_in_smaller, "the anchor of ε 5 is no order of ε 6"
    requested = mechanism((only_in_smaller[0], Fraction(0)))
    assert not twin.is_exceeded(plain, smaller, [], [requested])
    assert twin.is_exceeded(plain, larger, [], [requested])


def test_p4_the_ladder_prunes_the_larger_epsilon() -> None:
    """The shares of the newest defaults are chains: no threshold falls when ε grows."""
    policy = load_policy(CASES / "p04-weights-by-epsilon.yaml")
    witnesses = {rule.name: witness and witness.name for rule, witness in policy.all_rules}
    assert witnesses == {"smaller": None, "larger": "smaller"}


def test_p5_two_releases_in_one_month_exceed_every_rule() -> None:
    _, plain, rules = load_case("p05-units-by-length")
    inside = [mechanism(gaussian("0.5"), days=(date(2024, 1, 8), 2)) for _ in range(2)]
    exceeded = [
        rule.name for rule in rules if twin.is_exceeded(plain, rule, inside[:1], inside[1:])
    ]
    assert exceeded == ["monthly", "weekly", "daily"], "within one month all rules are exceeded"


def test_p7_consistent_costs_never_exceed_only_the_pruned_rule() -> None:
    _, plain, rules = load_case("p07-inconsistent-costs")
    declared = {"user": pure("0.3"), "user-month": pure("14.4")}
    closed = {**declared, "user-month": min(declared.values(), key=lambda cost: cost[0]["pure"])}
    assert [twin.is_exceeded(plain, r, [], [mechanism(declared)]) for r in rules] == [False, True]
    assert [twin.is_exceeded(plain, r, [], [mechanism(closed)]) for r in rules] == [False, False]


def test_p11_a_rule_that_is_kept_again_counts_earlier_releases() -> None:
    _, before, rules = load_case("p11-before")
    _, after, loosened = load_case("p11-loosened")
    first, second = (mechanism(pure("0.8"), ("diagnosis",)) for _ in range(2))
    assert twin.decide(before, rules, [], [first])
    assert not twin.decide(after, loosened, [first], [second])
    assert twin.decide(after, loosened[:1], [first], [second]), (
        "only the rule that is kept again is exceeded"
    )


@pytest.mark.parametrize(
    ("name", "key"), [("p09-collapsed-time", "collapse"), ("p12-later-horizon", "since")]
)
def test_the_language_rejects_the_keys_of_p9_and_p12(name: str, key: str) -> None:
    text = (CASES / f"{name}.yaml").read_text().replace("rho: 0.6}}", f"rho: 0.6}}, {key}: 2024}}")
    with pytest.raises(PolicyRejected) as caught:
        compile_policy([Source("policy.yaml", text)])
    assert f"`{key}`" in str(caught.value)
