"""Group table: the mechanisms of all charge groups in columns, with their costs.

Distinct predicate inputs, regions and costs are stored once and numbered. A question tests each
distinct input once, computes each distinct cost once, and adds rows of integers.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.enforced_policy import EnforcedPolicy, MechanismStatement
from dpolicy.balances.memo import Memo
from dpolicy.pdp.state.charge_groups import ChargeGroup, resolve_mechanisms
from dpolicy.privacy.cost_report import report_certificates
from dpolicy.privacy.loss import unbounded_loss
from dpolicy.privacy.loss_arrays import LossArray, loss_to_row, loss_width
from dpolicy.privacy.loss_distribution.unit_runs import LossRuns
from dpolicy.releases.regions import Region
from dpolicy.releases.release_schema import PredicateInput

#: Number of the region of a mechanism that reads everything.
WHOLE_SPACE = 0

#: Number of the cost of a release that the policy cannot resolve.
UNBOUNDED = -1

#: Largest number of distinct mechanisms whose costs are kept: about 0.5 kB each per unit.
MAX_KEPT_COSTS = 65_536

T = TypeVar("T")
Numbers = NDArray[np.intp]


class _Numbering(Generic[T]):
    """Distinct values in the order of their first use."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: T, key: Hashable) -> int:
        number = self._numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


@dataclass(frozen=True, slots=True, eq=False)
class MechanismColumns:
    """Mechanisms of charge groups: the numbers of group, input, region and cost of each."""

    groups: Numbers
    inputs: Numbers
    regions: Numbers
    costs: Numbers

    def select(self, chosen: NDArray[np.bool_]) -> MechanismColumns:
        """Return the chosen mechanisms."""
        columns = (self.groups, self.inputs, self.regions, self.costs)
        return MechanismColumns(*(column[chosen] for column in columns))


class GroupTable:
    """Resolved mechanisms of charge groups under one policy. Mutable; grows with the ledger."""

    def __init__(self, enforced: EnforcedPolicy) -> None:
        self.enforced = enforced
        self.certificates = report_certificates(enforced.policy.accounting.orders)
        self._pricing = enforced.with_own_memos(MAX_KEPT_COSTS)
        self._inputs = _Numbering[PredicateInput]()
        self._regions = _Numbering[Region | None]()
        self._regions.number(None, None)
        self._statements = _Numbering[MechanismStatement]()
        self._columns = tuple(array("q") for _ in range(4))
        self._resolved: set[int] = set()
        self._unresolvable: set[int] = set()
        self._costs: Memo[int, LossArray] = Memo(MAX_KEPT_COSTS)
        self._runs: Memo[int, tuple[LossRuns, ...]] = Memo(MAX_KEPT_COSTS)
        self._last = (0, 0)

    def fits(self, enforced: EnforcedPolicy, groups: list[ChargeGroup]) -> bool:
        """Return whether the table is for this policy, and for the beginning of these groups."""
        count, chain = self._last
        is_prefix = not count or (count <= len(groups) and groups[count - 1].chain == chain)
        return enforced is self.enforced and is_prefix

    def resolve(self, groups: list[ChargeGroup], chosen: Iterable[int]) -> frozenset[int]:
        """Resolve the chosen groups; return those that the policy cannot resolve."""
        numbers = set(chosen)
        for number in sorted(numbers - self._resolved):
            self._resolve(number, groups[number])
        if groups:
            self._last = (len(groups), groups[-1].chain)
        return frozenset(numbers & self._unresolvable)

    def _resolve(self, number: int, group: ChargeGroup) -> None:
        mechanisms = resolve_mechanisms(self._pricing, group, self.certificates)
        if mechanisms is None:
            self._unresolvable.add(number)
        for mechanism in mechanisms or ():
            statement = mechanism.statement
            values = (
                number,
                self._inputs.number(
                    mechanism.predicate_input, _input_key(mechanism.predicate_input)
                ),
                self._regions.number(mechanism.region, mechanism.region),
                self._statements.number(statement, statement),
            )
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)
        self._resolved.add(number)

    def columns(self) -> MechanismColumns:
        """Return all resolved mechanisms."""
        return MechanismColumns(*(np.array(column, np.intp) for column in self._columns))

    def predicate_inputs(self) -> list[PredicateInput]:
        """Return the distinct predicate inputs by number. Do not modify the list."""
        return self._inputs.values

    def region(self, number: int) -> Region | None:
        """Return a distinct region."""
        return self._regions.values[number]

    def cost_rows(self, numbers: Numbers, unit: int) -> LossArray:
        """Return the costs with these numbers for the unit at a position, one row each."""
        distinct, inverse = np.unique(numbers, return_inverse=True)
        rows = [self._cost_row(number, unit) for number in distinct.tolist()]
        return np.array(rows, np.int64).reshape(-1, loss_width(self.certificates))[inverse]

    def _cost_row(self, number: int, unit: int) -> LossArray:
        if number == UNBOUNDED:
            return loss_to_row(unbounded_loss(self.certificates))
        row: LossArray = self._costs.get_or_compute(number, self._compute_cost)[unit]
        return row

    def _compute_cost(self, number: int) -> LossArray:
        return self._pricing.mechanism_costs(self._statements.values[number])

    def loss_runs(self, number: int, unit: int) -> LossRuns:
        """Return a distinct mechanism as draws from loss pairs, for the unit at a position."""
        if number == UNBOUNDED:
            return ()
        return self._runs.get_or_compute(number, self._compute_runs)[unit]

    def _compute_runs(self, number: int) -> tuple[LossRuns, ...]:
        return self._pricing.mechanism_runs(self._statements.values[number])


def _input_key(value: PredicateInput) -> Hashable:
    """Return a key that equal predicate inputs share."""
    labels = tuple(sorted(value.labels.items()))
    return value.attributes, labels, value.mechanism, value.by, value.unknown_labels
