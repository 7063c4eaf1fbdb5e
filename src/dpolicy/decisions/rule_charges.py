"""Charges of a release to rules: which rules have the same costs in the same regions.

The cost of a mechanism depends on the unit of a rule, so most rules of a release have the same
costs. What depends on the costs only is computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Charge
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.rule_grids import RuleNumbers
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Region

#: Blocks of a rule, and the cost there.
BlockCosts = list[tuple[Region, LossArray]]

#: Whether a charge charges each rule, and the row of each rule that it charges.
_ChargedRows = tuple[NDArray[np.bool_], LossArray]


def group_by_cost(
    section: EnforcedSection,
    granularity: int,
    numbers: RuleNumbers,
    *charge_lists: Sequence[Charge],
) -> Iterator[tuple[NDArray[np.intp], list[BlockCosts]]]:
    """Group rules with the same granularity and the same costs in every list of charges.

    Yield the positions of the rules of a group in `numbers`, and for each list the blocks that are
    charged, with their costs.
    """
    charges = [charge for charge_list in charge_lists for charge in charge_list]
    blocks = [
        section.granularities.blocks_at(charge.region, granularity, charge.cutoff)
        for charge in charges
    ]
    charged = [_select_rows(charge, numbers) for charge in charges]
    ends = np.cumsum([0, *(len(charge_list) for charge_list in charge_lists)]).tolist()
    for positions in _group_equal_rows(charged, len(numbers)):
        costs = [
            (region, rows[positions[0]]) if is_charged[positions[0]] else None
            for region, (is_charged, rows) in zip(blocks, charged, strict=True)
        ]
        by_list = [costs[start:end] for start, end in pairwise(ends)]
        yield positions, [[cost for cost in costs if cost is not None] for costs in by_list]


def _select_rows(charge: Charge, numbers: RuleNumbers) -> _ChargedRows:
    """Return which rules a charge charges, and one row per rule."""
    at = np.searchsorted(charge.rule_numbers, numbers)
    is_charged = np.zeros(len(numbers), np.bool_)
    inside = np.flatnonzero(at < len(charge.rule_numbers))
    is_charged[inside] = charge.rule_numbers[at[inside]] == numbers[inside]
    rows = np.zeros((len(numbers), charge.rows.shape[1]), np.int64)
    rows[is_charged] = charge.rows[at[is_charged]]
    return is_charged, rows


def _group_equal_rows(charged: Sequence[_ChargedRows], count: int) -> Iterator[NDArray[np.intp]]:
    """Yield the positions of rules that the same charges charge with the same rows."""
    table = np.hstack([np.column_stack([is_charged, rows]) for is_charged, rows in charged])
    groups: dict[bytes, list[int]] = {}
    for position in range(count):
        groups.setdefault(table[position].tobytes(), []).append(position)
    for positions in groups.values():
        yield np.array(positions, np.intp)
