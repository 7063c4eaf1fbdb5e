"""Headroom: how many more releases of one content the policy would allow now, and what limits them.

The count of a rule is the largest number of equal releases that `submit` would allow one after the
other if this were the only rule. The count of the release is the smallest of all rules. A
per-release rule allows every repetition or none, because it has no balance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedPolicy, EnforcedSection
from dpolicy.decisions.decide import (
    RuleChecks,
    charges_by_region,
    check_release,
    find_uncovered,
    match_mechanisms,
)
from dpolicy.decisions.headroom.repetitions import Repetitions, count_repetitions
from dpolicy.decisions.resolution import ResolvedMechanism
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.privacy_filter import UNLIMITED
from dpolicy.releases.decision import DisplayedLoss
from dpolicy.releases.regions import Point
from dpolicy.text.summaries import html_table, list_names, one_line


@dataclass(frozen=True, slots=True)
class RuleHeadroom:
    """How many more equal releases one rule allows; None without a limit.

    `location` is the block with the smallest count, and `spent` and `cost` are the losses there;
    they are displayed as in a decision.
    """

    rule: str
    unit: str
    each_release: bool
    more: int | None
    location: Mapping[str, str | int]
    budget: Mapping[str, Any] | str
    spent: DisplayedLoss
    cost: DisplayedLoss
    source: str

    def as_json(self) -> dict[str, Any]:
        """Return the headroom as JSON."""
        return {
            "rule": self.rule,
            "unit": self.unit,
            "each-release": self.each_release,
            "more": self.more,
            "at": dict(self.location),
            "budget": self.budget,
            "spent": dict(self.spent),
            "cost": dict(self.cost),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class Headroom:
    """How many more releases of one content `submit` would allow now; None without a limit.

    `rules` are all rules that the release matches, tightest first. `uncovered` and
    `predicate_errors` are those of a decision; with one of them, no release is allowed.
    `most_accurate` is a counter-offer with the least noise that fits now, None if none is known or
    if the caller did not request it.
    """

    release: str
    more: int | None
    rules: tuple[RuleHeadroom, ...]
    uncovered: tuple[str, ...] = ()
    predicate_errors: tuple[str, ...] = ()
    most_accurate: Mapping[str, Any] | None = None

    @property
    def first_limit(self) -> RuleHeadroom | None:
        """The rule that limits the number; None if no rule does."""
        if self.uncovered or self.predicate_errors or not self.rules or self.more is None:
            return None
        return self.rules[0]

    def __repr__(self) -> str:
        limit = self.first_limit
        return one_line(
            self,
            f"{'unlimited' if self.more is None else self.more} more like {self.release}",
            f"first limit {limit.rule}, unit {limit.unit}" if limit else "",
            f"not covered: {list_names(self.uncovered)}" if self.uncovered else "",
            f"{len(self.predicate_errors)} predicate errors" if self.predicate_errors else "",
        )

    def _repr_html_(self) -> str:
        header = ("rule", "unit", "at", "more")
        rows = [
            (
                rule.rule,
                rule.unit,
                ", ".join(f"{name}={value}" for name, value in rule.location.items()),
                "no limit" if rule.more is None else str(rule.more),
            )
            for rule in self.rules
        ]
        return html_table(repr(self), header, rows)

    def as_json(self) -> dict[str, Any]:
        """Return the headroom as a JSON object with the keys of the API."""
        return {
            "release": self.release,
            "more": self.more,
            "rules": [rule.as_json() for rule in self.rules],
            "uncovered": list(self.uncovered),
            "errors": list(self.predicate_errors),
            "most-accurate": None if self.most_accurate is None else dict(self.most_accurate),
        }


def find_headroom(
    enforced: EnforcedPolicy,
    balances: Balances,
    mechanisms: Sequence[ResolvedMechanism],
    today: int,
    release: str,
) -> Headroom:
    """Return how many more releases with these mechanisms the policy would allow.

    `today` is an ordinal day, as for `decide`. Raise `InvalidValue` (R008) if the mechanisms
    overlap in too many ways.
    """
    per_release, cumulative = enforced.each_release, enforced.cumulative
    release_matches, release_errors = match_mechanisms(per_release, mechanisms)
    matches, errors = match_mechanisms(cumulative, mechanisms)
    uncovered: tuple[str, ...] = ()
    if not enforced.policy.accounting.allow_uncovered:
        uncovered = find_uncovered(cumulative, mechanisms, matches)
    rules: list[RuleHeadroom] = []
    if per_release.compiled.rules and not release_errors:
        rules += _release_rules(check_release(enforced, mechanisms, release_matches, today))
    if cumulative.compiled.rules and not errors:
        charges = charges_by_region(cumulative, mechanisms, matches, today)
        repetitions = count_repetitions(cumulative, balances, charges)
        rules += _cumulative_rules(cumulative, repetitions, charges[0].cutoff)
    rules.sort(key=lambda rule: UNLIMITED if rule.more is None else rule.more)
    failures = (*release_errors[:1], *errors[:1])
    more = rules[0].more if rules else None
    if uncovered or failures:
        more = 0
    return Headroom(release, more, tuple(rules), uncovered, failures)


def _release_rules(checks: RuleChecks) -> list[RuleHeadroom]:
    """Return the per-release rules: without a limit if they hold, 0 otherwise."""

    def find_point(position: int) -> Point | None:
        exact, block = checks.exact.get(position), checks.tightest_cells.get(position)
        if exact is not None and exact.point is not None:
            return exact.point
        return None if block is None else block.point

    counts = np.where(checks.holds, UNLIMITED, 0)
    table = _RuleTable(checks.section, checks.rule_numbers, counts, checks.cutoff)
    costs = table.display(checks.cost)
    for position, exact in checks.exact.items():
        costs[position] = exact.display(table.display_one(position, exact.cost))
    return table.describe(table.display(checks.spent), costs, find_point)


def _cumulative_rules(
    section: EnforcedSection, repetitions: Repetitions, cutoff: int
) -> list[RuleHeadroom]:
    def find_point(position: int) -> Point | None:
        if not repetitions.has_point[position]:
            return None
        return tuple(repetitions.points[position].tolist())

    table = _RuleTable(section, repetitions.numbers, repetitions.counts, cutoff)
    return table.describe(
        table.display(repetitions.spent), table.display(repetitions.cost), find_point
    )


@dataclass(frozen=True, slots=True, eq=False)
class _RuleTable:
    """Rules of one section with their counts, to describe them for people."""

    section: EnforcedSection
    numbers: NDArray[np.intp]
    counts: LossArray
    cutoff: int

    def display(self, rows: LossArray) -> list[DisplayedLoss]:
        """Return a displayed loss per rule; rules with the same budget are formatted together."""
        budgets = self.section.compiled.rules.budget_numbers[self.numbers]
        displayed: list[DisplayedLoss] = [{}] * len(rows)
        for budget in set(budgets.tolist()):
            positions = np.flatnonzero(budgets == budget)
            distinct, inverse = np.unique(rows[positions], axis=0, return_inverse=True)
            losses = self.section.formatters[budget].format_all(distinct)
            for position, row in zip(positions.tolist(), inverse.tolist(), strict=True):
                displayed[position] = losses[row]
        return displayed

    def display_one(self, position: int, row: LossArray) -> DisplayedLoss:
        """Return the displayed loss of one rule."""
        return self.section.formatter_for(int(self.numbers[position]))(row)

    def describe(
        self,
        spent: Sequence[DisplayedLoss],
        cost: Sequence[DisplayedLoss],
        find_point: Callable[[int], Point | None],
    ) -> list[RuleHeadroom]:
        """Return the rules in policy order; `find_point` returns the point of a position."""
        granularities = self.section.granularities
        rules: list[RuleHeadroom] = []
        for position in np.argsort(self.numbers).tolist():
            number, count = int(self.numbers[position]), int(self.counts[position])
            point, rule = find_point(position), self.section.describe_rule(number)
            location: Mapping[str, str | int] = {}
            if point is not None:
                location = granularities.location_for_rule(point, number, self.cutoff)
            rules.append(
                RuleHeadroom(
                    rule["rule"],
                    rule["unit"],
                    rule["each_release"],
                    None if count == UNLIMITED else count,
                    location,
                    rule["budget"],
                    spent[position],
                    cost[position],
                    rule["source"],
                )
            )
        return rules
