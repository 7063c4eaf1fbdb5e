"""Decide a release: match it to rules, charge it, and compare the result with the bounds; pure.

The cost to a rule is the sum over all mechanisms of the release that match the rule, because a
release is charged as a whole or not at all (theory 2.6). A per-release rule is an ordinary rule
whose balance is always zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, Charge, disjoint_charges
from dpolicy.balances.enforced_policy import EnforcedPolicy, EnforcedSection
from dpolicy.balances.segments import Segments
from dpolicy.decisions.exact_rules import ExactLoss, certify_rule
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.decisions.rule_charges import BlockCosts, group_by_cost
from dpolicy.decisions.tightest_blocks import TightestBlock, TightestBlocks, check_blocks
from dpolicy.errors import InvariantBroken, PredicateFailed
from dpolicy.privacy.certificates import quanta_up
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.releases.regions import Region
from dpolicy.rules.rule_index import ScopeMatch


@dataclass(frozen=True, slots=True, eq=False)
class RuleChecks:
    """The rules of one section that a release matches, with balance, cost and result.

    For a rule with segments, `spent` and `cost` are those of its tightest block, and
    `tightest_cells` has its place, by position in `rule_numbers`. `exact` has the certified ε of
    per-release rules whose thresholds do not hold, by position.
    """

    section: EnforcedSection
    rule_numbers: NDArray[np.intp]
    spent: LossArray
    cost: LossArray
    holds: NDArray[np.bool_]
    tightest_cells: Mapping[int, TightestBlock]
    cutoff: int
    exact: Mapping[int, ExactLoss] = field(default_factory=dict)

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
        checks.append(check_release(enforced, mechanisms, release_matches, today))
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


def check_release(
    enforced: EnforcedPolicy,
    mechanisms: Sequence[ResolvedMechanism],
    matches: Sequence[ScopeMatch | None],
    today: int = 0,
) -> RuleChecks:
    """Compare a release with the per-release rules: by thresholds, then by loss distributions.

    `matches` are those of the per-release section; every mechanism must have one.
    """
    section = enforced.each_release
    charges = charges_by_region(section, mechanisms, matches, today)
    checks = check_charges(section, section.empty_balances(), charges)
    if checks.holds.all():
        return checks
    index = section.compiled.index
    rule_numbers = [index.rules_for_match(match) for match in matches if match is not None]
    holds, certified = checks.holds.copy(), {}
    for position in np.flatnonzero(~checks.holds).tolist():
        number = int(checks.rule_numbers[position])
        loss = certify_rule(enforced, number, mechanisms, rule_numbers, checks.cutoff)
        if loss is not None and _is_smaller(loss, checks, position):
            holds[position], certified[position] = loss.holds, loss
    return replace(checks, holds=holds, exact=certified) if certified else checks


def _is_smaller(loss: ExactLoss, checks: RuleChecks, position: int) -> bool:
    """Return whether a certified ε holds, or is below the ε that the thresholds give."""
    formatter = checks.section.formatter_for(int(checks.rule_numbers[position]))
    converted = formatter.ranking_keys(checks.after[position : position + 1])[0]
    return loss.holds or quanta_up(loss.epsilon) < int(converted)


def check_charges(
    section: EnforcedSection, balances: Balances, charges: Sequence[Charge]
) -> RuleChecks:
    """Compare balances plus charges with the bounds of the rules.

    Rules without segments are compared in one array operation, the others at their tightest blocks,
    in one operation per grid.
    """
    segmented, uniform = separate_rules_with_segments(balances, charges)
    numbers, cost = uniform
    spent = balances.uniform_losses(numbers)
    holds = section.bounds_for(numbers).are_within(add_saturating(spent, cost))
    if not len(segmented):
        return RuleChecks(section, numbers, spent, cost, holds, {}, charges[0].cutoff)
    checks = check_blocks(section, balances, segmented, charges)
    return RuleChecks(
        section,
        np.concatenate([numbers, segmented]),
        np.concatenate([spent, checks.spent]),
        np.concatenate([cost, checks.cost]),
        np.concatenate([holds, checks.holds]),
        TightestBlocks(len(numbers), checks),
        charges[0].cutoff,
    )


def separate_rules_with_segments(
    balances: Balances, charges: Sequence[Charge]
) -> tuple[NDArray[np.intp], tuple[NDArray[np.intp], LossArray]]:
    """Return the rules that have or need segments, and the others with their costs."""
    if len(charges) == 1:
        (charge,), needed = charges, balances.needs_segments(charges[0])
        return charge.rule_numbers[needed], (charge.rule_numbers[~needed], charge.rows[~needed])
    segmented = np.unique(
        np.concatenate([c.rule_numbers[balances.needs_segments(c)] for c in charges])
    )
    return segmented, _sum_by_rule([_without_rules(charge, segmented) for charge in charges])


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


def charges_at_most(
    section: EnforcedSection, charges: Sequence[Charge], limit_charges: Sequence[Charge]
) -> bool:
    """Return whether `charges` ≤ `limit_charges` for every rule and block.

    A rule without a limit counts as exceeded.
    """
    numbers = np.unique(np.concatenate([charge.rule_numbers for charge in charges]))
    granularities = section.granularities.position_by_rule[numbers]
    return all(
        _costs_at_most(section, costs, limits)
        for granularity in sorted(set(granularities.tolist()))
        for _, (costs, limits) in group_by_cost(
            section, granularity, numbers[granularities == granularity], charges, limit_charges
        )
    )


def _costs_at_most(section: EnforcedSection, costs: BlockCosts, limits: BlockCosts) -> bool:
    if not limits:
        return False
    maximum = Segments(section.full_extent, np.zeros_like(limits[0][1]))
    for region, row in limits:
        maximum.add(region, row)
    return all(
        (row[:, np.newaxis] <= maximum.columns(maximum.cells_touching(region))).all()
        for region, row in disjoint_charges(section.full_extent, costs)
    )
