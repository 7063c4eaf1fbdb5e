"""Chosen requests and a rule → how much was spent in its scope, in the place where it is most.

The number is an accounting value, not a guarantee: the least over the policy's orders α of the sum
of Rényi divergences plus what the profile adds to read ε off it, log(1/δ)/(α − 1) under `classic`
(docs/evaluation.md). It never passes the budget of a rule that was enforced. It is added up from
the chosen requests and not read off the allocator's books: for rules that were enforced, for pruned
ones, and for those of another policy set than the one that chose.
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

_Numbers = NDArray[np.int64]


def largest_spending(
    enforced: EnforcedPolicy,
    rule: Rule,
    chosen: Sequence[Arrival],
    rotation: CohortRotation,
    cohorts: Sequence[int],
) -> float:
    """The most that was spent in the scope of a rule, over all places of some cohorts."""
    charged = _charged(enforced, rule, chosen, rotation)
    sizes = enforced.cumulative.formatter_for(rule.number).ranking_keys
    worst = max(
        (int(sizes(rows).max()) for cohort in cohorts for rows in _rows(charged, cohort, rotation)),
        default=0,
    )
    return worst / QUANTA_PER_UNIT


@dataclass(frozen=True, slots=True, eq=False)
class _Charged:
    """Boxes of what lies in a scope: round, row of the cost table, and bounds on three axes."""

    table: LossArray
    round: _Numbers
    kind: _Numbers
    cohorts: _Numbers
    days: _Numbers
    places: _Numbers


def _charged(
    enforced: EnforcedPolicy, rule: Rule, chosen: Sequence[Arrival], rotation: CohortRotation
) -> _Charged:
    of = enforced.cumulative
    cohort = find_cohort_axis(of.granularities.space, rotation)
    others = [axis for axis in range(len(of.granularities.space.axes)) if axis != cohort]
    if cohort is None or len(others) != 1:
        raise OperationRejected("what was spent is measured over cohorts and one other partition")
    unit = list(enforced.policy.units).index(rule.unit)
    known: dict[bytes, int] = {}
    table: list[LossArray] = []
    boxes: list[tuple[int, ...]] = []
    for arrival in chosen:
        for mechanism in arrival.mechanisms:
            if not all(
                matches(predicate, mechanism.predicate_input) for predicate in rule.predicates
            ):
                continue
            row = mechanism.costs[unit]
            kind = known.setdefault(row.tobytes(), len(table))
            if kind == len(table):
                table.append(row)
            for box in of.granularities.blocks(mechanism.region, rule.number).boxes:
                boxes.append((arrival.round, kind, *box[cohort], *box[-1], *box[others[0]]))
    columns = np.array(boxes, np.int64).reshape(len(boxes), 8).T
    rows = np.array(table, np.int64).reshape(len(table), loss_width(of.certificates))
    return _Charged(rows, columns[0], columns[1], columns[2:4], columns[4:6], columns[6:8])


def _rows(charged: _Charged, cohort: int, rotation: CohortRotation) -> Iterator[LossArray]:
    """The sums of one cohort in all places, a batch for each stretch of time."""
    first, end = charged.cohorts
    its = (charged.round >= cohort) & (charged.round < cohort + rotation.active)
    its &= (first <= cohort) & (cohort < end)
    for start, _ in pairwise(np.unique(charged.days[:, its]).tolist()):
        now = its & (charged.days[0] <= start) & (start < charged.days[1])
        if now.any():
            yield _swept(charged.table, charged.kind[now], charged.places[:, now])


def _swept(table: LossArray, kind: _Numbers, places: _Numbers) -> LossArray:
    """What adds up between neighbouring bounds."""
    bounds = np.unique(places)
    change = np.zeros((len(bounds), len(table)), np.int64)
    np.add.at(change, (np.searchsorted(bounds, places[0]), kind), 1)
    np.subtract.at(change, (np.searchsorted(bounds, places[1]), kind), 1)
    return sum_costs(change.cumsum(axis=0)[:-1], table)
