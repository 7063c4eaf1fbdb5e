"""Rule page: use and burn-down of a rule, its top spenders and locations, and its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from dpolicy.balances.segments import Segments
from dpolicy.pdp.rule_status import RuleStatusTable, rule_status_table
from dpolicy.pdp.spending.pruned_rules import track_rules, track_state
from dpolicy.pdp.state.charge_groups import SpendingTotals
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.predicates.expression import Always, Expression, UsesAny
from dpolicy.privacy.budget import format_budget
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.decision import stated_delta
from dpolicy.releases.regions import Point
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.rules.rule import TIMES, Rule, SettingAxis
from dpolicy.service.dashboard.views.burndown import Burndown, build_burndown
from dpolicy.service.dashboard.views.rule_neighbours import find_neighbours
from dpolicy.service.dashboard.views.rule_status_row import (
    RuleKey,
    RuleStatusRow,
    build_rule_status_row,
    finite_share,
    known_share,
)
from dpolicy.service.dashboard.views.time_blocks import BlockUsage, recent_blocks

#: Largest number of releases, of locations and of implied rules on the page.
MAX_SPENDERS_LISTED = 15


@dataclass(frozen=True, slots=True)
class TopSpender:
    """Release with its cost to the rule at the most used location, in the notion of the rule.

    `delta` is the δ that the release states there.
    """

    release: str
    by: str
    month: str
    cost: float | None
    delta: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "release": self.release,
            "by": self.by,
            "month": self.month,
            "cost": self.cost,
            "delta": self.delta,
        }


@dataclass(frozen=True, slots=True)
class LocationUsage:
    """Box of locations, from `first` to `last`, with the used share of the budget there."""

    first: Mapping[str, str | int]
    last: Mapping[str, str | int]
    share: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"from": dict(self.first), "to": dict(self.last), "share": finite_share(self.share)}


@dataclass(frozen=True, slots=True)
class RuleUsage:
    """Use of a rule. Per-release rules have no balance, so all fields are empty."""

    status: RuleStatusRow | None = None
    burndown: Burndown | None = None
    spenders: tuple[TopSpender, ...] = ()
    locations: tuple[LocationUsage, ...] = ()
    location_count: int = 0
    blocks: tuple[BlockUsage, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "status": self.status.as_json() if self.status else None,
            "burn-down": self.burndown.as_json() if self.burndown else None,
            "spent-most": [spender.as_json() for spender in self.spenders],
            "locations": [location.as_json() for location in self.locations],
            "location-count": self.location_count,
            "blocks": [block.as_json() for block in self.blocks],
        }


@dataclass(frozen=True, slots=True)
class RulePage:
    """One rule of the active policy."""

    rule: RuleKey
    scope: tuple[str, ...]
    policies: tuple[str, ...]
    sources: tuple[str, ...]
    budget: str
    implied_by: RuleKey | None
    implies: tuple[RuleKey, ...]
    implies_count: int
    wider: tuple[RuleKey, ...]
    narrower: tuple[RuleKey, ...]
    usage: RuleUsage

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **self.rule.as_json(),
            "scope": list(self.scope),
            "policies": list(self.policies),
            "sources": list(self.sources),
            "budget": self.budget,
            "implied-by": self.implied_by.as_json() if self.implied_by else None,
            "implies": [rule.as_json() for rule in self.implies],
            "implies-count": self.implies_count,
            "wider": [rule.as_json() for rule in self.wider],
            "narrower": [rule.as_json() for rule in self.narrower],
            **self.usage.as_json(),
        }


def find_rule(policy: CompiledPolicy, key: RuleKey) -> Rule | None:
    """Find a rule by its key without building all rules; return None if there is none."""
    rules = (policy.each_release if key.each_release else policy.cumulative).rules
    for base_number, base in enumerate(rules.bases):
        if base.unit != key.unit or not key.name.startswith(base.name):
            continue
        suffix = key.name.removeprefix(base.name)
        setting_names = suffix.removeprefix(TIMES).split(TIMES) if suffix else []
        combination = _find_combination(rules.axes, setting_names)
        if combination is not None:
            return rules[base_number * rules.width + combination]
    return None


def _find_combination(axes: Sequence[SettingAxis], setting_names: Sequence[str]) -> int | None:
    """Return the number of the combination with these settings, one per axis."""
    if len(setting_names) != len(axes):
        return None
    combination = 0
    for axis, name in zip(axes, setting_names, strict=True):
        axis_names = [setting.name for setting in axis]
        if name not in axis_names:
            return None
        combination = combination * len(axis) + axis_names.index(name)
    return combination


def build_rule_page(
    state: LedgerState, key: RuleKey, today: date, visible_owner: str | None = None
) -> RulePage | None:
    """Build the page of a rule; return None if the active policy has no such rule.

    With `visible_owner`, only releases of that person are listed.
    """
    policy = state.policy
    rule = find_rule(policy, key) if policy else None
    if policy is None or rule is None:
        return None
    section = policy.each_release if rule.each_release else policy.cumulative
    neighbours = find_neighbours(section, rule.number)
    implied = np.flatnonzero(section.pruning.implied_by == rule.number)
    implied = implied[implied != rule.number]
    witness = section.implied_by(rule)
    return RulePage(
        rule_key(rule),
        tuple(_scope_parts(rule)),
        rule.policies,
        tuple(str(span) for span in rule.sources),
        format_budget(rule.budget),
        rule_key(witness) if witness else None,
        _rule_keys(section, implied[:MAX_SPENDERS_LISTED].tolist()),
        len(implied),
        _rule_keys(section, neighbours.wider),
        _rule_keys(section, neighbours.narrower),
        _build_usage(state, policy, rule, today, visible_owner),
    )


def rule_key(rule: Rule) -> RuleKey:
    """Return the key of a rule."""
    return RuleKey(rule.name, rule.unit, rule.each_release)


def _rule_keys(section: CompiledSection, numbers: Sequence[int]) -> tuple[RuleKey, ...]:
    return tuple(rule_key(section.rules[number]) for number in numbers)


def _scope_parts(rule: Rule) -> Iterator[str]:
    """Yield the predicates of the scope as text; `always` is omitted."""
    for predicate in rule.predicates:
        match predicate:
            case Always():
                continue
            case UsesAny(attributes=attributes):
                yield f"reads {' or '.join(sorted(attributes))}" if attributes else "reads nothing"
            case Expression(text=text):
                yield text


def _build_usage(
    state: LedgerState,
    policy: CompiledPolicy,
    rule: Rule,
    today: date,
    visible_owner: str | None,
) -> RuleUsage:
    """Build the use of a rule; empty for a per-release rule."""
    if rule.each_release or state.enforced is None:
        return RuleUsage()
    if not policy.cumulative.pruning.kept[rule.number]:
        state = track_state(state, SpendingTotals(track_rules(state.enforced, [rule.number])))
    table = rule_status_table(state)
    position = int(np.searchsorted(table.numbers, rule.number))
    point = table.worst_points.get(position)
    segments = state.balances.segments_for(rule.number) if point is not None else None
    locations, location_count = _most_used_locations(segments, table, rule)
    status = build_rule_status_row(table, position)
    return RuleUsage(
        status,
        build_burndown(state, table.section, rule.number, point, today),
        tuple(_top_spenders(state, table, rule, point, visible_owner, status.binding)),
        locations,
        location_count,
        recent_blocks(table.section, rule, segments),
    )


def _top_spenders(
    state: LedgerState,
    table: RuleStatusTable,
    rule: Rule,
    point: Point | None,
    visible_owner: str | None,
    binding: str | None,
) -> Iterator[TopSpender]:
    """Yield the releases with the largest cost at `point`, largest first.

    If the rule is exceeded or most used in δ, they are the releases with the largest stated δ.
    """
    groups = [
        (group, row)
        for group, row in state.groups_charged_to_rule(rule.number, point)
        if visible_owner in (None, group.by)
    ]
    if binding == "delta":
        groups = [(group, row) for group, row in groups if row[-1]]
    if not groups:
        return
    formatter, rows = table.section.formatter_for(rule.number), np.array([row for _, row in groups])
    sizes = rows[:, -1] if binding == "delta" else formatter.ranking_keys(rows)
    remaining = MAX_SPENDERS_LISTED
    for position in np.argsort(-sizes, kind="stable")[:MAX_SPENDERS_LISTED].tolist():
        group, row = groups[position]
        displayed = formatter(row)
        cost, delta = next(iter(displayed.values())), stated_delta(displayed)
        month = f"{date.fromordinal(group.month):%Y-%m}"
        for release in list(state.spending_releases(group))[:remaining]:
            yield TopSpender(release, group.by, month, cost, delta)
            remaining -= 1
        if remaining <= 0:
            return


def _most_used_locations(
    segments: Segments | None, table: RuleStatusTable, rule: Rule
) -> tuple[tuple[LocationUsage, ...], int]:
    """Return the most used locations, and the number of all charged ones.

    `segments` is None if the rule has the same balance everywhere; then there are no locations.
    """
    if segments is None:
        return (), 0
    arrays = segments.to_arrays()
    losses: LossArray = arrays["amounts"].T
    shares = table.section.formatter_for(rule.number).used_shares(losses)
    charged = np.flatnonzero(losses.any(axis=1))
    ranked = charged[np.argsort(-shares[charged], kind="stable")]
    locations = tuple(
        LocationUsage(
            _location(table, rule, arrays["low"][:, cell]),
            _location(table, rule, arrays["high"][:, cell] - 1),
            known_share(shares[cell]),
        )
        for cell in ranked[:MAX_SPENDERS_LISTED].tolist()
    )
    return locations, len(charged)


def _location(table: RuleStatusTable, rule: Rule, corner: LossArray) -> Mapping[str, str | int]:
    """Return the location of a corner of a segment, for display."""
    return table.section.granularities.location_for_rule(
        tuple(corner.tolist()), rule.number, table.cutoff
    )
