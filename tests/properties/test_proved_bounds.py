"""A rule with a proved bound denies nothing, in policies with units, partitions and collapse.

The prover gives a bound for a scope and a unit. The policy with this bound as one more rule must
decide every release as before: what the rule bounds never exceeds it. Fixed seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from tests.properties.policy_replay import compare_decisions, compile_dict, without_pruning
from tests.properties.targeted_policies import (
    SCOPES,
    PolicyDict,
    Story,
    random_policy,
    random_rule,
    random_story,
)

from dpolicy.balances.enforced_policy import enforce
from dpolicy.privacy.certificates import PURE, RHO
from dpolicy.proofs import question_rules
from dpolicy.proofs.proof import Proof
from dpolicy.proofs.proof_question import parse_question
from dpolicy.proofs.prover import answer_question
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.scope_order import Preorder

POLICIES, STORIES = 100, 2
QUESTIONS = (*SCOPES, '"a" in attributes')


def cases(count: int) -> Iterator[tuple[Random, PolicyDict, CompiledPolicy, list[Story]]]:
    """Yield random policies in ρ or pure ε, half of them without a rule for everything."""
    for seed in range(count):
        random = Random(seed)
        policy = random_policy(random)
        budget = policy["policies"][0]["budget"]
        if "rho" not in budget and "delta" not in budget:
            continue
        notion = "rho" if "rho" in budget else "pure"
        units = tuple(policy["units"])
        added = [random_rule(random, f"x{n}", units, notion) for n in range(2)]
        policy["policies"] += [{**rule, "when": '"a" in attributes'} for rule in added]
        if random.random() < 0.5:
            for rule in policy["policies"]:
                rule["when"] = rule["when"].replace("always", '"country" in attributes')
        yield (
            random,
            policy,
            compile_dict(policy),
            [random_story(random, policy) for _ in range(STORIES)],
        )


def proofs(compiled: CompiledPolicy, when: str, unit: str) -> list[Proof]:
    question = parse_question(compiled, when, unit)
    answer = answer_question(compiled, question, with_worst=False)
    return [proof for proof in answer.proofs if proof.certificate in (PURE, RHO)]


def with_rule(policy: PolicyDict, proof: Proof, share: Fraction = Fraction(1)) -> PolicyDict:
    """Return the policy with the bound as a rule; `share` makes it smaller."""
    amount = float(proof.amount * share)
    budget: dict[str, Any] = {"rho": amount}
    if proof.certificate == PURE:
        budget = {"epsilon": amount, "delta": 0}
    question = proof.question
    rule = {"name": "proved", "kind": "custom", "when": question.text, "unit": question.unit}
    return {**policy, "policies": [*policy["policies"], {**rule, "budget": budget}]}


def count_denials(policy: PolicyDict, compiled: CompiledPolicy, stories: list[Story]) -> int:
    """Return how many releases only the policy with the rule denies."""
    pair = enforce(compiled), enforce(without_pruning(compile_dict(policy)))
    return sum(a and not b for story in stories for a, b in compare_decisions(*pair, story))


def test_a_rule_with_a_proved_bound_denies_nothing() -> None:
    proved = several = 0
    for random, policy, compiled, stories in cases(POLICIES):
        when, unit = random.choice(QUESTIONS), random.choice(list(policy["units"]))
        for proof in proofs(compiled, when, unit)[:1]:
            proved += 1
            several += len(proof.parts) > 1
            assert not count_denials(with_rule(policy, proof), compiled, stories), policy
    assert proved > POLICIES / 4 and several > 5


def test_a_smaller_bound_denies() -> None:
    """A canary: the stories reach the bounds, so a rule with two thirds of one denies."""
    denied = 0
    for random, policy, compiled, stories in cases(POLICIES // 2):
        when, unit = random.choice(QUESTIONS), random.choice(list(policy["units"]))
        for proof in proofs(compiled, when, unit)[:1]:
            smaller = with_rule(policy, proof, Fraction(2, 3))
            denied += count_denials(smaller, compiled, stories) > 0
    assert denied > 5


def ignore_units(names: list[str], _: object) -> Preorder:
    """Order all units as equal."""
    return Preorder((0,) * len(names), ((),))


def ignore_partitions(*_: object) -> bool:
    """Return that a scope reads no attribute."""
    return False


@pytest.mark.parametrize(
    ("name", "broken"), [("order_units", ignore_units), ("reads_attribute", ignore_partitions)]
)
def test_an_omitted_condition_on_rules_is_detected(
    name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two canaries: a prover that ignores units or partitions proves bounds that are exceeded."""
    monkeypatch.setattr(question_rules, name, broken)
    for random, policy, compiled, stories in cases(POLICIES):
        for when in QUESTIONS:
            unit = random.choice(list(policy["units"]))
            for proof in proofs(compiled, when, unit)[:1]:
                if count_denials(with_rule(policy, proof), compiled, stories):
                    return
    pytest.fail(f"no policy detects the omitted condition {name}")
