"""A claim that does not hold comes with releases that the decision point allows."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proofs.small_policies import (
    HEAD,
    SCOPES,
    compile_rules,
    random_rules,
    rule,
    triangle,
)

from dpolicy import DecisionPoint, prove
from dpolicy.errors import InvalidValue
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.proofs.claim import breaks_claim
from dpolicy.proofs.history import History
from dpolicy.proofs.prover import ProofAnswer, ProofVerdict
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source


def decisions(policy: CompiledPolicy, history: History) -> list[bool]:
    """Return the decisions of a new decision point about the releases."""
    point = DecisionPoint(MemoryStore())
    point.apply(policy)
    return [point.submit(release).allowed for release in history.releases]


def with_claim(policy: CompiledPolicy, when: str, unit: str, budget: str) -> CompiledPolicy:
    """Return the policy with a rule that enforces the claim."""
    section = "policies:\n" + rule("claim", when, budget, unit)
    text = policy.sources[0].text.replace("policies:\n", section, 1)
    return compile_policy([Source("policy.yaml", text)])


def assert_broken(
    answer: ProofAnswer, policy: CompiledPolicy, when: str, unit: str, budget: str
) -> None:
    """Assert that the policy allows the history, and that a rule with the claim denies it."""
    assert answer.verdict is ProofVerdict.BROKEN
    assert answer.broken_by is not None and answer.claim is not None
    assert all(decisions(policy, answer.broken_by))
    assert not all(decisions(with_claim(policy, when, unit, budget), answer.broken_by))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_smaller_claim_is_broken_and_a_larger_one_holds(seed: int) -> None:
    """In one notion and one unit the bound is reached, so nothing is undecided."""
    random = Random(seed)
    policy = random_rules(random, ("rho",))
    text = policy.sources[0].text.replace("unit: user-day", "unit: user")
    text = text.replace('mechanism == "gaussian"', '"b" in attributes')
    policy = compile_policy([Source("policy.yaml", text)])
    when = random.choice(SCOPES[:-1])
    answer = prove(policy, when)
    if not answer.proofs or not answer.proofs[0].amount:
        return
    bound = answer.proofs[0].amount
    (history, *_) = answer.worst
    assert history is not None
    assert bound - Fraction(1, 10**9) < history.reached <= bound
    assert prove(policy, when, rho=bound).holds
    smaller = bound * Fraction(9, 10)
    budget = f"{{rho: {float(smaller)}}}"
    assert_broken(prove(policy, when, rho=smaller), policy, when, "user", budget)


CLAIMS = [
    ("{rho: 1}", "{rho: 1.4}", {"rho": "1.4"}),
    ("{rho: 1}", "{mu: 1.5}", {"mu": "1.5"}),
    ("{mu: 1}", "{mu: 1.2}", {"mu": "1.2"}),
    ("{renyi: {4: 2}}", "{rho: 0.7}", {"rho": "0.7"}),
    ("{epsilon: 1, delta: 0}", "{epsilon: 1.4, delta: 0}", {"epsilon": "1.4"}),
    (
        "{epsilon: 1, delta: 1e-7}",
        "{epsilon: 1.4, delta: 1e-6}",
        {"epsilon": "1.4", "delta": "1e-6"},
    ),
    (
        "{epsilon: 1, delta: 1e-7}",
        "{epsilon: 1.5, delta: 1e-9}",
        {"epsilon": "1.5", "delta": "1e-9"},
    ),
    ("{epsilon: 1, delta: 1e-7}", "{rho: 9}", {"rho": 9}),
    ("{rho: 1}", "{epsilon: 3, delta: 1e-6}", {"epsilon": 3, "delta": "1e-6"}),
]


@pytest.mark.parametrize(("budget", "claim", "numbers"), CLAIMS)
def test_the_decision_point_confirms_the_history(
    budget: str, claim: str, numbers: dict[str, Any]
) -> None:
    policy = triangle(budget)
    assert_broken(prove(policy, "always", "user", **numbers), policy, "always", "user", claim)


def test_a_history_is_divided_where_per_release_rules_deny_it() -> None:
    cap = rule("cap", "always", "{rho: 0.25}")
    policy = compile_rules(rule("all", "always", "{rho: 1}"), each=cap)
    answer = prove(policy, rho="0.9")
    assert_broken(answer, policy, "always", "user", "{rho: 0.9}")
    assert answer.broken_by is not None and len(answer.broken_by.releases) == 4


@pytest.mark.parametrize("relation", ["change", "add-remove"])
def test_a_history_uses_many_days_where_rules_for_days_deny_it(relation: str) -> None:
    rules = [rule("all", "always", "{rho: 1}"), rule("day", "always", "{rho: 0.1}", "user-day")]
    policy = compile_rules(*rules, head=HEAD.replace("change", relation))
    answer = prove(policy, rho="0.9")
    assert_broken(answer, policy, "always", "user", "{rho: 0.9}")
    assert answer.broken_by is not None
    days = {release["mechanisms"][0]["time"]["from"] for release in answer.broken_by.releases}
    assert len(days) == len(answer.broken_by.releases) == 16


def test_a_history_states_the_largest_unit() -> None:
    policy = compile_rules(rule("all", "always", "{rho: 1}"))
    answer = prove(policy, unit="user-day", rho="0.9")
    assert_broken(answer, policy, "always", "user-day", "{rho: 0.9}")


def test_a_history_obeys_required_labels_and_additivity() -> None:
    head = HEAD.replace("mail]", "mail], required: true").replace(
        "change", "change, require: additive"
    )
    policy = compile_rules(rule("ads", 'labels.team == "ads"', "{rho: 1}"), head=head)
    answer = prove(policy, rho="0.5")
    assert_broken(answer, policy, "always", "user", "{rho: 0.5}")


def test_a_policy_without_a_bound_allows_any_loss() -> None:
    policy = compile_rules(rule("all", "always", "unlimited"))
    answer = prove(policy)
    assert answer.verdict is ProofVerdict.BROKEN
    assert answer.broken_by is not None and answer.broken_by.reached > 1000


def test_neither_a_proof_nor_a_history_is_undecided() -> None:
    """Gaussian noise of ρ 1.5 in all is within μ 2, and the prover derives no μ from ρ."""
    answer = prove(triangle(), mu=2)
    assert answer.verdict is ProofVerdict.UNDECIDED and answer.reason


def test_a_history_within_a_claim_does_not_break_it() -> None:
    history = prove(triangle(), rho="1.4").broken_by
    assert history is not None
    assert not breaks_claim(history, prove(triangle(), rho="1.5").claim)  # type: ignore[arg-type]


def test_a_bound_in_rho_implies_epsilon_at_delta() -> None:
    assert prove(triangle(), epsilon=10, delta="1e-6").holds
    assert not prove(triangle(), epsilon=3, delta=1e-6).holds


@pytest.mark.parametrize("number", ["many", "nan", float("inf")])
def test_a_claim_is_a_number(number: Any) -> None:
    with pytest.raises(InvalidValue, match="Q005"):
        prove(triangle(), rho=number)


def test_independent_leaks_leak_less_than_their_sum() -> None:
    """Two leaks of 0.2 show the data with probability 0.36, so they do not break δ = 0.37."""
    head = HEAD.replace("relation: change", "relation: change, leaks: 0.5")
    budget = "{epsilon: 1, delta: 0.4}"
    policy = compile_rules(
        rule("ab", '"a" in attributes', budget),
        rule("rest", '!("a" in attributes)', budget),
        head=head,
    )
    broken = prove(policy, epsilon=50, delta="0.35")
    assert broken.broken_by is not None and broken.broken_by.reached == Fraction("0.36")
    assert prove(policy, epsilon=50, delta="0.37").verdict is ProofVerdict.UNDECIDED
