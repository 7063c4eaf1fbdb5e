"""A state → every budget at a glance: the tightest by scope, policy, category, attribute and unit.

Thousands of rules are ranked as arrays. Only the page that is shown is told in words, and only for
that is it looked up when budgets will be gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.rule_status import RuleStatusTable, rule_status_table
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.service.dashboard.pagination import Pagination, paginate
from dpolicy.service.dashboard.views.burndown import Burndown, rule_burndown
from dpolicy.service.dashboard.views.rule_status_row import (
    RuleStatusRow,
    rule_status_row,
    used_shares,
)
from dpolicy.service.dashboard.views.rule_subjects import (
    matching_bases,
    scope_numbers,
    scope_title,
    subjects,
)

#: What the overview can be narrowed to.
FILTERS = ("policy", "category", "attribute", "unit", "q")
#: Distinct releases that one page goes through to draw burn-downs, at three microseconds each. A
#: rule that is charged for more than are left of these is followed on its own page only.
MAX_BURNDOWN_CHARGES = 40_000
#: A summary names the tightest of each kind.
MAX_GROUPS_LISTED = 8


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """One scope: how its rules stand, one for each unit, and when what does not renew is gone."""

    title: str
    standings: tuple[RuleStatusRow, ...]
    burndown: Burndown | None

    @property
    def exhausted(self) -> date | None:
        """When nothing is left, if that can be told."""
        return self.burndown.exhausted if self.burndown else None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "scope": self.title,
            "rules": [standing.as_json() for standing in self.standings],
            "burn-down": self.burndown.as_json() if self.burndown else None,
        }


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """All rules of a policy, category, attribute or unit: how many, and the tightest of them."""

    name: str
    rules: int
    share: float | None
    broken: int

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "rules": self.rules,
            "tightest": self.share,
            "broken": self.broken,
        }


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The first page."""

    sequence: int
    policy: str
    digest: str
    rules: int
    kept: int
    broken: int
    releases: Mapping[str, int]
    waiting: int
    groups: Mapping[str, tuple[RuleGroup, ...]]
    filters: Mapping[str, str]
    lines: tuple[ScopeRow, ...]
    paging: Pagination

    @property
    def tightest(self) -> tuple[ScopeRow, RuleStatusRow] | None:
        """The first line, and the rule in it of which most is used."""
        if not self.lines:
            return None
        line = self.lines[0]
        return line, max(line.standings, key=lambda s: (not s.holds, s.share or 0.0))

    @property
    def first_exhausted(self) -> ScopeRow | None:
        """The line of this page that is used up first, if one is within the horizon."""
        gone = [line for line in self.lines if line.exhausted and line.standings[0].holds]
        return min(gone, key=lambda line: line.exhausted or date.max, default=None)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "sequence": self.sequence,
            "policy": {"name": self.policy, "digest": self.digest},
            "rules": {"total": self.rules, "kept": self.kept, "broken": self.broken},
            "releases": dict(self.releases),
            "waiting": self.waiting,
            "groups": {
                kind: [group.as_json() for group in groups] for kind, groups in self.groups.items()
            },
            "wanted": dict(self.filters),
            "scopes": [line.as_json() for line in self.lines],
            **self.paging.as_json(),
        }


def overview_page(
    state: LedgerState, today: date, filters: Mapping[str, str], page: int
) -> OverviewPage | None:
    """How all budgets stand; None while there is no policy."""
    policy = state.policy
    if policy is None:
        return None
    now = rule_status_table(state)
    used = used_shares(now)
    scopes = _ranked(policy, now, used, _wanted(policy, now, filters))
    shown = paginate(page, len(scopes))
    return OverviewPage(
        state.sequence,
        policy.policy_set.name or "policy",
        policy.digest,
        policy.rule_count,
        policy.kept_count,
        int((~now.holds).sum()),
        Counter(entry.status for entry in state.entries.values()),
        sum(proposal.open for proposal in state.proposals.values()),
        _groups(policy, now, used),
        filters,
        tuple(_lines(state, policy, now, shown.items_on_page(scopes), today)),
        shown,
    )


def _wanted(
    policy: CompiledPolicy, now: RuleStatusTable, filters: Mapping[str, str]
) -> NDArray[np.bool_]:
    """Which rules are asked for."""
    rules = policy.cumulative.rules
    found = matching_bases(policy, filters)[now.numbers // rules.width]
    words = filters.get("q", "").lower().split()
    if words:
        names = (rules[number].name.lower() for number in now.numbers[found].tolist())
        found[found] = [all(word in name for word in words) for name in names]
    return found


def _ranked(
    policy: CompiledPolicy,
    now: RuleStatusTable,
    used: NDArray[np.float64],
    selected: NDArray[np.bool_],
) -> list[list[int]]:
    """The positions of the rules of each scope, lasting ones first; the tightest scope first."""
    positions = np.flatnonzero(selected)
    tightness = np.where(now.holds, np.nan_to_num(used, nan=-1.0), np.inf)
    by_scope: dict[int, list[int]] = {}
    order = np.argsort(-tightness[positions], kind="stable")
    scopes = scope_numbers(policy, now.numbers)
    for position in positions[order].tolist():
        by_scope.setdefault(int(scopes[position]), []).append(position)
    return [sorted(rules, key=lambda p: (_renews(now, p), p)) for rules in by_scope.values()]


def _renews(now: RuleStatusTable, position: int) -> bool:
    layout = now.section.granularities
    return layout.frames[layout.frame_of[now.numbers[position]]].period is not None


def _lines(
    state: LedgerState,
    policy: CompiledPolicy,
    now: RuleStatusTable,
    scopes: Sequence[Sequence[int]],
    today: date,
) -> Iterator[ScopeRow]:
    left = MAX_BURNDOWN_CHARGES
    for rules in scopes:
        followed = None
        for position in (p for p in rules if not _renews(now, p)):
            number, point = int(now.numbers[position]), now.worst_points.get(position)
            size = state.max_groups_charged_to_rule(number)
            if followed is None and size <= left:
                left -= size
                followed = rule_burndown(state, now.section, number, point, today)
        first = now.section.compiled.rules[int(now.numbers[rules[0]])]
        yield ScopeRow(
            scope_title(policy, first), tuple(rule_status_row(now, p) for p in rules), followed
        )


def _groups(
    policy: CompiledPolicy, now: RuleStatusTable, used: NDArray[np.float64]
) -> dict[str, tuple[RuleGroup, ...]]:
    """The tightest rules by each thing that people ask about."""
    bases = policy.cumulative.rules.bases
    width = policy.cumulative.rules.width
    about = subjects(policy)
    names: dict[str, list[str | None]] = {
        "policy": [base.policy for base in bases],
        "category": [s.name if s.kind == "category" else None for s in about],
        "attribute": [s.name if s.kind == "attribute" else None for s in about],
        "unit": [base.unit for base in bases],
    }
    own = now.numbers // width
    return {kind: tuple(_group(of, own, now, used)) for kind, of in names.items()}


def _group(
    names: Sequence[str | None],
    base_of: NDArray[np.intp],
    now: RuleStatusTable,
    used: NDArray[np.float64],
) -> Iterator[RuleGroup]:
    known = list(dict.fromkeys(name for name in names if name is not None))
    place = {name: position for position, name in enumerate(known)}
    numbers = np.array([place[name] if name is not None else -1 for name in names], np.intp)
    group_of = numbers[base_of]
    inside = group_of >= 0
    most = np.full(len(known), -np.inf)
    np.maximum.at(most, group_of[inside], np.nan_to_num(used, nan=-np.inf)[inside])
    counts = np.bincount(group_of[inside], minlength=len(known))
    broken = np.bincount(group_of[inside & ~now.holds], minlength=len(known))
    for position in np.argsort(-most, kind="stable")[:MAX_GROUPS_LISTED].tolist():
        if counts[position]:
            share = float(most[position])
            told = share if np.isfinite(share) else None
            yield RuleGroup(known[position], int(counts[position]), told, int(broken[position]))
