"""A rule that renews → how full each of its last blocks of time is, at the fullest place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpolicy.enforcement.check import Prepared
from dpolicy.enforcement.places import ALL_TIME, block_name
from dpolicy.enforcement.segments import Segments
from dpolicy.privacy.calendars import index_of, is_window, start_of
from dpolicy.rules.rule import Rule
from dpolicy.service.views.standing import share_of

#: So many blocks are drawn, up to the last one that any release names.
MOST_BLOCKS = 24


@dataclass(frozen=True, slots=True)
class Block:
    """A month, or whatever the unit's period is, and the share of the budget used in it."""

    name: str
    share: float

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"block": self.name, "share": self.share}


def blocks(of: Prepared, rule: Rule, segments: Segments | None) -> tuple[Block, ...]:
    """The last blocks of a rule that is kept by blocks of time; nothing for windows that slide."""
    period = of.layout.frames[of.layout.frame_of[rule.number]].period
    if segments is None or period is None or is_window(period):
        return ()
    parts = segments.parts()
    rows = parts["amounts"].T
    charged = rows.any(axis=1)
    low, high = parts["low"][-1][charged], parts["high"][-1][charged]
    named = high[high < ALL_TIME[1]]
    used = share_of(rule.budget, of.readout_of(rule.number), rows[charged])
    if not len(named) or np.isnan(used).any():
        return ()
    last = index_of(period, int(named.max()) - 1)
    found = []
    for number in range(last - MOST_BLOCKS + 1, last + 1):
        start, end = start_of(period, number), start_of(period, number + 1)
        inside = used[(low < end) & (high > start)]
        found.append(Block(block_name(period, start), float(inside.max(initial=0.0))))
    first = next((n for n, block in enumerate(found) if block.share), len(found))
    return tuple(found[first:])
