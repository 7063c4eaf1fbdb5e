"""Two policies and a history → what changes, what conflicts, and what would do instead (theory 8).

A conflict is a rule whose budget the past has already exceeded. Its remedy is the smallest budget
that the history satisfies; who is at fault are the releases that spent most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, RuleNumbers
from dpolicy.balances.enforced_policy import EnforcedSection, enforced_sections
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.loss import Loss
from dpolicy.privacy.loss_arrays import LossArray, row_to_loss
from dpolicy.releases.decision import DisplayedLoss
from dpolicy.releases.regions import Point, Region
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule

#: For so many rules, the fullest, releases are named.
MAX_RULES_WITH_SPENDERS = 1_000
#: How many releases are named for a rule.
MAX_SPENDERS_PER_RULE = 5


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """How one rule stands: its budget, what was spent, and whether it holds."""

    rule: Rule
    spent: DisplayedLoss
    loss: Loss
    holds: bool
    spenders: tuple[str, ...]
    location: Mapping[str, str | int]

    def as_json(self) -> dict[str, Any]:
        """The balance for programs."""
        return {
            "rule": self.rule.name,
            "unit": self.rule.unit,
            "policies": list(self.rule.policies),
            "at": dict(self.location),
            "budget": budget_to_json(self.rule.budget),
            "spent": dict(self.spent),
            "holds": self.holds,
            "spent-most": list(self.spenders),
            "source": str(self.rule.base.span),
        }


@dataclass(frozen=True, slots=True, eq=False)
class RuleStatusTable:
    """How kept rules over all releases stand, each at its worst place: cheap for many rules.

    `points` are the worst places by position, of those rules that are not the same everywhere.
    """

    section: EnforcedSection
    numbers: RuleNumbers
    losses: LossArray
    worst_points: Mapping[int, Point]
    holds: NDArray[np.bool_]
    cutoff: int

    def location(self, position: int) -> dict[str, str | int]:
        """The worst place of a rule, for people."""
        if position not in self.worst_points:
            return {}
        number = int(self.numbers[position])
        return self.section.granularities.location_for_rule(
            self.worst_points[position], number, self.cutoff
        )


def rule_status_table(
    state: LedgerState,
    policy: CompiledPolicy,
    within: Region | None = None,
    rule_filter: Callable[[Rule], bool] | None = None,
) -> RuleStatusTable:
    """The kept rules over all releases of the policy in force, in the order of the text.

    Only places in `within` and rules that are `wanted` are looked at, if these are given.
    """
    of, _ = enforced_sections(policy)
    spent, numbers = state.balances, of.compiled.pruning.kept.nonzero()[0]
    if rule_filter is not None:
        chosen = [rule_filter(of.compiled.rules[number]) for number in numbers.tolist()]
        numbers = numbers[np.array(chosen, dtype=bool)]
    rows, points = spent.uniform_losses(numbers), {}
    for position in np.flatnonzero(spent.has_segments[numbers]).tolist():
        number = int(numbers[position])
        points[position], rows[position] = _worst(of, spent, number, within)
    held = of.bounds_for(numbers).are_within(rows)
    return RuleStatusTable(of, numbers, rows, points, held, of.granularities.cutoff(state.today))


def rule_statuses(
    state: LedgerState,
    within: Region | None = None,
    rule_filter: Callable[[Rule], bool] | None = None,
    max_with_spenders: int | None = None,
) -> list[RuleStatus]:
    """Every kept rule over all releases, in the order of the text, at its worst place.

    Only places in `within` and rules that are `wanted` are looked at, if these are given. Who spent
    most is `told` for the fullest rules, which are first of all those that are broken.
    """
    if state.policy is None:
        return []
    now = rule_status_table(state, state.policy, within, rule_filter)
    of, rows = now.section, now.losses
    room = of.bounds_for(now.numbers).remaining_share(rows)
    fullest = set(
        np.lexsort((room, now.holds))[
            : MAX_RULES_WITH_SPENDERS if max_with_spenders is None else max_with_spenders
        ].tolist()
    )
    return [
        RuleStatus(
            of.compiled.rules[number],
            of.formatter_for(number)(rows[position]),
            row_to_loss(rows[position], of.certificates),
            bool(now.holds[position]),
            top_spenders(state, number, now.worst_points.get(position))
            if position in fullest
            else (),
            now.location(position),
        )
        for position, number in enumerate(now.numbers.tolist())
    ]


def _worst(
    section: EnforcedSection, spent: Balances, number: int, within: Region | None
) -> tuple[Point, LossArray]:
    """Where a rule breaks or has spent most, and how much: the smallest such place."""
    segments = spent.segments[number]
    region = section.granularities.blocks(within, number)
    nothing = np.zeros(len(section.certificates) + 1, dtype=np.int64)
    every = segments.cells_touching(region)
    gate = section.bounds_for(np.array([number]))
    broken, _ = gate.violating_or_fullest_cells(segments.amounts, every, nothing)
    cells = broken if len(broken) else every
    sizes = section.formatter_for(number).ranking_keys(segments.columns(cells).T)
    point = segments.first_point(cells[sizes == sizes.max()], region) or ()
    return point, segments.amounts_at(point)


def top_spenders(state: LedgerState, number: int, at: Point | None = None) -> tuple[str, ...]:
    """The releases that a rule was charged most for, here or anywhere, in its own notion."""
    if state.policy is None:
        return ()
    found = list(state.groups_charged_to_rule(number, at))
    if not found:
        return ()
    sizes = (
        enforced_sections(state.policy)[0]
        .formatter_for(number)
        .ranking_keys(np.array([row for _, row in found]))
    )
    ranked = (found[position][0] for position in np.argsort(-sizes, kind="stable").tolist())
    releases = chain.from_iterable(state.spending_releases(content) for content in ranked)
    return tuple(
        islice(dict.fromkeys(islice(releases, 2 * MAX_SPENDERS_PER_RULE)), MAX_SPENDERS_PER_RULE)
    )


def used_share(balance: RuleStatus) -> Fraction | None:
    """How much of its budget a rule has used; None where that is no number."""
    budget = budget_to_json(balance.rule.budget)
    if isinstance(budget, str):
        return None
    notion, used = next(iter(balance.spent.items()))
    limit = budget.get(notion)
    if used is None or not isinstance(limit, float) or not limit:
        return None
    return Fraction(used) / Fraction(limit)
