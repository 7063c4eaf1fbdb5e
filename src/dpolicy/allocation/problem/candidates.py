"""Candidates of a round: their charges to every rule, and the demand on one rule.

A candidate is refused, independently of the others, if a per-release rule is exceeded, if no rule
covers one of its mechanisms, or if a predicate cannot be evaluated. Where several mechanisms of a
candidate touch the same block, their costs are added (theory 2.6). An item is one cost of a
candidate and the blocks in which it applies; no block lies in two items of the same candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Charge, disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.balances.granularities import RuleGranularities
from dpolicy.decisions.decide import charges_by_region, check_release
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.errors import PredicateFailed
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Box, Region

#: Bounds of boxes, axes × boxes.
CandidatePositions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A release that competes for budget; `rejection_reasons` is empty if it can be selected."""

    id: str
    utility: float
    charges: tuple[Charge, ...]
    rejection_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RuleDemand:
    """Demand of candidates on one rule.

    Items are sorted by candidate: `owner` is the number of the candidate, `kind` the row of `table`
    with the cost. Boxes have `low` and `high` per axis and belong to the item `item_of_box`; the
    boxes of one item are disjoint.
    """

    owner: NDArray[np.intp]
    kind: NDArray[np.intp]
    table: LossArray
    low: CandidatePositions
    high: CandidatePositions
    item_of_box: NDArray[np.intp]

    def restrict_to(self, selected: NDArray[np.bool_]) -> RuleDemand | None:
        """Return the demand of the selected candidates; None if they demand nothing."""
        keep = selected[self.owner]
        if not keep.any():
            return None
        boxes, renumbered = keep[self.item_of_box], np.cumsum(keep) - 1
        return RuleDemand(
            self.owner[keep],
            self.kind[keep],
            self.table,
            self.low[:, boxes],
            self.high[:, boxes],
            renumbered[self.item_of_box[boxes]],
        )


def make_candidate(
    enforced: EnforcedPolicy,
    name: str,
    utility: float,
    mechanisms: Sequence[ResolvedMechanism],
    today: int = 0,
) -> Candidate:
    """Make a candidate of a resolved release; `today` has the same meaning as for `decide`."""
    cumulative = enforced.cumulative
    try:
        matches = [cumulative.compiled.index.match(m.predicate_input) for m in mechanisms]
        refused = _per_release_refusals(enforced, mechanisms, today)
    except PredicateFailed as error:
        return Candidate(name, utility, (), (str(error),))
    if not enforced.policy.accounting.allow_uncovered:
        pairs = zip(mechanisms, matches, strict=True)
        uncovered = [
            m.name
            for m, match in pairs
            if not len(cumulative.compiled.index.rules_for_match(match))
        ]
        refused += [f"no cumulative rule covers `{name}`" for name in uncovered]
    return Candidate(
        name, utility, charges_by_region(cumulative, mechanisms, matches, today), tuple(refused)
    )


def _per_release_refusals(
    enforced: EnforcedPolicy, mechanisms: Sequence[ResolvedMechanism], today: int
) -> list[str]:
    """Return a message for each exceeded per-release rule. Raise `PredicateFailed`."""
    section = enforced.each_release
    matches = [section.compiled.index.match(m.predicate_input) for m in mechanisms]
    if not section.compiled.rules:
        return []
    checks = check_release(enforced, mechanisms, matches, today)
    names = [
        section.compiled.rules[number].name
        for number in checks.rule_numbers[~checks.holds].tolist()
    ]
    return [f"per-release rule `{name}` is exceeded" for name in names]


#: A candidate, one of its charges, and the position of a rule in it.
_Part = tuple[int, Charge, int]


def demands_by_rule(
    granularities: RuleGranularities, candidates: Sequence[Candidate]
) -> dict[int, RuleDemand]:
    """Return the demand on each rule, by rule number; refused candidates demand nothing."""
    parts: dict[int, list[_Part]] = {}
    for number, candidate in enumerate(candidates):
        for charge in () if candidate.rejection_reasons else candidate.charges:
            for position, rule in enumerate(charge.rule_numbers.tolist()):
                parts.setdefault(rule, []).append((number, charge, position))
    blocks: dict[tuple[int, int], Region] = {}
    return {rule: _rule_demand(granularities, rule, parts[rule], blocks) for rule in sorted(parts)}


def _rule_demand(
    granularities: RuleGranularities,
    rule: int,
    parts: Sequence[_Part],
    blocks: dict[tuple[int, int], Region],
) -> RuleDemand:
    """Collect the demand on one rule.

    `blocks` caches the blocks of a charge for rules with the same granularity.
    """
    boxes: list[Box] = []
    owners: list[int] = []
    kinds: list[int] = []
    items: list[int] = []
    kinds_by_bytes: dict[bytes, int] = {}
    rows: list[LossArray] = []
    granularity, space = int(granularities.position_by_rule[rule]), granularities.space.box
    for owner, group in groupby(parts, key=itemgetter(0)):
        costs = []
        for _, charge, position in group:
            region = blocks.get((id(charge), granularity))
            if region is None:
                region = granularities.blocks(charge.region, rule, charge.cutoff)
                blocks[id(charge), granularity] = region
            costs.append((region, charge.rows[position]))
        for region, row in costs if len(costs) == 1 else disjoint_charges(space, costs):
            kind = kinds_by_bytes.setdefault(row.tobytes(), len(rows))
            if kind == len(rows):
                rows.append(row)
            items += [len(owners)] * len(region.boxes)
            owners.append(owner)
            kinds.append(kind)
            boxes += region.boxes
    ends = np.array(boxes, np.int64).reshape(len(boxes), len(space), 2)
    return RuleDemand(
        np.array(owners, np.intp),
        np.array(kinds, np.intp),
        np.array(rows, np.int64).reshape(len(rows), parts[0][1].rows.shape[1]),
        np.ascontiguousarray(ends[:, :, 0].T),
        np.ascontiguousarray(ends[:, :, 1].T),
        np.array(items, np.intp),
    )
