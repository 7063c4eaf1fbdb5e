"""Coalitions: the bound for any k values of a label."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.proofs.small_policies import HEAD, compile_rules, rule

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import Zcdp
from dpolicy.proofs.coalitions import CoalitionAnswer, prove_coalitions
from dpolicy.proofs.proof_question import parse_question
from dpolicy.proofs.prover import ProofVerdict
from dpolicy.rules.compiler import CompiledPolicy

BUDGETS = {"ads": 1, "maps": 2, "mail": 3}
TEAMS = [
    rule(team, f'has(labels.team) && labels.team == "{team}"', f"{{rho: {rho}}}")
    for team, rho in BUDGETS.items()
]


def ask(
    policy: CompiledPolicy, size: int, claim: Zcdp | None = None, of: str = "team"
) -> CoalitionAnswer:
    return prove_coalitions(policy, parse_question(policy, "always", "user"), size, of, claim)


@pytest.mark.parametrize(("size", "expected"), [(1, 3), (2, 5), (3, 6)])
def test_the_bound_is_the_sum_of_the_largest(size: int, expected: int) -> None:
    ((values, proof),) = ask(compile_rules(*TEAMS), size).largest
    assert proof.budget == Zcdp(Fraction(expected))
    assert sum(BUDGETS[value] for value in values) == expected


def test_the_bound_of_everything_limits_every_coalition() -> None:
    policy = compile_rules(*TEAMS, rule("all", "always", "{rho: 4.5}"))
    ((values, proof),) = ask(policy, 2).largest
    assert proof.budget == Zcdp(Fraction(9, 2)) and values == ("maps", "mail")


def test_the_bound_has_the_largest_delta_of_any_coalition() -> None:
    """The team with the smaller ε has the larger δ."""
    budgets = {"ads": ("2", "1e-6"), "maps": ("1", "1e-3"), "mail": ("1", "1e-6")}
    rules = (
        rule(team, f'has(labels.team) && labels.team == "{team}"', f"{{epsilon: {e}, delta: {d}}}")
        for team, (e, d) in budgets.items()
    )
    answer = ask(compile_rules(*rules), 1)
    ((values, bound),) = answer.largest
    assert values == ("ads",)
    for _, own in answer.answers:
        assert own.proof is not None
        assert own.proof.amount <= bound.amount and own.proof.delta <= bound.delta
    assert (bound.amount, bound.delta) == (Fraction(2), Fraction("1e-3"))


def test_a_claim_holds_for_all_coalitions_or_one_breaks_it() -> None:
    policy = compile_rules(*TEAMS)
    assert ask(policy, 2, Zcdp(Fraction(5))).verdict is ProofVerdict.HOLDS
    answer = ask(policy, 2, Zcdp(Fraction(9, 2)))
    assert answer.verdict is ProofVerdict.BROKEN
    values, broken = answer.decisive
    assert values == ("maps", "mail")
    assert broken.broken_by is not None and broken.broken_by.reached > Fraction(9, 2)


def test_a_value_without_a_rule_has_no_bound() -> None:
    policy = compile_rules(*TEAMS[:2], rule("all", "always", "unlimited"))
    assert ask(policy, 1).verdict is ProofVerdict.BROKEN
    assert ask(policy, 1).largest == ()


def test_a_label_with_many_values_counts_each_of_them() -> None:
    head = HEAD.replace("mail]}", "mail], many: true}")
    rules = [rule(t, f'"{t}" in labels.team', f"{{rho: {rho}}}") for t, rho in BUDGETS.items()]
    ((_, proof),) = ask(compile_rules(*rules, head=head), 2).largest
    assert proof.budget == Zcdp(Fraction(5))


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(InvalidValue, match="Q003"):
        ask(compile_rules(*TEAMS), 1, of="tem")


def test_a_coalition_of_too_many_values_is_refused() -> None:
    with pytest.raises(InvalidValue, match="Q003"):
        ask(compile_rules(*TEAMS), 4)


def test_too_many_coalitions_are_refused() -> None:
    values = ", ".join(f"t{number}" for number in range(30))
    policy = compile_rules(
        *TEAMS[:0], rule("all", "always", "{rho: 1}"), head=HEAD.replace("ads, maps, mail", values)
    )
    with pytest.raises(InvalidValue, match="Q004"):
        ask(policy, 3)
