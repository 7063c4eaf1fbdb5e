"""Every bound of the prover equals the enumeration of all mechanisms and all histories."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proofs.small_policies import HEAD, SCOPES, compile_rules, random_rules, rule, triangle
from tests.reference.guarantees import (
    cheapest_whole_cover,
    largest_whole_history,
    smallest_bound,
)

from dpolicy import prove
from dpolicy.predicates.expression import Always
from dpolicy.predicates.implication.implication_check import Undecided
from dpolicy.privacy.budget import EpsilonDelta, Gdp, Renyi, Zcdp
from dpolicy.privacy.certificates import PURE, RHO, Certificate
from dpolicy.proofs import cover, mechanism_cases
from dpolicy.proofs.linear_programme import solve_programme
from dpolicy.proofs.proof import Proof
from dpolicy.proofs.proof_question import parse_question
from dpolicy.proofs.prover import answer_question
from dpolicy.proofs.question_rules import additive_limit
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule

#: Units whose rules bound a unit under the relation `change`.
LARGER = {"user": frozenset({"user"}), "user-day": frozenset({"user", "user-day"})}


def rho_limit(own: Rule) -> Fraction | None:
    return own.budget.rho if isinstance(own.budget, Zcdp) else None


def epsilon_limit(own: Rule) -> Fraction | None:
    return own.budget.epsilon if isinstance(own.budget, EpsilonDelta) else None


def pure_limit(own: Rule) -> Fraction | None:
    is_pure = isinstance(own.budget, EpsilonDelta) and not own.budget.delta
    return epsilon_limit(own) if is_pure else None


def proofs_in(
    policy: CompiledPolicy, when: str, unit: str, notion: Certificate | None
) -> list[Proof]:
    answer = answer_question(policy, parse_question(policy, when, unit), with_worst=False)
    return [proof for proof in answer.proofs if proof.certificate == notion]


@settings(max_examples=70, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_bound_in_rho_equals_the_enumeration(seed: int) -> None:
    random = Random(seed)
    policy = random_rules(random, ("rho", "rho", "approximate"))
    when, unit = random.choice(SCOPES), random.choice(("user", "user-day"))
    scope = parse_question(policy, when, unit).scope
    expected = smallest_bound(policy, scope, LARGER[unit], rho_limit)
    proofs = proofs_in(policy, when, unit, RHO)
    assert [proof.amount for proof in proofs] == ([] if expected is None else [expected])
    if expected is not None:
        whole = largest_whole_history(policy, scope, LARGER[unit], rho_limit)
        assert expected - len(policy.cumulative.rules) < whole <= expected


@settings(max_examples=35, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_bounds_in_epsilon_equal_the_enumeration(seed: int) -> None:
    random = Random(seed)
    policy = random_rules(random, ("pure", "approximate", "approximate"))
    when, unit = random.choice(SCOPES), random.choice(("user", "user-day"))
    scope = parse_question(policy, when, unit).scope
    pure = smallest_bound(policy, scope, LARGER[unit], pure_limit)
    fractional = smallest_bound(policy, scope, LARGER[unit], epsilon_limit)
    whole = cheapest_whole_cover(policy, scope, LARGER[unit], epsilon_and_delta)
    amounts = [proof.amount for proof in proofs_in(policy, when, unit, PURE)]
    assert amounts == ([] if pure is None else [pure])
    proofs = proofs_in(policy, when, unit, None)
    if fractional is None or fractional == pure:
        assert not proofs or fractional == pure
        return
    assert proofs[0].amount == fractional
    assert whole is not None
    if any(part.weight < 1 for part in proofs[0].parts):
        assert (proofs[-1].amount, proofs[-1].delta) == whole
    else:
        assert proofs[0].amount == whole[0]


def epsilon_and_delta(own: Rule) -> tuple[Fraction, Fraction] | None:
    budget = own.budget
    return (budget.epsilon, budget.delta) if isinstance(budget, EpsilonDelta) else None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.frozensets(st.integers(0, 5), min_size=1), min_size=1, max_size=6),
    st.lists(st.fractions(0, 5, max_denominator=7), min_size=6, max_size=6),
)
def test_the_optima_of_the_programme_are_equal(
    cases: list[frozenset[int]], values: list[Fraction]
) -> None:
    """A history within the limits and a cover of the same size prove that both are optimal."""
    limits = dict(enumerate(values))
    optimum = solve_programme(cases, limits)
    for number, limit in limits.items():
        spent = sum(a for case, a in zip(cases, optimum.amounts, strict=True) if number in case)
        assert spent <= limit
    for case in cases:
        assert sum(optimum.weights.get(number, Fraction(0)) for number in case) >= 1
    cost = sum(limits[number] * weight for number, weight in optimum.weights.items())
    assert min(optimum.amounts) >= 0
    assert sum(optimum.amounts) == cost == optimum.value


def test_three_rules_of_half_weight_bound_the_triangle() -> None:
    (proof,) = prove(triangle(), "size(attributes) > 0", "user").proofs
    assert proof.budget == Zcdp(Fraction(3, 2))
    assert [(part.rule.name, part.weight) for part in proof.parts] == [
        (name, Fraction(1, 2)) for name in ("ab", "bc", "ca")
    ]


def test_halves_of_an_approximate_budget_keep_the_whole_delta() -> None:
    first, second = prove(triangle("{epsilon: 1, delta: 1e-7}"), "always", "user").proofs
    assert first.budget == EpsilonDelta(Fraction(3, 2), Fraction("3e-7"))
    assert second.budget == EpsilonDelta(Fraction(2), Fraction("2e-7"))


def test_a_claim_with_a_small_delta_needs_other_rules() -> None:
    """The cover of least ε has δ 10⁻⁵; one with a larger ε has δ 10⁻⁸."""
    policy = compile_rules(
        rule("cheap", "always", "{epsilon: 1, delta: 1e-5}"),
        rule("strict", "always", "{epsilon: 2, delta: 1e-8}"),
    )
    assert prove(policy, epsilon=1, delta="1e-5").holds
    answer = prove(policy, epsilon=2, delta="1e-8")
    assert answer.proof is not None and answer.proof.parts[0].rule.name == "strict"
    assert not prove(policy, epsilon=1.5, delta="1e-8").holds


def test_a_pure_budget_is_one_threshold() -> None:
    """If a budget were enforced by a choice of certificates, no notion would be bounded."""
    (own,) = compile_rules(rule("all", "always", "{epsilon: 1, delta: 0}")).rules
    assert additive_limit(own, PURE) == 1
    chosen = replace(own.bound, clauses=(*own.bound.clauses, ((RHO, 10**12),)))
    assert additive_limit(replace(own, bound=chosen), PURE) is None


def test_a_rule_in_another_notion_bounds_what_follows_from_it() -> None:
    policy = compile_rules(
        rule("all", "always", "{mu: 2}"), rule("a", '"a" in attributes', "{epsilon: 1, delta: 0}")
    )
    assert [p.budget for p in prove(policy).proofs] == [Zcdp(Fraction(2)), Gdp(Fraction(2))]
    assert [p.budget for p in prove(policy, '"a" in attributes').proofs][:2] == [
        EpsilonDelta(Fraction(1), Fraction(0)),
        Zcdp(Fraction(1, 2)),
    ]


def test_renyi_orders_are_bounded_one_by_one() -> None:
    policy = compile_rules(
        rule("all", "always", "{renyi: {2: 1, 8: 3}}"), rule("a", '"a" in attributes', "{rho: 0.2}")
    )
    assert [p.budget for p in prove(policy, '"a" in attributes').proofs] == [
        Zcdp(Fraction(1, 5)),
        Renyi(((Fraction(2), Fraction(2, 5)),)),
        Renyi(((Fraction(8), Fraction(8, 5)),)),
    ]


def test_an_unlimited_rule_is_no_bound() -> None:
    assert not prove(compile_rules(rule("all", "always", "unlimited"))).proofs


def test_a_rule_of_a_smaller_unit_is_no_bound() -> None:
    policy = compile_rules(rule("day", "always", "{rho: 1}", "user-day"))
    assert not prove(policy, unit="user").proofs
    assert prove(policy, unit="user-day").holds


def test_a_rule_of_a_larger_unit_is_no_bound_under_add_remove() -> None:
    """Removing one day of a user's data does not remove the user (theory P6)."""
    rules = [rule("all", "always", "{rho: 1}")]
    assert prove(compile_rules(*rules), unit="user-day").holds
    head = HEAD.replace("relation: change", "relation: add-remove")
    assert not prove(compile_rules(*rules, head=head), unit="user-day").proofs


def test_a_split_rule_bounds_its_partition_only_at_one_place() -> None:
    """A question about an attribute that is a partition adds up over its values (theory P8)."""
    head = "dpolicy: 1\nunits: {user: {}}\nschema:\n  attributes: {country: {}, b: {}}\n"
    head += "  partitions: {country: {values: [AT, CH]}}\n"
    policy = compile_rules(rule("all", "always", "{rho: 1}"), head=head)
    about_country = '"country" in attributes'
    assert not prove(policy, about_country).proofs
    assert prove(policy, about_country, at={"country": "CH"}).holds
    assert prove(policy, '"b" in attributes').holds


def test_uncovered_mechanisms_need_no_rule() -> None:
    policy = compile_rules(rule("a", '"a" in attributes', "{rho: 1}"))
    assert prove(policy).holds
    head = policy.sources[0].text.split("policies:")[0]
    allowed = head.replace("relation: change", "relation: change, uncovered: allow")
    assert not prove(compile_rules(rule("a", '"a" in attributes', "{rho: 1}"), head=allowed)).proofs


def test_a_scope_without_mechanisms_loses_nothing() -> None:
    (proof, *_) = prove(triangle(), "size(attributes) > 5").proofs
    assert not proof.amount and not proof.parts


def test_too_many_cases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism_cases, "MAX_CASES", 2)
    with pytest.raises(Exception, match="Q004"):
        prove(triangle())


def test_too_many_combinations_leave_the_other_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cover, "MAX_BRANCHES", 1)
    (proof,) = prove(triangle("{epsilon: 1, delta: 1e-7}")).proofs
    assert proof.amount == Fraction(3, 2)


def test_an_undecided_implication_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism_cases, "implies", lambda *_: Undecided("too many cases"))
    answer = prove(triangle(), rho=9)
    assert answer.verdict == "undecided" and answer.reason == "too many cases"


def test_always_is_the_scope_of_everything() -> None:
    assert parse_question(triangle(), "always", "user").scope == Always()
