"""Use of a rule that renews in its most recent time blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.partition_space import ALL_TIME, block_name
from dpolicy.balances.segments import Segments
from dpolicy.privacy.units.calendar import block_index, block_start, is_window
from dpolicy.rules.rule import Rule
from dpolicy.service.dashboard.views.rule_status_row import finite_share

#: Number of blocks, up to the last one that a release selects.
MAX_BLOCKS_SHOWN = 24


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """One block of the period (such as a month) with the largest used share of its budget."""

    name: str
    share: float

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"block": self.name, "share": finite_share(self.share)}


def recent_blocks(
    section: EnforcedSection, rule: Rule, segments: Segments | None
) -> tuple[BlockUsage, ...]:
    """Return the most recent blocks, from the first used one; each at its most used location.

    The result is empty for lifetime budgets, sliding windows and unlimited budgets.
    """
    period = section.granularities.for_rule(rule.number).period
    if segments is None or period is None or is_window(period):
        return ()
    arrays = segments.to_arrays()
    losses = arrays["amounts"].T
    charged = losses.any(axis=1)
    low, high = arrays["low"][-1][charged], arrays["high"][-1][charged]
    bounded = high[high < ALL_TIME[1]]
    shares = section.formatter_for(rule.number).used_shares(losses[charged])
    if not len(bounded) or np.isnan(shares).any():
        return ()
    last = block_index(period, int(bounded.max()) - 1)
    blocks = []
    for index in range(last - MAX_BLOCKS_SHOWN + 1, last + 1):
        start, end = block_start(period, index), block_start(period, index + 1)
        inside = shares[(low < end) & (high > start)]
        blocks.append(BlockUsage(block_name(period, start), float(inside.max(initial=0.0))))
    first_used = next((n for n, block in enumerate(blocks) if block.share), len(blocks))
    return tuple(blocks[first_used:])
