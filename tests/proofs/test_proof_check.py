"""The check of a proof detects every error; (ε, δ) budgets do not add with fractional δ."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proofs.small_policies import SCOPES, compile_rules, random_rules, rule, triangle

from dpolicy import prove
from dpolicy.privacy.certificates import RHO
from dpolicy.proofs.cover import Cover, find_cover
from dpolicy.proofs.linear_programme import solve_programme
from dpolicy.proofs.mechanism_cases import CaseSearch
from dpolicy.proofs.proof import Proof, count_layers, make_proof
from dpolicy.proofs.proof_check import check_proof
from dpolicy.proofs.proof_question import parse_question
from dpolicy.proofs.prover import answer_question
from dpolicy.proofs.question_rules import additive_limit, usable_rules
from dpolicy.rules.compiler import CompiledPolicy


def proof_of(policy: CompiledPolicy, when: str = "always") -> Proof:
    return answer_question(policy, parse_question(policy, when, "user"), with_worst=False).proofs[0]


def test_a_valid_proof_passes() -> None:
    assert check_proof(triangle(), proof_of(triangle())) is None


def test_a_proof_fails_under_another_policy() -> None:
    proof = proof_of(triangle())
    assert check_proof(triangle("{rho: 2}"), proof) is not None


def test_a_missing_rule_is_detected() -> None:
    proof = proof_of(triangle())
    assert check_proof(triangle(), replace(proof, parts=proof.parts[1:])) is not None


def test_a_smaller_weight_is_detected() -> None:
    proof = proof_of(triangle())
    smaller = replace(proof.parts[0], weight=Fraction(49, 100))
    assert check_proof(triangle(), replace(proof, parts=(smaller, *proof.parts[1:]))) is not None


def test_a_smaller_bound_is_detected() -> None:
    proof = proof_of(triangle())
    assert check_proof(triangle(), replace(proof, amount=Fraction(149, 100))) is not None


def test_a_fractional_delta_is_detected() -> None:
    policy = triangle("{epsilon: 1, delta: 1e-7}")
    proof = proof_of(policy)
    assert check_proof(policy, replace(proof, delta=proof.delta / 2)) is not None


def test_a_rule_in_another_unit_or_twice_is_detected() -> None:
    policy = compile_rules(rule("a", "always", "{rho: 1}"))
    proof = proof_of(policy)
    assert check_proof(policy, replace(proof, parts=proof.parts * 2)) is not None
    per_day = replace(proof.parts[0].rule, base=replace(proof.parts[0].rule.base, unit="user-day"))
    moved = replace(proof, parts=(replace(proof.parts[0], rule=per_day),))
    assert check_proof(policy, moved) is not None


def test_a_weight_above_one_is_detected() -> None:
    policy = compile_rules(rule("a", "always", "{rho: 1}"))
    proof = proof_of(policy)
    heavy = replace(proof, parts=(replace(proof.parts[0], weight=Fraction(2)),), amount=Fraction(2))
    assert check_proof(policy, heavy) is not None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_search_that_ignores_a_case_is_detected(seed: int) -> None:
    """A canary: without one case of a cover, the programme is cheaper or the check fails."""
    random = Random(seed)
    policy = random_rules(random, ("rho",))
    question = parse_question(policy, random.choice(SCOPES), "user")
    rules = usable_rules(policy, question)
    limits = {n: limit for n, r in rules.items() if (limit := additive_limit(r, RHO))}
    search = CaseSearch(policy, question, rules)
    cover = find_cover(search, limits)
    if not isinstance(cover, Cover) or len(cover.history) < 2:
        return
    cases = [case.rules for case in search.cases if case is not cover.history[0][0]]
    broken = solve_programme(cases, limits)
    proof = make_proof(question, RHO, [(rules[n], w) for n, w in broken.weights.items()])
    if proof.amount < cover.value:
        assert check_proof(policy, proof) is not None


def test_the_canary_without_a_case_is_cheaper() -> None:
    policy = triangle()
    question = parse_question(policy, "always", "user")
    rules = usable_rules(policy, question)
    broken = make_proof(question, RHO, [(rules[0], Fraction(1))])
    assert broken.amount < proof_of(policy).amount
    assert check_proof(policy, broken) == "the rules do not cover the scope"


# (ε, δ) with fractional weights: theory/proofs, statement 3. Three mechanisms, each of which has
# the loss ε with a small probability; any two of them together satisfy (ε, δ).


def hockey_stick(epsilon: float, masses: list[tuple[float, float]], copies: int) -> float:
    """Return δ at ε of independent copies of a mechanism with outcomes of masses (P, Q)."""
    total = 0.0
    for outcome in product(masses, repeat=copies):
        p, q = math.prod(m[0] for m in outcome), math.prod(m[1] for m in outcome)
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


def two_outcomes(epsilon: float, rare: float) -> list[tuple[float, float]]:
    return [(rare, rare * math.exp(-epsilon)), (1 - rare, 1 - rare * math.exp(-epsilon))]


def test_fractional_weights_do_not_divide_delta() -> None:
    """The canary of (Σxε, Σxδ): the triangle has twice the δ that it would give."""
    masses = two_outcomes(8.0, 1e-3)
    delta = hockey_stick(8.0, masses, 2)
    together = hockey_stick(12.0, masses, 3)
    assert together > 1.9 * (1.5 * delta)
    assert together <= 3 * delta


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=4))
def test_fractional_weights_keep_the_whole_delta(pairs: list[tuple[float, float]]) -> None:
    """Statement 3 on random mechanisms: (1.5 ε, 3 δ) holds for every ε with its own δ."""
    p, q = (sum(pair[side] for pair in pairs) for side in (0, 1))
    masses = [(a / p, b / q) for a, b in pairs]
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        delta = hockey_stick(epsilon, masses, 2)
        assert hockey_stick(1.5 * epsilon, masses, 3) <= 3 * delta + 1e-12
        assert hockey_stick(2 * epsilon, masses, 4) <= 2 * delta + 1e-12


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.fractions(Fraction(1, 12), 1, max_denominator=12), min_size=1, max_size=6),
)
def test_layers_count_every_mechanism_once(weights: list[Fraction]) -> None:
    """Naive: fill each mechanism with the weights of its rules up to 1, for every set of rules."""
    used: list[set[Fraction]] = [set() for _ in weights]
    for chosen in range(2 ** len(weights)):
        total = Fraction(0)
        for number, weight in enumerate(weights):
            if chosen >> number & 1:
                own = min(weight, 1 - total)
                total += own
                used[number] |= {own} if own else set()
    assert [len(values) for values in used] == list(count_layers(weights))


def test_a_whole_cover_has_one_layer_for_each_rule() -> None:
    assert count_layers([Fraction(1)] * 3) == (1, 1, 1)
    assert prove(triangle("{epsilon: 1, delta: 1e-7}")).proofs[1].delta == Fraction("2e-7")
