"""Spending of selected requests in the scope of a rule, at the location with the largest loss.

The number is an accounting value, not a guarantee: the minimum over the orders α of the policy of
the sum of Rényi divergences plus the conversion term of the profile, log(1/δ)/(α − 1) under
`classic` (docs/evaluation.md). It never exceeds the budget of an enforced rule. It is summed from
the selected requests, not read from the balances of the allocator, so it can be computed for
enforced rules, for pruned rules, and for rules of a policy set that was not enforced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.problem.step_functions import sum_costs
from dpolicy.allocation.simulation import Arrival, find_cohort_axis
from dpolicy.allocation.unlocking import CohortRotation
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.errors import OperationRejected
from dpolicy.predicates.expression import matches
from dpolicy.privacy.certificates import QUANTA_PER_UNIT
from dpolicy.privacy.loss_arrays import LossArray, loss_width
from dpolicy.rules.rule import Rule

_IntArray = NDArray[np.int64]


def largest_spending(
    enforced: EnforcedPolicy,
    rule: Rule,
    selected: Sequence[Arrival],
    rotation: CohortRotation,
    cohorts: Sequence[int],
) -> float:
    """Return the largest ε spent in the scope of a rule, over all locations of the cohorts."""
    charges = _collect_charges(enforced, rule, selected, rotation)
    sizes = enforced.cumulative.formatter_for(rule.number).ranking_keys
    worst = max(
        (
            int(sizes(rows).max())
            for cohort in cohorts
            for rows in _cohort_losses(charges, cohort, rotation)
        ),
        default=0,
    )
    return worst / QUANTA_PER_UNIT


@dataclass(frozen=True, slots=True, eq=False)
class _Charges:
    """Charged boxes in a scope: round, row of the cost table, and bounds on three axes.

    The bounds are 2 × boxes.
    """

    table: LossArray
    round: _IntArray
    kind: _IntArray
    cohorts: _IntArray
    days: _IntArray
    positions: _IntArray


def _collect_charges(
    enforced: EnforcedPolicy, rule: Rule, selected: Sequence[Arrival], rotation: CohortRotation
) -> _Charges:
    """Collect the boxes that the requests in the scope of a rule charge."""
    section = enforced.cumulative
    cohort = find_cohort_axis(section.granularities.space, rotation)
    other_axes = [axis for axis in range(len(section.granularities.space.axes)) if axis != cohort]
    if cohort is None or len(other_axes) != 1:
        raise OperationRejected(
            "spending can be measured only over cohorts and one other partition"
        )
    unit = list(enforced.policy.units).index(rule.unit)
    kinds_by_bytes: dict[bytes, int] = {}
    table: list[LossArray] = []
    boxes: list[tuple[int, ...]] = []
    for arrival in selected:
        for mechanism in arrival.mechanisms:
            if not all(
                matches(predicate, mechanism.predicate_input) for predicate in rule.predicates
            ):
                continue
            row = mechanism.costs[unit]
            kind = kinds_by_bytes.setdefault(row.tobytes(), len(table))
            if kind == len(table):
                table.append(row)
            for box in section.granularities.blocks(mechanism.region, rule.number).boxes:
                boxes.append((arrival.round, kind, *box[cohort], *box[-1], *box[other_axes[0]]))
    columns = np.array(boxes, np.int64).reshape(len(boxes), 8).T
    rows = np.array(table, np.int64).reshape(len(table), loss_width(section.certificates))
    return _Charges(rows, columns[0], columns[1], columns[2:4], columns[4:6], columns[6:8])


def _cohort_losses(charges: _Charges, cohort: int, rotation: CohortRotation) -> Iterator[LossArray]:
    """Yield the losses of one cohort at all positions, one array per stretch of time."""
    first, end = charges.cohorts
    in_cohort = (charges.round >= cohort) & (charges.round < cohort + rotation.active)
    in_cohort &= (first <= cohort) & (cohort < end)
    for start, _ in pairwise(np.unique(charges.days[:, in_cohort]).tolist()):
        in_stretch = in_cohort & (charges.days[0] <= start) & (start < charges.days[1])
        if in_stretch.any():
            yield _sum_between_bounds(
                charges.table, charges.kind[in_stretch], charges.positions[:, in_stretch]
            )


def _sum_between_bounds(table: LossArray, kind: _IntArray, positions: _IntArray) -> LossArray:
    """Return the summed costs between neighbouring bounds."""
    bounds = np.unique(positions)
    change = np.zeros((len(bounds), len(table)), np.int64)
    np.add.at(change, (np.searchsorted(bounds, positions[0]), kind), 1)
    np.subtract.at(change, (np.searchsorted(bounds, positions[1]), kind), 1)
    return sum_costs(change.cumsum(axis=0)[:-1], table)
