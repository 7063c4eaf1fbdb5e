"""Resolved releases → candidates: what each would cost every rule, and what it asks of one rule.

A candidate that a rule for each release refuses, that no rule covers, or on which a predicate has
no answer is refused whatever the others do. Where several mechanisms of a candidate meet, their
costs are one sum (theory 2.6), so an item is a candidate's cost in blocks where it is everywhere
the same, and no block lies in two items of one candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Charge, disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedPolicy, EnforcedSection
from dpolicy.balances.granularities import RuleGranularities
from dpolicy.decisions.decide import charges_by_region, check_charges
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.errors import PredicateFailed
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Box, Region

#: Bounds of boxes, axes × boxes.
CandidatePositions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A release that competes with others: its worth, its charges, and why it is refused at all."""

    id: str
    utility: float
    charges: tuple[Charge, ...]
    refusal_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RuleDemand:
    """What candidates ask of one rule.

    Items stand by rising candidate: `owner` is its number, `kind` the row of `table` with its cost.
    Boxes have `low` and `high` by axis, and belong to an item; those of one item are disjoint.
    """

    owner: NDArray[np.intp]
    kind: NDArray[np.intp]
    table: LossArray
    low: CandidatePositions
    high: CandidatePositions
    item_of_box: NDArray[np.intp]

    def restricted_to(self, chosen: NDArray[np.bool_]) -> RuleDemand | None:
        """What the chosen candidates ask; None if that is nothing."""
        keep = chosen[self.owner]
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
    """A resolved release as a candidate; `today` as for `decide`."""
    of, each_release = enforced.cumulative, enforced.each_release
    try:
        matches = [of.compiled.index.match(m.predicate_input) for m in mechanisms]
        refused = _refused_alone(each_release, mechanisms, today)
    except PredicateFailed as error:
        return Candidate(name, utility, (), (str(error),))
    if not enforced.policy.accounting.allow_uncovered:
        pairs = zip(mechanisms, matches, strict=True)
        bare = [m.name for m, match in pairs if not len(of.compiled.index.rules_for_match(match))]
        refused += [f"`{name}` is covered by no rule over all releases" for name in bare]
    return Candidate(
        name, utility, charges_by_region(of, mechanisms, matches, today), tuple(refused)
    )


def _refused_alone(
    section: EnforcedSection, mechanisms: Sequence[ResolvedMechanism], today: int
) -> list[str]:
    """The rules for each release by itself that refuse this one. Raises `PredicateFailed`."""
    matches = [section.compiled.index.match(m.predicate_input) for m in mechanisms]
    if not section.compiled.rules:
        return []
    found = check_charges(
        section, section.empty_balances(), charges_by_region(section, mechanisms, matches, today)
    )
    names = [
        section.compiled.rules[number].name for number in found.rule_numbers[~found.holds].tolist()
    ]
    return [f"the rule `{name}` for each release does not hold" for name in names]


#: A candidate, one of its charges, and the position of a rule in it.
_Part = tuple[int, Charge, int]


def demands_by_rule(
    layout: RuleGranularities, candidates: Sequence[Candidate]
) -> dict[int, RuleDemand]:
    """What the candidates that are not refused ask of each rule, by its number."""
    parts: dict[int, list[_Part]] = {}
    for number, candidate in enumerate(candidates):
        for charge in () if candidate.refusal_reasons else candidate.charges:
            for position, rule in enumerate(charge.rule_numbers.tolist()):
                parts.setdefault(rule, []).append((number, charge, position))
    blocks: dict[tuple[int, int], Region] = {}
    return {rule: _asked(layout, rule, parts[rule], blocks) for rule in sorted(parts)}


def _asked(
    layout: RuleGranularities,
    rule: int,
    parts: Sequence[_Part],
    blocks: dict[tuple[int, int], Region],
) -> RuleDemand:
    """`blocks` remembers the blocks of charges for rules that are split alike."""
    boxes: list[Box] = []
    owners: list[int] = []
    kinds: list[int] = []
    items: list[int] = []
    known: dict[bytes, int] = {}
    rows: list[LossArray] = []
    frame, space = int(layout.frame_of[rule]), layout.space.box
    for owner, group in groupby(parts, key=itemgetter(0)):
        costs = []
        for _, charge, position in group:
            region = blocks.get((id(charge), frame))
            if region is None:
                region = layout.blocks(charge.region, rule, charge.cutoff)
                blocks[id(charge), frame] = region
            costs.append((region, charge.rows[position]))
        for region, row in costs if len(costs) == 1 else disjoint_charges(space, costs):
            name = row.tobytes()
            kind = known.setdefault(name, len(rows))
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
