"""Scope charges: the charged mechanisms in the scope of a question, in columns.

Recorded releases are charged by their recorded meaning (theory/records): a predicate that fails
means "charged", and a release that the policy cannot resolve has an unbounded loss everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.errors import OperationRejected
from dpolicy.pdp.spending.group_table import (
    UNBOUNDED,
    WHOLE_SPACE,
    GroupTable,
    MechanismColumns,
    Numbers,
)
from dpolicy.pdp.spending.places import PlacedCharge, Places
from dpolicy.pdp.spending.question import Scope
from dpolicy.pdp.spending.row_sums import sum_rows
from dpolicy.pdp.state.charge_groups import ChargeGroup
from dpolicy.predicates.expression import Expression
from dpolicy.predicates.tree import Literals, Quantifier, walk
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.rule_index import possibly_matches

#: Largest number of evaluations of the bodies of quantifiers for one question, about three seconds.
MAX_STEPS = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class ScopeCharges:
    """Mechanisms that are charged to a question.

    `columns` are their numbers in the table, `rows` the costs of one release, and `counts` the
    numbers of releases by charge group.
    """

    table: GroupTable
    columns: MechanismColumns
    rows: LossArray
    counts: NDArray[np.int64]

    @property
    def weights(self) -> NDArray[np.int64]:
        """The number of releases of each mechanism."""
        return self.counts[self.columns.groups]

    def sum_by_place(self, groups: list[ChargeGroup], places: Places) -> list[PlacedCharge]:
        """Return the sum of the losses of each region and cutoff."""
        cutoffs = np.fromiter(
            (places.charge_cutoff(groups[n].month) for n in self.columns.groups.tolist()),
            np.int64,
            len(self.columns.groups),
        )
        keys = np.column_stack([self.columns.regions, cutoffs])
        distinct, targets = np.unique(keys, axis=0, return_inverse=True)
        sums = sum_rows(self.rows, self.weights, targets.reshape(-1), len(distinct))
        return [
            (self.table.region(region), cutoff, row)
            for (region, cutoff), row in zip(distinct.tolist(), sums, strict=True)
        ]

    def at(self, point: Point | None, places: Places) -> ScopeCharges:
        """Return the mechanisms that are charged at a point."""
        if point is None:
            return self
        regions, inverse = np.unique(self.columns.regions, return_inverse=True)
        is_charged = [places.is_charged_at(self.table.region(n), point) for n in regions.tolist()]
        chosen = np.array(is_charged, np.bool_)[inverse]
        return replace(self, columns=self.columns.select(chosen), rows=self.rows[chosen])

    def released_by(self, author: str, groups: list[ChargeGroup]) -> ScopeCharges:
        """Return the mechanisms of the releases of one author."""
        is_own = [groups[number].by == author for number in self.columns.groups.tolist()]
        chosen = np.array(is_own, np.bool_)
        return replace(self, columns=self.columns.select(chosen), rows=self.rows[chosen])

    def sum_by_group(self) -> tuple[Numbers, LossArray]:
        """Return the charged groups and the cost of one release of each."""
        groups, targets = np.unique(self.columns.groups, return_inverse=True)
        ones = np.ones(len(targets), np.int64)
        return groups, sum_rows(self.rows, ones, targets, len(groups))

    def count_by_cost(self) -> list[tuple[int, int]]:
        """Return the numbers of the distinct costs, each with how often it is charged."""
        costs, targets = np.unique(self.columns.costs, return_inverse=True)
        counts = np.zeros(len(costs), np.int64)
        np.add.at(counts, targets, self.weights)
        return list(zip(costs.tolist(), counts.tolist(), strict=True))


def charge_scope(
    table: GroupTable,
    groups: list[ChargeGroup],
    counts: NDArray[np.int64],
    scope: Scope,
    unit: int,
) -> ScopeCharges:
    """Charge the counted releases to a scope, for the unit at a position."""
    unresolved = sorted(table.resolve(groups, np.flatnonzero(counts).tolist()))
    columns = table.columns()
    columns = columns.select(counts[columns.groups] > 0)
    columns = columns.select(_find_matches(table, columns.inputs, scope))
    columns = _append_unbounded(columns, np.array(unresolved, np.intp))
    return ScopeCharges(table, columns, table.cost_rows(columns.costs, unit), counts)


def _find_matches(table: GroupTable, inputs: Numbers, scope: Scope) -> NDArray[np.bool_]:
    """Return which mechanisms are in the scope, or may be."""
    distinct, inverse = np.unique(inputs, return_inverse=True)
    test, values = _scope_test(table.enforced, scope), table.predicate_inputs()
    if scope.when is not None:
        _ensure_few_steps(scope, [values[number] for number in distinct.tolist()])
    return np.array([test(values[number]) for number in distinct.tolist()], np.bool_)[inverse]


def _ensure_few_steps(scope: Scope, values: list[PredicateInput]) -> None:
    """Raise `OperationRejected` if the quantifiers of a stated scope would take too many steps."""
    trees = [p.tree for p in scope.predicates if isinstance(p, Expression)]
    quantifiers = [n for tree in trees for n in walk(tree) if isinstance(n, Quantifier)]
    literals = [len(n.over.items) for n in quantifiers if isinstance(n.over, Literals)]
    depths = Counter(node.depth + 1 for node in quantifiers)
    steps = 0
    for value in values if depths else ():
        labels = (len(label) for label in value.labels.values() if not isinstance(label, str))
        longest = max(len(value.attributes), *literals, *labels, 1)
        steps += sum(count * longest**depth for depth, count in depths.items())
    if steps > MAX_STEPS:
        raise OperationRejected(
            f"the quantifiers of the scope take up to {steps:,} steps over the releases, more than "
            f"{MAX_STEPS:,}; help: nest fewer quantifiers, or state authors or a date"
        )


def _scope_test(enforced: EnforcedPolicy, scope: Scope) -> Callable[[PredicateInput], bool]:
    """Return the test of a scope. A kept rule has the releases that its balance has."""
    number = scope.kept_number
    if number is None:
        return lambda value: all(possibly_matches(p, value) for p in scope.predicates)
    index = enforced.cumulative.compiled.index
    return lambda value: index.contains(index.possible_match(value), number)


def _append_unbounded(columns: MechanismColumns, groups: Numbers) -> MechanismColumns:
    """Add a mechanism without any bound for each group that the policy cannot resolve."""
    whole, unbounded = np.full_like(groups, WHOLE_SPACE), np.full_like(groups, UNBOUNDED)
    return MechanismColumns(
        np.concatenate([columns.groups, groups]),
        np.concatenate([columns.inputs, whole]),
        np.concatenate([columns.regions, whole]),
        np.concatenate([columns.costs, unbounded]),
    )
