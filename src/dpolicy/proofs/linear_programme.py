"""Exact linear programme: the largest history within the limits of rules, and the cheapest cover.

The two are dual. The simplex method with Bland's rule works in fractions, so both optima are exact
and equal, and it always ends. Nothing trusts it: `proof_check.py` checks covers, and the decision
point decides histories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpolicy.errors import InvariantBroken


@dataclass(frozen=True, slots=True)
class Optimum:
    """Equal optima: `amounts` of the cases (the history), `weights` of the rules (the cover)."""

    value: Fraction
    amounts: tuple[Fraction, ...]
    weights: Mapping[int, Fraction]


def solve_programme(cases: Sequence[frozenset[int]], limits: Mapping[int, Fraction]) -> Optimum:
    """Maximise the sum of amounts of the cases, within the limit of every rule.

    A case is the set of rules that count it; every case must have a rule with a limit. The weights
    of the dual, at most 1 each, cover each case with at least 1, and cost what the history has.
    """
    rows = _distinct_rows(cases, limits)
    programme = _Programme(
        [[Fraction(case in row) for case in range(len(cases))] for row, _ in rows],
        [limits[rule] for _, rule in rows],
        [Fraction(1)] * len(cases),
    )
    programme.maximise()
    count = len(cases)
    basic = dict(zip(programme.basic, programme.right, strict=True))
    prices = dict(zip(programme.free, programme.gains, strict=True))
    weights = {rule: -prices.get(count + n, Fraction(0)) for n, (_, rule) in enumerate(rows)}
    return Optimum(
        programme.value,
        tuple(basic.get(case, Fraction(0)) for case in range(count)),
        {rule: min(weight, Fraction(1)) for rule, weight in weights.items() if weight},
    )


def _distinct_rows(
    cases: Sequence[frozenset[int]], limits: Mapping[int, Fraction]
) -> list[tuple[frozenset[int], int]]:
    """Return each set of cases that a rule counts, with the rule of the smallest limit."""
    counted: dict[int, set[int]] = {}
    for number, case in enumerate(cases):
        for rule in case.intersection(limits):
            counted.setdefault(rule, set()).add(number)
    best: dict[frozenset[int], int] = {}
    for rule in sorted(counted, key=lambda rule: (limits[rule], rule)):
        best.setdefault(frozenset(counted[rule]), rule)
    return list(best.items())


class _Programme:
    """Dictionary of the simplex method: basic variables as functions of the free ones."""

    def __init__(
        self, matrix: list[list[Fraction]], right: list[Fraction], gains: list[Fraction]
    ) -> None:
        self.matrix, self.right, self.gains = matrix, right, gains
        self.free = list(range(len(gains)))
        self.basic = [len(gains) + number for number in range(len(right))]
        self.value = Fraction(0)

    def maximise(self) -> None:
        """Pivot until no free variable has a gain."""
        while True:
            entering = [j for j, gain in enumerate(self.gains) if gain > 0]
            if not entering:
                return
            column = min(entering, key=self.free.__getitem__)
            rows = [i for i, row in enumerate(self.matrix) if row[column] > 0]
            if not rows:
                raise InvariantBroken("no rule limits a case of the programme")
            ratio = {i: self.right[i] / self.matrix[i][column] for i in rows}
            self._pivot(min(rows, key=lambda i: (ratio[i], self.basic[i])), column)

    def _pivot(self, at: int, column: int) -> None:
        """Exchange one basic and one free variable."""
        row = self.matrix[at]
        pivot = row[column]
        row[column] = Fraction(1)
        self.matrix[at] = row = [entry / pivot for entry in row]
        self.right[at] /= pivot
        for i, other in enumerate(self.matrix):
            factor = other[column]
            if i != at and factor:
                other[column] = Fraction(0)
                self.matrix[i] = [
                    x - factor * y if y else x for x, y in zip(other, row, strict=True)
                ]
                self.right[i] -= factor * self.right[at]
        gain = self.gains[column]
        self.value += gain * self.right[at]
        self.gains[column] = Fraction(0)
        self.gains = [x - gain * y if y else x for x, y in zip(self.gains, row, strict=True)]
        self.basic[at], self.free[column] = self.free[column], self.basic[at]
