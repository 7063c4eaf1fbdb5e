"""Rule status: budget, balance and top spenders of the kept cumulative rules.

A rule with segments is reported at the block with the largest loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, islice
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.rule_grids import RuleNumbers
from dpolicy.balances.touched_cells import TouchedCells
from dpolicy.errors import InvariantBroken
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.policy.model import Accounting
from dpolicy.privacy.budget import budget_limits, budget_to_json
from dpolicy.privacy.loss import INFINITE, Loss
from dpolicy.privacy.loss_arrays import LossArray, row_to_loss
from dpolicy.privacy.risk.attacker_risk import DEFAULT_DELTA, AttackerRisk, risk_of_budget
from dpolicy.releases.decision import DisplayedLoss, stated_delta
from dpolicy.releases.python.budget_table import status_line
from dpolicy.releases.regions import Point, Region
from dpolicy.rules.rule import Rule
from dpolicy.text.summaries import html_line

#: Number of rules, exceeded and fullest first, for which top spenders are computed.
MAX_RULES_WITH_SPENDERS = 1_000
#: Number of top spenders per rule.
MAX_SPENDERS_PER_RULE = 5


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """Status of one rule: budget, balance, whether it is satisfied, top spenders and location.

    `delta_limit` is the limit of stated δ, None without one. `binding` is the quantity that is
    exceeded or most used: the notion of the budget, `delta` or `both`. `accounting` are the options
    of the policy. `implied_by` is the kept rule that implies a pruned one.
    """

    rule: Rule
    spent: DisplayedLoss
    loss: Loss
    holds: bool
    spenders: tuple[str, ...]
    location: Mapping[str, str | int]
    delta_limit: float | None
    binding: str | None
    accounting: Accounting = field(compare=False)
    implied_by: Rule | None = None

    @property
    def name(self) -> str:
        """The name of the rule, with which a conflict is accepted."""
        return self.rule.name

    @property
    def unit(self) -> str:
        """Privacy unit of the rule."""
        return self.rule.unit

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the base policy and of the settings of the rule."""
        return self.rule.policies

    @property
    def budget(self) -> Mapping[str, Any] | str:
        """The budget as JSON."""
        return budget_to_json(self.rule.budget)

    @property
    def risk(self) -> AttackerRisk:
        """Attacker success that the budget permits, a guarantee for all later releases, too."""
        return risk_of_budget(self.rule.budget, self.accounting.delta or DEFAULT_DELTA)

    @property
    def source(self) -> str:
        """Position of the base policy in the policy text."""
        return str(self.rule.base.span)

    def __repr__(self) -> str:
        return status_line(self)

    def _repr_html_(self) -> str:
        return html_line(status_line(self))

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON."""
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
            "leaks": {"limit": self.delta_limit},
            "binding": self.binding,
            "kept": self.implied_by is None,
            "implied-by": None if self.implied_by is None else self.implied_by.name,
            "implied-by-unit": None if self.implied_by is None else self.implied_by.unit,
            "risk": self.risk.as_json(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class RuleStatusTable:
    """Status of many kept cumulative rules, as arrays.

    `worst_points` has, by position, the point with the largest loss of each rule with segments.
    """

    section: EnforcedSection
    numbers: RuleNumbers
    losses: LossArray
    worst_points: Mapping[int, Point]
    holds: NDArray[np.bool_]
    cutoff: int

    def location(self, position: int) -> dict[str, str | int]:
        """Return the location of the largest loss; empty for a rule without segments."""
        if position not in self.worst_points:
            return {}
        number = int(self.numbers[position])
        return self.section.granularities.location_for_rule(
            self.worst_points[position], number, self.cutoff
        )


def rule_status_table(
    state: LedgerState,
    within: Region | None = None,
    rule_filter: Callable[[Rule], bool] | None = None,
) -> RuleStatusTable:
    """Return the status of the kept cumulative rules of the active policy, in policy order.

    With `within`, look only at the blocks that this region touches; with `rule_filter`, only at
    the rules that it accepts.
    """
    if state.enforced is None:
        raise InvariantBroken("a ledger without a policy has no rules")
    section, balances = state.enforced.cumulative, state.balances
    numbers = section.compiled.pruning.kept.nonzero()[0]
    if rule_filter is not None:
        accepted = [rule_filter(section.compiled.rules[number]) for number in numbers.tolist()]
        numbers = numbers[np.array(accepted, dtype=bool)]
    losses, worst_points = balances.uniform_losses(numbers), {}
    segmented = np.flatnonzero(balances.grids.contain(numbers))
    for part in balances.grids.parts(numbers[segmented]):
        region = section.granularities.blocks_at(within, part.grid.granularity)
        touched = part.grid.segments.touched_cells(region)
        for position, place in zip(segmented[part.positions], part.places, strict=True):
            spent = part.grid.amounts_for(int(place))
            worst = _find_largest_loss(section, int(numbers[position]), spent, touched)
            worst_points[int(position)] = touched.point(worst)
            losses[position] = spent[:, touched.cells[worst]]
    holds = section.bounds_for(numbers).are_within(losses)
    cutoff = section.granularities.cutoff(state.today)
    return RuleStatusTable(section, numbers, losses, worst_points, holds, cutoff)


def rule_statuses(
    state: LedgerState,
    within: Region | None = None,
    rule_filter: Callable[[Rule], bool] | None = None,
    max_with_spenders: int | None = None,
    *,
    only_exceeded: bool = False,
) -> list[RuleStatus]:
    """Return the status of every kept cumulative rule, in policy order.

    `within` and `rule_filter` are those of `rule_status_table`. Top spenders are computed for
    `max_with_spenders` rules: exceeded rules first, then by remaining share of the budget. With
    `only_exceeded`, return only exceeded rules.
    """
    if state.enforced is None:
        return []
    table = rule_status_table(state, within, rule_filter)
    limit = MAX_RULES_WITH_SPENDERS if max_with_spenders is None else max_with_spenders
    shares = table.section.bounds_for(table.numbers).remaining_share(table.losses)
    fullest = set(np.lexsort((shares, table.holds))[:limit].tolist())
    return [
        _build_status(state, table, position, with_spenders=position in fullest)
        for position in range(len(table.numbers))
        if not (only_exceeded and table.holds[position])
    ]


def _build_status(
    state: LedgerState, table: RuleStatusTable, position: int, *, with_spenders: bool
) -> RuleStatus:
    section, number = table.section, int(table.numbers[position])
    accounting = Accounting() if state.policy is None else state.policy.accounting
    point, row = table.worst_points.get(position), table.losses[position]
    formatter, binding = section.formatter_for(number), section.binding_quantity(number, row)
    return RuleStatus(
        section.compiled.rules[number],
        formatter(row),
        row_to_loss(row, section.certificates),
        bool(table.holds[position]),
        top_spenders(state, number, point, binding) if with_spenders else (),
        table.location(position),
        formatter.displayed_delta_limit,
        binding,
        accounting,
    )


def _find_largest_loss(
    section: EnforcedSection, number: int, spent: LossArray, touched: TouchedCells
) -> int:
    """Return the position of the cell in which a loss uses most of a rule's budget.

    `spent` are the losses of the rule in all cells. If the rule is exceeded somewhere, look only at
    the blocks where it is exceeded. Without stated δ, the most used block has the largest loss. Of
    equal blocks, the one with the smallest point is the result.
    """
    no_cost = np.zeros(len(spent), dtype=np.int64)
    bounds = section.bounds_for(np.array([number]))
    violating, _ = bounds.violating_or_fullest_cells(spent, touched.cells, no_cost)
    cells = violating if len(violating) else touched.cells
    formatter, losses = section.formatter_for(number), spent[:, cells].T
    sizes = formatter.ranking_keys(losses)
    if np.nan_to_num(formatter.delta_shares(losses)).any():
        shares = np.where(sizes >= INFINITE, np.inf, formatter.used_shares(losses))
        cells, sizes = cells[shares == shares.max()], sizes[shares == shares.max()]
    return touched.first(np.searchsorted(touched.cells, cells[sizes == sizes.max()]))


def top_spenders(
    state: LedgerState, number: int, point: Point | None = None, binding: str | None = None
) -> tuple[str, ...]:
    """Return the ids of the releases with the largest cost to a rule, at a point or anywhere.

    If `binding` is `delta`, they are the releases with the largest stated δ.
    """
    if state.enforced is None:
        return ()
    charged = list(state.groups_charged_to_rule(number, point))
    if binding == "delta":
        charged = [(group, row) for group, row in charged if row[-1]]
    if not charged:
        return ()
    rows = np.array([row for _, row in charged])
    formatter = state.enforced.cumulative.formatter_for(number)
    sizes = rows[:, -1] if binding == "delta" else formatter.ranking_keys(rows)
    ranked = (charged[position][0] for position in np.argsort(-sizes, kind="stable").tolist())
    releases = chain.from_iterable(state.spending_releases(group) for group in ranked)
    first = islice(releases, 2 * MAX_SPENDERS_PER_RULE)  # a relabelled release may occur twice
    return tuple(islice(dict.fromkeys(first), MAX_SPENDERS_PER_RULE))


def used_share(status: RuleStatus) -> Fraction | None:
    """Return the share of its budget that a rule has used; None if it is not a finite number.

    It is the larger share of its two sides: ε, ρ, μ or Rényi values, and stated δ.
    """
    return _largest([loss_share(status), delta_share(status)])


def loss_share(status: RuleStatus) -> Fraction | None:
    """Return the used share of ε, ρ, μ or the Rényi values; None if it is not a finite number."""
    limits = budget_limits(status.rule.budget).items()
    return _largest([_share(status.spent[notion], limit) for notion, limit in limits])


def delta_share(status: RuleStatus) -> Fraction | None:
    """Return the used share of the limit of stated δ; None if it is not a finite number."""
    if status.delta_limit is None:
        return Fraction(0)
    return _share(stated_delta(status.spent), Fraction(repr(status.delta_limit)))


def _largest(shares: list[Fraction | None]) -> Fraction | None:
    """Return the largest share; None if there is none, or one is not a finite number."""
    finite = [share for share in shares if share is not None]
    return max(finite) if finite and len(finite) == len(shares) else None


def _share(used: float | None, limit: Fraction) -> Fraction | None:
    if used is None or (used and not limit):
        return None
    return Fraction(repr(used)) / limit if used else Fraction(0)


def rank_by_use(status: RuleStatus) -> float:
    """Return a key that sorts statuses: exceeded without a finite share first, then by share."""
    share = used_share(status)
    if share is None:
        return 0.0 if status.holds else -inf
    return -float(share)
