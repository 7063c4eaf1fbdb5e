"""A rule that renews → how full each of its last blocks of time is, at the fullest place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.partition_space import ALL_TIME, block_name
from dpolicy.balances.segments import Segments
from dpolicy.privacy.units.calendar import block_index, block_start, is_window
from dpolicy.rules.rule import Rule
from dpolicy.service.dashboard.views.rule_status_row import used_share_of_budget

#: So many blocks are drawn, up to the last one that any release names.
MAX_BLOCKS_SHOWN = 24


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """A month, or whatever the unit's period is, and the share of the budget used in it."""

    name: str
    share: float

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"block": self.name, "share": self.share}


def time_block_usage(
    section: EnforcedSection, rule: Rule, segments: Segments | None
) -> tuple[BlockUsage, ...]:
    """The last blocks of a rule that is kept by blocks of time; nothing for windows that slide."""
    period = section.granularities.frames[section.granularities.frame_of[rule.number]].period
    if segments is None or period is None or is_window(period):
        return ()
    parts = segments.to_arrays()
    rows = parts["amounts"].T
    charged = rows.any(axis=1)
    low, high = parts["low"][-1][charged], parts["high"][-1][charged]
    named = high[high < ALL_TIME[1]]
    used = used_share_of_budget(rule.budget, section.formatter_for(rule.number), rows[charged])
    if not len(named) or np.isnan(used).any():
        return ()
    last = block_index(period, int(named.max()) - 1)
    found = []
    for number in range(last - MAX_BLOCKS_SHOWN + 1, last + 1):
        start, end = block_start(period, number), block_start(period, number + 1)
        inside = used[(low < end) & (high > start)]
        found.append(BlockUsage(block_name(period, start), float(inside.max(initial=0.0))))
    first = next((n for n, block in enumerate(found) if block.share), len(found))
    return tuple(found[first:])
