"""A policy, balances and a release → which rules it matches and whether each still holds; pure.

Costs are summed over all mechanisms of a release that match a rule, since it is charged together
or not at all (theory 2.6). A rule for each release by itself is an ordinary rule whose balance is
always zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge, disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedSection, enforced_sections
from dpolicy.balances.segments import Segments
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.errors import PredicateFailed
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.releases.regions import Point, Region
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule_index import ScopeMatch


@dataclass(frozen=True, slots=True, eq=False)
class RuleChecks:
    """The rules of one section that a release matches: spent, cost, and whether each holds.

    A rule that is not charged everywhere alike stands here with one of its tightest places; all of
    them are in `at`.
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
        """What is spent with the release."""
        return add_saturating(self.spent, self.cost)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All rules that a release matches, what no rule covers, and what could not be evaluated."""

    checks: tuple[RuleChecks, ...]
    uncovered: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def allowed(self) -> bool:
        """Whether every rule holds and nothing is left unbounded."""
        return not (self.uncovered or self.failed) and all(c.holds.all() for c in self.checks)


def decide(
    policy: CompiledPolicy,
    balances: Balances | None,
    mechanisms: Sequence[ResolvedMechanism],
    today: int = 0,
) -> Verdict:
    """Hold a release against every matching rule; without balances, as if it were the first.

    `today` says which time steps are long ago, for policies that keep those together.
    """
    cumulative, each_release = enforced_sections(policy)
    checks: list[RuleChecks] = []
    failed: list[str] = []
    uncovered: tuple[str, ...] = ()
    for of in (each_release, cumulative):
        matches, errors = _matches(of, mechanisms)
        failed += errors[:1]
        if of is cumulative and not policy.policy_set.accounting.allow_uncovered:
            uncovered = _uncovered(of, mechanisms, matches)
        if errors or not of.compiled.rules:
            continue
        costs = charges_by_region(of, mechanisms, [match for match in matches if match], today)
        lasting = balances if of is cumulative else None
        checks.append(check_charges(of, lasting or of.empty_balances(), costs))
    return Verdict(tuple(checks), uncovered, tuple(failed))


def charges_by_region(
    section: EnforcedSection,
    mechanisms: Sequence[ResolvedMechanism],
    matches: Sequence[ScopeMatch],
    today: int = 0,
) -> tuple[Charge, ...]:
    """What a release costs each kept rule of a section: one charge a region."""
    cutoff = section.granularities.cutoff(today)
    by_region: dict[Region | None, list[tuple[NDArray[np.intp], LossArray]]] = {}
    for mechanism, match in zip(mechanisms, matches, strict=True):
        numbers = section.compiled.index.rules_for_match(match)
        rows = mechanism.costs[section.unit_positions(numbers)]
        by_region.setdefault(mechanism.region, []).append((numbers, rows))
    return tuple(Charge(*_together(parts), region, cutoff) for region, parts in by_region.items())


def _together(
    parts: Sequence[tuple[NDArray[np.intp], LossArray]],
) -> tuple[NDArray[np.intp], LossArray]:
    """Costs of several mechanisms → one row a rule."""
    if len(parts) == 1:
        return parts[0]
    every = np.unique(np.concatenate([numbers for numbers, _ in parts]))
    total = np.zeros((len(every), parts[0][1].shape[1]), dtype=np.int64)
    for numbers, rows in parts:
        at = np.searchsorted(every, numbers)
        total[at] = add_saturating(total[at], rows)
    return every, total


def check_charges(
    section: EnforcedSection, balances: Balances, costs: Sequence[Charge]
) -> RuleChecks:
    """Hold charges against the rules: those charged everywhere alike at once, others by place."""
    apart = np.unique(np.concatenate([c.rule_numbers[balances.needs_segments(c)] for c in costs]))
    whole = [(c.rule_numbers[k := ~np.isin(c.rule_numbers, apart)], c.rows[k]) for c in costs]
    numbers, cost = _together(whole)
    spent = balances.uniform_losses(numbers)
    holds = section.bounds_for(numbers).are_within(add_saturating(spent, cost))
    if not len(apart):
        return RuleChecks(section, numbers, spent, cost, holds, {}, costs[0].cutoff)
    placed = [_placed(section, balances, number, costs) for number in apart.tolist()]
    at = {len(numbers) + position: found.place for position, found in enumerate(placed)}
    return RuleChecks(
        section,
        np.concatenate([numbers, apart]),
        np.vstack([spent, *(found.place.spent for found in placed)]),
        np.vstack([cost, *(found.cost for found in placed)]),
        np.concatenate([holds, [found.holds for found in placed]]),
        at,
        costs[0].cutoff,
    )


@dataclass(frozen=True, slots=True, eq=False)
class TightestCells:
    """Cells of a rule's segments, equally full, and the region that a release touches."""

    segments: Segments
    cells: NDArray[np.intp]
    region: Region

    @property
    def spent(self) -> LossArray:
        """What was spent in one of the cells."""
        return self.segments.columns(self.cells[:1])[:, 0]

    @property
    def first_block(self) -> tuple[Point, LossArray]:
        """The smallest block of it, and what was spent there."""
        point = self.segments.first_point(self.cells, self.region) or ()
        return point, self.segments.amounts_at(point)


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A rule at the place where a release leaves it least room."""

    holds: bool
    place: TightestCells
    cost: LossArray


def _placed(
    section: EnforcedSection, balances: Balances, number: int, costs: Sequence[Charge]
) -> _Placed:
    """A rule at its worst place: the largest loss where it breaks, or else where it is fullest."""
    segments, gate = balances.segments_for(number), section.bounds_for(np.array([number]))
    sizes = section.formatter_for(number).ranking_keys
    found = []
    for region, cost in disjoint_charges(section.full_extent, _charged(section, number, costs)):
        cells, full = gate.violating_or_fullest_cells(
            segments.amounts, segments.cells_touching(region), cost
        )
        holds = not len(cells)
        if holds:
            size = int(sizes(add_saturating(segments.columns(full[:1]).T, cost))[0])
        else:
            after = sizes(add_saturating(segments.columns(cells).T, cost))
            size = int(after.max())
            full = cells[after == size]
        found.append((holds, -size, _Placed(holds, TightestCells(segments, full, region), cost)))
    worst = min(item[:2] for item in found)
    tied = [placed for holds, size, placed in found if (holds, size) == worst]
    return tied[0] if len(tied) == 1 else min(tied, key=lambda placed: placed.place.first_block[0])


def _charged(
    section: EnforcedSection, number: int, costs: Sequence[Charge]
) -> Iterator[tuple[Region, LossArray]]:
    """What a release costs one rule, and in which of its blocks."""
    for charge in costs:
        position = int(np.searchsorted(charge.rule_numbers, number))
        if position < len(charge.rule_numbers) and charge.rule_numbers[position] == number:
            yield (
                section.granularities.blocks(charge.region, number, charge.cutoff),
                charge.rows[position],
            )


def charges_at_most(
    section: EnforcedSection, charges: Sequence[Charge], limit_charges: Sequence[Charge]
) -> bool:
    """Whether charges are at most others for every rule in every block, and to no other rule."""
    for number in np.unique(np.concatenate([charge.rule_numbers for charge in charges])).tolist():
        limits = list(_charged(section, number, limit_charges))
        if not limits:
            return False
        most = Segments(section.full_extent, np.zeros_like(limits[0][1]))
        for region, row in limits:
            most.add(region, row)
        for region, row in disjoint_charges(
            section.full_extent, _charged(section, number, charges)
        ):
            if (row[:, np.newaxis] > most.columns(most.cells_touching(region))).any():
                return False
    return True


def _matches(
    section: EnforcedSection, mechanisms: Sequence[ResolvedMechanism]
) -> tuple[list[ScopeMatch | None], tuple[str, ...]]:
    """Where each mechanism lies, None where a predicate has no answer; and those errors."""
    found: list[ScopeMatch | None] = []
    errors = []
    for mechanism in mechanisms:
        try:
            found.append(section.compiled.index.match(mechanism.predicate_input))
        except PredicateFailed as error:
            found.append(None)
            errors.append(str(error))
    return found, tuple(errors)


def _uncovered(
    section: EnforcedSection,
    mechanisms: Sequence[ResolvedMechanism],
    matches: Sequence[ScopeMatch | None],
) -> tuple[str, ...]:
    """Mechanisms that no rule over all releases bounds; an error is told elsewhere."""
    index = section.compiled.index
    pairs = zip(mechanisms, matches, strict=True)
    return tuple(m.name for m, match in pairs if match and not len(index.rules_for_match(match)))
