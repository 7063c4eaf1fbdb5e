"""Check of a proof, independent of the search for it.

The check trusts the compiled policy and the implication check, as pruning does, and nothing else:
it derives the conditions on rules, the cover and the sum again, in exact fractions.
"""

from __future__ import annotations

from fractions import Fraction

from dpolicy.proofs.mechanism_cases import CaseSearch, UndecidedCover
from dpolicy.proofs.proof import Proof, bound_of_parts, layers_for
from dpolicy.proofs.question_rules import usable_rules
from dpolicy.rules.compiler import CompiledPolicy


def check_proof(policy: CompiledPolicy, proof: Proof) -> str | None:
    """Return why the proof is not valid for the policy, or None if it is valid."""
    rules = usable_rules(policy, proof.question)
    weights: dict[int, Fraction] = {}
    for part in proof.parts:
        number = part.rule.number
        if rules.get(number) != part.rule or number in weights:
            return f"the rule `{part.rule.name}` does not bound the question, or occurs twice"
        if not 0 < part.weight <= 1:
            return f"the weight {part.weight} of `{part.rule.name}` is not from 0 to 1"
        weights[number] = part.weight
    try:
        layers = layers_for(proof.certificate, list(weights.values()))
        if any(part.layers < count for part, count in zip(proof.parts, layers, strict=True)):
            return "a rule has fewer layers than its weights need"
        amount, delta = bound_of_parts(proof.certificate, proof.parts)
        if amount > proof.amount or delta > proof.delta:
            return "the weighted limits of the rules exceed the bound"
        if CaseSearch(policy, proof.question, rules).find_case(weights) is not None:
            return "the rules do not cover the scope"
    except (ValueError, UndecidedCover) as error:
        return str(error)
    return None
