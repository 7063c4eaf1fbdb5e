"""Overview page: all budgets by scope, most used first, and summaries by policy, category,
attribute and unit.

The rules are ranked as arrays, because there can be thousands. Only the rules on the requested page
are formatted and get a burn-down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.pdp.rule_status import RuleStatusTable, rule_status_table
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.service.dashboard.pagination import Pagination, paginate
from dpolicy.service.dashboard.views.burndown import Burndown, build_burndown
from dpolicy.service.dashboard.views.rule_status_row import (
    RuleStatusRow,
    build_rule_status_row,
    finite_share,
    used_shares,
)
from dpolicy.service.dashboard.views.rule_subjects import (
    matching_bases,
    rule_subjects,
    scope_numbers,
    scope_title,
)

#: Query parameters that filter the overview.
FILTERS = ("policy", "category", "attribute", "unit", "q")
#: Largest number of distinct charges that the burn-downs of one page read, at three microseconds
#: each. A rule with more charges than remain of these has its burn-down only on its own page.
MAX_BURNDOWN_CHARGES = 40_000
#: Number of policies, categories, attributes or units in a summary.
MAX_GROUPS_LISTED = 8


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """Rules with equivalent scopes, lifetime rules first, and the burn-down of one of those.

    `burndown` is None if no rule of the scope has a lifetime budget, or if all that have one exceed
    `MAX_BURNDOWN_CHARGES`.
    """

    title: str
    statuses: tuple[RuleStatusRow, ...]
    burndown: Burndown | None

    @property
    def exhaustion_date(self) -> date | None:
        """Return the estimated day of exhaustion, if there is one."""
        return self.burndown.exhaustion_date if self.burndown else None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "scope": self.title,
            "rules": [status.as_json() for status in self.statuses],
            "burn-down": self.burndown.as_json() if self.burndown else None,
        }


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules of one policy, category, attribute or unit.

    `share` is the largest used share among them, None if all their budgets are unlimited.
    """

    name: str
    rule_count: int
    share: float | None
    exceeded_count: int

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "rules": self.rule_count,
            "tightest": finite_share(self.share),
            "exceeded": self.exceeded_count,
        }


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """Overview of all budgets; `rows` are the scopes on the requested page."""

    sequence: int
    policy: str
    digest: str
    rule_count: int
    kept_count: int
    exceeded_count: int
    release_counts: Mapping[str, int]
    pending_count: int
    groups: Mapping[str, tuple[RuleGroup, ...]]
    filters: Mapping[str, str]
    rows: tuple[ScopeRow, ...]
    pagination: Pagination

    @property
    def most_used(self) -> tuple[ScopeRow, RuleStatusRow] | None:
        """Return the first row, and the rule in it with the largest used share."""
        if not self.rows:
            return None
        row = self.rows[0]
        return row, max(row.statuses, key=lambda s: (not s.holds, s.share or 0.0))

    @property
    def first_exhausted(self) -> ScopeRow | None:
        """Return the row of this page with the earliest estimated exhaustion, if there is one."""
        estimated = [row for row in self.rows if row.exhaustion_date and row.statuses[0].holds]
        return min(estimated, key=lambda row: row.exhaustion_date or date.max, default=None)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "sequence": self.sequence,
            "policy": {"name": self.policy, "digest": self.digest},
            "rules": {
                "total": self.rule_count,
                "kept": self.kept_count,
                "exceeded": self.exceeded_count,
            },
            "releases": dict(self.release_counts),
            "pending": self.pending_count,
            "groups": {
                kind: [group.as_json() for group in groups] for kind, groups in self.groups.items()
            },
            "filters": dict(self.filters),
            "scopes": [row.as_json() for row in self.rows],
            **self.pagination.as_json(),
        }


def build_overview_page(
    state: LedgerState, today: date, filters: Mapping[str, str], page: int
) -> OverviewPage | None:
    """Build the overview; return None if there is no active policy."""
    policy = state.policy
    if policy is None:
        return None
    table = rule_status_table(state)
    shares = used_shares(table)
    scopes = _rank_scopes(policy, table, shares, _matching_rules(policy, table, filters))
    pagination = paginate(page, len(scopes))
    return OverviewPage(
        state.sequence,
        policy.policy_set.name or "policy",
        policy.digest,
        policy.rule_count,
        policy.kept_count,
        int((~table.holds).sum()),
        Counter(entry.status for entry in state.entries.values()),
        sum(proposal.open for proposal in state.proposals.values()),
        _build_groups(policy, table, shares),
        filters,
        tuple(_build_rows(state, policy, table, pagination.items_on_page(scopes), today)),
        pagination,
    )


def _matching_rules(
    policy: CompiledPolicy, table: RuleStatusTable, filters: Mapping[str, str]
) -> NDArray[np.bool_]:
    """Return for each rule of the table whether it matches all filters."""
    rules = policy.cumulative.rules
    selected = matching_bases(policy, filters)[table.numbers // rules.width]
    words = filters.get("q", "").lower().split()
    if words:
        names = (rules[number].name.lower() for number in table.numbers[selected].tolist())
        selected[selected] = [all(word in name for word in words) for name in names]
    return selected


def _rank_scopes(
    policy: CompiledPolicy,
    table: RuleStatusTable,
    shares: NDArray[np.float64],
    selected: NDArray[np.bool_],
) -> list[list[int]]:
    """Return the positions of the selected rules by scope, most used scope first.

    Exceeded rules count as most used. Within a scope, lifetime rules come first.
    """
    positions = np.flatnonzero(selected)
    ranks = np.where(table.holds, np.nan_to_num(shares, nan=-1.0), np.inf)
    by_scope: dict[int, list[int]] = {}
    order = np.argsort(-ranks[positions], kind="stable")
    scopes = scope_numbers(policy, table.numbers)
    for position in positions[order].tolist():
        by_scope.setdefault(int(scopes[position]), []).append(position)
    return [sorted(rules, key=lambda p: (_has_period(table, p), p)) for rules in by_scope.values()]


def _has_period(table: RuleStatusTable, position: int) -> bool:
    granularity = table.section.granularities.for_rule(int(table.numbers[position]))
    return granularity.period is not None


def _build_rows(
    state: LedgerState,
    policy: CompiledPolicy,
    table: RuleStatusTable,
    scopes: Sequence[Sequence[int]],
    today: date,
) -> Iterator[ScopeRow]:
    remaining_charges = MAX_BURNDOWN_CHARGES
    for positions in scopes:
        burndown = None
        for position in positions:
            if burndown is not None or _has_period(table, position):
                continue
            number = int(table.numbers[position])
            charges = state.totals.max_groups_charged_to(number, state.charge_groups)
            if charges <= remaining_charges:
                remaining_charges -= charges
                point = table.worst_points.get(position)
                burndown = build_burndown(state, table.section, number, point, today)
        first_rule = table.section.compiled.rules[int(table.numbers[positions[0]])]
        statuses = tuple(build_rule_status_row(table, position) for position in positions)
        yield ScopeRow(scope_title(policy, first_rule), statuses, burndown)


def _build_groups(
    policy: CompiledPolicy, table: RuleStatusTable, shares: NDArray[np.float64]
) -> dict[str, tuple[RuleGroup, ...]]:
    """Return the most used policies, categories, attributes and units."""
    bases = policy.cumulative.rules.bases
    subjects = rule_subjects(policy)
    names: dict[str, list[str | None]] = {
        "policy": [base.policy for base in bases],
        "category": [s.name if s.kind == "category" else None for s in subjects],
        "attribute": [s.name if s.kind == "attribute" else None for s in subjects],
        "unit": [base.unit for base in bases],
    }
    base_numbers = table.numbers // policy.cumulative.rules.width
    return {
        kind: tuple(_most_used_groups(base_names, base_numbers, table, shares))
        for kind, base_names in names.items()
    }


def _most_used_groups(
    base_names: Sequence[str | None],
    base_numbers: NDArray[np.intp],
    table: RuleStatusTable,
    shares: NDArray[np.float64],
) -> Iterator[RuleGroup]:
    """Group the rules of the table by the name of their base rule; skip bases without a name."""
    group_names = list(dict.fromkeys(name for name in base_names if name is not None))
    index_by_name = {name: index for index, name in enumerate(group_names)}
    group_by_base = np.array(
        [-1 if name is None else index_by_name[name] for name in base_names], np.intp
    )
    groups = group_by_base[base_numbers]
    grouped = groups >= 0
    largest = np.full(len(group_names), -np.inf)
    np.maximum.at(largest, groups[grouped], np.where(np.isnan(shares), -np.inf, shares)[grouped])
    counts = np.bincount(groups[grouped], minlength=len(group_names))
    exceeded = np.bincount(groups[grouped & ~table.holds], minlength=len(group_names))
    for index in np.argsort(-largest, kind="stable")[:MAX_GROUPS_LISTED].tolist():
        if counts[index]:
            share = float(largest[index]) if largest[index] > -np.inf else None
            yield RuleGroup(group_names[index], int(counts[index]), share, int(exceeded[index]))
