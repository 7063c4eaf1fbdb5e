"""Covers of a question by rules: weights that count every mechanism of its scope at least once.

Cutting planes: the programme is solved for the cases so far, and a mechanism that its weights do
not cover is the next case. When there is none, the weights are a cover, and the amounts of the
programme are a history of the same size that all limits admit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.proofs.linear_programme import Optimum, solve_programme
from dpolicy.proofs.mechanism_cases import CaseSearch, MechanismCase, UndecidedCover

#: Branches of the search for a whole cover.
MAX_BRANCHES = 20_000

#: Weights of rules, by number.
Weights = Mapping[int, Fraction]


@dataclass(frozen=True, slots=True)
class Cover:
    """Weights that cover the scope, what they cost, and the largest history by case."""

    weights: Weights
    value: Fraction
    history: tuple[tuple[MechanismCase, Fraction], ...]


@dataclass(frozen=True, slots=True)
class UnlimitedCase:
    """A case that no rule with a limit counts."""

    case: MechanismCase


def find_cover(search: CaseSearch, limits: Mapping[int, Fraction]) -> Cover | UnlimitedCase:
    """Return the cover of least cost, or a case without a limit. Raise `UndecidedCover`."""
    optimum = Optimum(Fraction(0), (), {})
    while True:
        for case in search.cases:
            if case.rules.isdisjoint(limits):
                return UnlimitedCase(case)
        cases = list(search.cases)
        if cases:
            optimum = solve_programme([case.rules for case in cases], limits)
        if search.find_case(optimum.weights) is None:
            amounts = zip(cases, optimum.amounts, strict=False)
            history = tuple((case, amount) for case, amount in amounts if amount)
            return Cover(optimum.weights, optimum.value, history)


def find_whole_cover(
    search: CaseSearch, costs: Mapping[int, tuple[Fraction, Fraction]], delta: Fraction | None
) -> Weights | None:
    """Return rules that together contain the scope, with the least Σε, then the least Σδ.

    `costs` are the ε and δ of each rule. Σδ is at most `delta` if it is given. Return None if the
    rules do not cover the scope. Raise `UndecidedCover`.
    """
    while True:
        cases = [case.rules.intersection(costs) for case in search.cases]
        chosen = _cheapest_hitting_set(cases, costs, delta)
        if chosen is None:
            return None
        weights = dict.fromkeys(sorted(chosen), Fraction(1))
        if search.find_case(weights) is None:
            return weights


def _cheapest_hitting_set(
    cases: list[frozenset[int]],
    costs: Mapping[int, tuple[Fraction, Fraction]],
    delta: Fraction | None,
) -> frozenset[int] | None:
    """Return the cheapest rules of which every case has one, by branch and bound."""
    best: tuple[tuple[Fraction, Fraction], frozenset[int]] | None = None
    stack = [((Fraction(0), Fraction(0)), frozenset[int]())]
    branches = 0
    while stack:
        branches += 1
        if branches > MAX_BRANCHES:
            raise UndecidedCover("there are too many combinations of rules")
        cost, chosen = stack.pop()
        if (delta is not None and cost[1] > delta) or (best is not None and cost >= best[0]):
            continue
        missed = [case for case in cases if not case & chosen]
        if not missed:
            best = (cost, chosen)
            continue
        smallest = min(missed, key=lambda case: len(case))
        for rule in sorted(smallest, key=lambda rule: (costs[rule], rule), reverse=True):
            total = (cost[0] + costs[rule][0], cost[1] + costs[rule][1])
            stack.append((total, chosen | {rule}))
    return None if best is None else best[1]
