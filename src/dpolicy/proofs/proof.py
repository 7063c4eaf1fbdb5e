"""Proofs: rules with weights that bound the loss of a scope, in one notion.

In an additive notion (pure ε, ρ, μ², one Rényi order) the bound is the weighted sum of the limits
of the rules. In (ε, δ) it is the weighted sum of the ε, with the whole δ of each rule, once for
each layer of the rule (docs/theory/proofs.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Zcdp, budget_to_json
from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, Certificate, Notion, format_order
from dpolicy.privacy.conversion import gaussian_to_epsilon, renyi_to_epsilon, zcdp_to_epsilon
from dpolicy.privacy.cost_report import round_up_to_printed_float, sqrt_rounded_up
from dpolicy.proofs.mechanism_cases import UndecidedCover
from dpolicy.proofs.proof_question import Question
from dpolicy.proofs.question_rules import additive_limit
from dpolicy.rules.rule import Rule

#: Most sums of weights that `count_layers` follows.
MAX_SUMS = 4_096


@dataclass(frozen=True, slots=True)
class Part:
    """A rule with its weight in a cover, and its number of layers."""

    rule: Rule
    weight: Fraction
    layers: int

    def as_json(self) -> dict[str, object]:
        """Return the JSON of the part."""
        return {
            "rule": self.rule.name,
            "unit": self.rule.unit,
            "budget": budget_to_json(self.rule.budget),
            "weight": str(self.weight),
            "layers": self.layers,
        }


@dataclass(frozen=True, slots=True)
class Proof:
    """The bound of a question in one notion; `certificate` is None for (ε, δ).

    `amount` is the ε, ρ, μ² or Rényi divergence; `delta` is 0 in an additive notion.
    """

    question: Question
    certificate: Certificate | None
    parts: tuple[Part, ...]
    amount: Fraction
    delta: Fraction

    @property
    def budget(self) -> Budget:
        """The bound as a budget; μ is rounded up."""
        if self.certificate is None or self.certificate == PURE:
            return EpsilonDelta(self.amount, self.delta)
        if self.certificate == RHO:
            return Zcdp(self.amount)
        if self.certificate == MU_SQUARED:
            return Gdp(Fraction(repr(sqrt_rounded_up(self.amount))))
        return Renyi(((self.certificate.order, self.amount),))

    def epsilon(self, delta: Fraction) -> float | None:
        """Return the ε that the bound implies at δ, rounded up; None if it implies none."""
        if self.certificate is None or self.certificate == PURE:
            return round_up_to_printed_float(self.amount) if self.delta <= delta else None
        if not delta:
            return None
        if self.certificate == RHO:
            return zcdp_to_epsilon(self.amount, delta)
        if self.certificate == MU_SQUARED:
            return gaussian_to_epsilon(sqrt_rounded_up(self.amount), delta)
        return renyi_to_epsilon(self.certificate.order, self.amount, delta)

    def as_json(self) -> dict[str, object]:
        """Return the JSON of the proof."""
        return {"bound": budget_to_json(self.budget), "rules": [p.as_json() for p in self.parts]}


def make_proof(
    question: Question, certificate: Certificate | None, weighted: Iterable[tuple[Rule, Fraction]]
) -> Proof:
    """Return the proof with the bound that the weights give. Whether they cover is not checked.

    Raise `UndecidedCover` if the layers of an (ε, δ) bound cannot be counted.
    """
    ordered = sorted(weighted, key=lambda pair: (-pair[1], pair[0].number))
    layers = layers_for(certificate, [weight for _, weight in ordered])
    parts = tuple(Part(*pair, count) for pair, count in zip(ordered, layers, strict=True))
    amount, delta = bound_of_parts(certificate, parts)
    return Proof(question, certificate, parts, amount, delta)


def layers_for(certificate: Certificate | None, weights: Sequence[Fraction]) -> tuple[int, ...]:
    """Return the layers of each rule; an additive notion needs none, so each rule is one part."""
    return count_layers(weights) if certificate is None else (1,) * len(weights)


def bound_of_parts(
    certificate: Certificate | None, parts: Sequence[Part]
) -> tuple[Fraction, Fraction]:
    """Return the amount and δ of a cover. Raise `ValueError` if a rule has no limit."""
    amount, delta = Fraction(0), Fraction(0)
    for part in parts:
        budget = part.rule.budget
        if certificate is not None:
            limit = additive_limit(part.rule, certificate)
        else:
            limit = budget.epsilon if isinstance(budget, EpsilonDelta) else None
        if limit is None:
            raise ValueError(f"the rule `{part.rule.name}` has no limit in this notion")
        amount += part.weight * limit
        if certificate is None and isinstance(budget, EpsilonDelta):
            delta += part.layers * budget.delta
    return amount, delta


def count_layers(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """Return how many different weights each rule can have if a mechanism is counted exactly once.

    A mechanism takes the weights of its rules in order, and of the last one only what is left up to
    1. A rule with n different weights is a sum of n nested parts with one weight each. Raise
    `UndecidedCover` if there are too many sums of weights.
    """
    sums = {Fraction(0)}
    layers = []
    for weight in weights:
        layers.append(len({min(weight, 1 - total) for total in sums if total < 1}))
        sums |= {min(Fraction(1), total + weight) for total in sums}
        if len(sums) > MAX_SUMS:
            raise UndecidedCover("the weights of the cover have too many different sums")
    return tuple(layers)


def notion_name(certificate: Certificate) -> str:
    """Return the key of an additive notion in JSON and messages."""
    if certificate.notion is Notion.RENYI:
        return f"renyi {format_order(certificate.order)}"
    return {PURE: "epsilon", RHO: "rho", MU_SQUARED: "mu-squared"}[certificate]
