"""Decide a release: match it to rules, charge it, and compare the result with the bounds; pure.

The cost to a rule is the sum over all mechanisms of the release that match the rule, because a
release is charged as a whole or not at all (theory 2.6). A per-release rule is an ordinary rule
whose balance is always zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge, disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedPolicy, EnforcedSection
from dpolicy.balances.segments import Segments
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.errors import InvariantBroken, PredicateFailed
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.releases.regions import Point, Region
from dpolicy.rules.rule_index import ScopeMatch


@dataclass(frozen=True, slots=True, eq=False)
class RuleChecks:
    """The rules of one section that a release matches, with balance, cost and result.

    For a rule with segments, `spent` and `cost` are those of one of its tightest cells;
    `tightest_cells` has all of them, by position in `rule_numbers`.
    """

    section: EnforcedSection
    rule_numbers: NDArray[np.intp]
    spent: LossArray
    cost: LossArray
    holds: NDArray[np.bool_]
    tightest_cells: Mapping[int, TightestCells]
    cutoff: int

    @property
    def after(self) -> LossArray:
        """Balances with the release charged, one row per rule."""
        return add_saturating(self.spent, self.cost)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of `decide`: checks per section, uncovered mechanisms, and predicate errors."""

    checks: tuple[RuleChecks, ...]
    uncovered: tuple[str, ...]
    predicate_errors: tuple[str, ...]

    @property
    def allowed(self) -> bool:
        """True if every rule is satisfied, every mechanism covered, and no predicate failed."""
        return not (self.uncovered or self.predicate_errors) and all(
            c.holds.all() for c in self.checks
        )


def decide(
    enforced: EnforcedPolicy,
    balances: Balances | None,
    mechanisms: Sequence[ResolvedMechanism],
    today: int = 0,
) -> Verdict:
    """Compare a release with every matching rule; without balances, as the first release.

    `today` is an ordinal day; it determines which time steps are collapsed.
    """
    per_release, cumulative = enforced.each_release, enforced.cumulative
    release_matches, release_errors = match_mechanisms(per_release, mechanisms)
    matches, errors = match_mechanisms(cumulative, mechanisms)
    uncovered: tuple[str, ...] = ()
    if not enforced.policy.accounting.allow_uncovered:
        uncovered = find_uncovered(cumulative, mechanisms, matches)
    checks: list[RuleChecks] = []
    if per_release.compiled.rules and not release_errors:
        charges = charges_by_region(per_release, mechanisms, release_matches, today)
        checks.append(check_charges(per_release, per_release.empty_balances(), charges))
    if cumulative.compiled.rules and not errors:
        charges = charges_by_region(cumulative, mechanisms, matches, today)
        checks.append(check_charges(cumulative, balances or cumulative.empty_balances(), charges))
    return Verdict(tuple(checks), uncovered, (*release_errors[:1], *errors[:1]))


def match_mechanisms(
    section: EnforcedSection, mechanisms: Sequence[ResolvedMechanism]
) -> tuple[tuple[ScopeMatch | None, ...], tuple[str, ...]]:
    """Match each mechanism to the scopes of a section.

    Return None for a mechanism on which a predicate fails, and the messages of these errors.
    """
    matches: list[ScopeMatch | None] = []
    errors: list[str] = []
    for mechanism in mechanisms:
        try:
            matches.append(section.compiled.index.match(mechanism.predicate_input))
        except PredicateFailed as error:
            matches.append(None)
            errors.append(str(error))
    return tuple(matches), tuple(errors)


def find_uncovered(
    section: EnforcedSection,
    mechanisms: Sequence[ResolvedMechanism],
    matches: Sequence[ScopeMatch | None],
) -> tuple[str, ...]:
    """Return the names of the mechanisms that no rule bounds; skip those without a match."""
    index = section.compiled.index
    return tuple(
        mechanism.name
        for mechanism, match in zip(mechanisms, matches, strict=True)
        if match is not None and not len(index.rules_for_match(match))
    )


def charges_by_region(
    section: EnforcedSection,
    mechanisms: Sequence[ResolvedMechanism],
    matches: Sequence[ScopeMatch | None],
    today: int = 0,
) -> tuple[Charge, ...]:
    """Return the cost of a release to each kept rule of a section, one charge per region.

    Every mechanism must have a match.
    """
    cutoff = section.granularities.cutoff(today)
    by_region: dict[Region | None, list[tuple[NDArray[np.intp], LossArray]]] = {}
    for mechanism, match in zip(mechanisms, matches, strict=True):
        if match is None:
            raise InvariantBroken("a mechanism without a match cannot be charged")
        numbers = section.compiled.index.rules_for_match(match)
        rows = mechanism.costs[section.unit_positions(numbers)]
        by_region.setdefault(mechanism.region, []).append((numbers, rows))
    return tuple(
        Charge(*_sum_by_rule(parts), region, cutoff) for region, parts in by_region.items()
    )


def check_charges(
    section: EnforcedSection, balances: Balances, charges: Sequence[Charge]
) -> RuleChecks:
    """Compare balances plus charges with the bounds of the rules.

    Rules without segments are compared in one array operation, the others one by one at their
    tightest cells.
    """
    segmented = np.unique(
        np.concatenate([c.rule_numbers[balances.needs_segments(c)] for c in charges])
    )
    numbers, cost = _sum_by_rule([_without_rules(charge, segmented) for charge in charges])
    spent = balances.uniform_losses(numbers)
    holds = section.bounds_for(numbers).are_within(add_saturating(spent, cost))
    if not len(segmented):
        return RuleChecks(section, numbers, spent, cost, holds, {}, charges[0].cutoff)
    tightest = [_check_segments(section, balances, n, charges) for n in segmented.tolist()]
    first = len(numbers)
    return RuleChecks(
        section,
        np.concatenate([numbers, segmented]),
        np.vstack([spent, *(check.cells.spent for check in tightest)]),
        np.vstack([cost, *(check.cost for check in tightest)]),
        np.concatenate([holds, [check.holds for check in tightest]]),
        {first + position: check.cells for position, check in enumerate(tightest)},
        charges[0].cutoff,
    )


def _without_rules(charge: Charge, numbers: NDArray[np.intp]) -> tuple[NDArray[np.intp], LossArray]:
    """Return the rule numbers and rows of a charge, without the rules in `numbers`."""
    keep = ~np.isin(charge.rule_numbers, numbers)
    return charge.rule_numbers[keep], charge.rows[keep]


def _sum_by_rule(
    parts: Sequence[tuple[NDArray[np.intp], LossArray]],
) -> tuple[NDArray[np.intp], LossArray]:
    """Sum costs of several mechanisms; return one row per rule."""
    if len(parts) == 1:
        return parts[0]
    all_numbers = np.unique(np.concatenate([numbers for numbers, _ in parts]))
    total = np.zeros((len(all_numbers), parts[0][1].shape[1]), dtype=np.int64)
    for numbers, rows in parts:
        positions = np.searchsorted(all_numbers, numbers)
        total[positions] = add_saturating(total[positions], rows)
    return all_numbers, total


@dataclass(frozen=True, slots=True, eq=False)
class TightestCells:
    """Cells of a rule's segments with the same loss, and the region that a release touches."""

    segments: Segments
    cells: NDArray[np.intp]
    region: Region

    @property
    def spent(self) -> LossArray:
        """Balance in one of the cells."""
        return self.segments.columns(self.cells[:1])[:, 0]

    @property
    def first_block(self) -> tuple[Point, LossArray]:
        """The smallest point of the region in one of the cells, and the balance there."""
        point = self.segments.first_point(self.cells, self.region) or ()
        return point, self.segments.amounts_at(point)


@dataclass(frozen=True, slots=True, eq=False)
class _SegmentCheck:
    """Check of a rule at its tightest cells; `size` is the displayed loss there, in quanta."""

    holds: bool
    size: int
    cells: TightestCells
    cost: LossArray


def _check_segments(
    section: EnforcedSection, balances: Balances, number: int, charges: Sequence[Charge]
) -> _SegmentCheck:
    """Check a rule with segments at the largest loss that exceeds it, else at the largest loss."""
    segments = balances.segments_for(number)
    disjoint = disjoint_charges(section.full_extent, _charges_to_rule(section, number, charges))
    checks = [_check_region(section, segments, number, region, cost) for region, cost in disjoint]
    holds, size = min((check.holds, -check.size) for check in checks)
    tied = [check for check in checks if (check.holds, -check.size) == (holds, size)]
    if len(tied) == 1:
        return tied[0]
    return min(tied, key=lambda check: check.cells.first_block[0])


def _check_region(
    section: EnforcedSection, segments: Segments, number: int, region: Region, cost: LossArray
) -> _SegmentCheck:
    """Check a rule in the blocks of a region, all of which are charged `cost`."""
    bounds = section.bounds_for(np.array([number]))
    displayed_sizes = section.formatter_for(number).ranking_keys
    violating, fullest = bounds.violating_or_fullest_cells(
        segments.amounts, segments.cells_touching(region), cost
    )
    if len(violating):
        sizes = displayed_sizes(add_saturating(segments.columns(violating).T, cost))
        size = int(sizes.max())
        cells = violating[sizes == size]
    else:
        size = int(displayed_sizes(add_saturating(segments.columns(fullest[:1]).T, cost))[0])
        cells = fullest
    return _SegmentCheck(not len(violating), size, TightestCells(segments, cells, region), cost)


def _charges_to_rule(
    section: EnforcedSection, number: int, charges: Sequence[Charge]
) -> Iterator[tuple[Region, LossArray]]:
    """Yield the cost to one rule, with the blocks of the rule that are charged."""
    for charge in charges:
        position = int(np.searchsorted(charge.rule_numbers, number))
        if position < len(charge.rule_numbers) and charge.rule_numbers[position] == number:
            blocks = section.granularities.blocks(charge.region, number, charge.cutoff)
            yield blocks, charge.rows[position]


def charges_at_most(
    section: EnforcedSection, charges: Sequence[Charge], limit_charges: Sequence[Charge]
) -> bool:
    """Return whether `charges` ≤ `limit_charges` for every rule and block.

    A rule without a limit counts as exceeded.
    """
    for number in np.unique(np.concatenate([charge.rule_numbers for charge in charges])).tolist():
        limits = list(_charges_to_rule(section, number, limit_charges))
        if not limits:
            return False
        maximum = Segments(section.full_extent, np.zeros_like(limits[0][1]))
        for region, row in limits:
            maximum.add(region, row)
        costs = _charges_to_rule(section, number, charges)
        for region, row in disjoint_charges(section.full_extent, costs):
            if (row[:, np.newaxis] > maximum.columns(maximum.cells_touching(region))).any():
                return False
    return True
