"""One rule → its place in the order, what implies it, how it was used up, by whom, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from dpolicy.balances.segments import Segments
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.rule_status import RuleStatusTable, rule_status_table
from dpolicy.predicates.expression import Always, Expression, UsesAny
from dpolicy.privacy.budget import format_budget
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Point
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.rules.rule import TIMES, Rule
from dpolicy.service.dashboard.views.burndown import Burndown, rule_burndown
from dpolicy.service.dashboard.views.rule_neighbours import rule_neighbours
from dpolicy.service.dashboard.views.rule_status_row import (
    RuleKey,
    RuleStatusRow,
    rule_status_row,
    used_share_of_budget,
)
from dpolicy.service.dashboard.views.time_blocks import BlockUsage, time_block_usage

#: A page names so many releases, places, and rules that this one implies.
MAX_SPENDERS_LISTED = 15


@dataclass(frozen=True, slots=True)
class TopSpender:
    """A release and what it cost the rule at its worst place, in the rule's own notion."""

    release: str
    by: str
    month: str
    cost: float | None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "release": self.release,
            "by": self.by,
            "month": self.month,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class LocationUsage:
    """Somewhere the rule is kept by itself, and the share of its budget that is used there."""

    first: Mapping[str, str | int]
    last: Mapping[str, str | int]
    share: float | None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"from": dict(self.first), "to": dict(self.last), "share": self.share}


@dataclass(frozen=True, slots=True)
class RulePage:
    """A rule; `standing` is None where nothing is spent of it: implied, or for each release."""

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
    standing: RuleStatusRow | None
    burndown: Burndown | None
    spenders: tuple[TopSpender, ...]
    places: tuple[LocationUsage, ...]
    place_count: int
    blocks: tuple[BlockUsage, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
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
            "standing": self.standing.as_json() if self.standing else None,
            "burn-down": self.burndown.as_json() if self.burndown else None,
            "spent-most": [spender.as_json() for spender in self.spenders],
            "places": [place.as_json() for place in self.places],
            "place-count": self.place_count,
            "blocks": [block.as_json() for block in self.blocks],
        }


def find_rule(policy: CompiledPolicy, key: RuleKey) -> Rule | None:
    """A rule by its name and unit, without building all of them."""
    section = policy.each_release if key.each_release else policy.cumulative
    rules = section.rules
    for number, base in enumerate(rules.bases):
        rest = key.name.removeprefix(base.name)
        if base.unit != key.unit or not key.name.startswith(base.name):
            continue
        names = rest.removeprefix(TIMES).split(TIMES) if rest else []
        if len(names) != len(rules.axes):
            continue
        combination = 0
        for axis, name in zip(rules.axes, names, strict=True):
            known = [setting.name for setting in axis]
            if name not in known:
                break
            combination = combination * len(axis) + known.index(name)
        else:
            return rules[number * rules.width + combination]
    return None


def rule_page(
    state: LedgerState, key: RuleKey, today: date, own: str | None = None
) -> RulePage | None:
    """All that is known of a rule of the policy in force; None if there is no such rule.

    Of releases only those of one person are named, if `own` names somebody.
    """
    policy = state.policy
    rule = find_rule(policy, key) if policy else None
    if policy is None or rule is None:
        return None
    section = policy.each_release if rule.each_release else policy.cumulative
    near = rule_neighbours(section, rule.number)
    implied = np.flatnonzero(section.pruning.implied_by == rule.number)
    implied = implied[implied != rule.number]
    witness = section.implied_by(rule)
    return RulePage(
        rule_key(rule),
        tuple(_written(rule)),
        rule.policies,
        tuple(str(span) for span in rule.sources),
        format_budget(rule.budget),
        rule_key(witness) if witness else None,
        tuple(rule_key(section.rules[n]) for n in implied[:MAX_SPENDERS_LISTED].tolist()),
        len(implied),
        _names(section, near.wider),
        _names(section, near.narrower),
        *_kept(state, policy, rule, today, own),
    )


def rule_key(rule: Rule) -> RuleKey:
    """What a rule is found by."""
    return RuleKey(rule.name, rule.unit, rule.each_release)


def _names(section: CompiledSection, numbers: Sequence[int]) -> tuple[RuleKey, ...]:
    return tuple(rule_key(section.rules[number]) for number in numbers)


def _written(rule: Rule) -> Iterator[str]:
    """The scope as its parts: everything, some attributes, or an expression."""
    for predicate in rule.predicates:
        match predicate:
            case Always():
                continue
            case UsesAny(attributes=attributes):
                yield f"reads {' or '.join(sorted(attributes))}" if attributes else "reads nothing"
            case Expression(text=text):
                yield text


_Kept = tuple[
    RuleStatusRow | None,
    Burndown | None,
    tuple[TopSpender, ...],
    tuple[LocationUsage, ...],
    int,
    tuple[BlockUsage, ...],
]


def _kept(
    state: LedgerState, policy: CompiledPolicy, rule: Rule, today: date, own: str | None
) -> _Kept:
    """How a rule over all releases was used, if it is enforced."""
    if rule.each_release or not policy.cumulative.pruning.kept[rule.number]:
        return None, None, (), (), 0, ()
    now = rule_status_table(state)
    position = int(np.searchsorted(now.numbers, rule.number))
    told, point = rule_status_row(now, position), now.worst_points.get(position)
    followed = rule_burndown(state, now.section, rule.number, point, today)
    segments = state.balances.segments.get(rule.number)
    return (
        told,
        followed,
        tuple(_spenders(state, now, rule, point, own)),
        *_places(segments, now, rule),
        time_block_usage(now.section, rule, segments),
    )


def _spenders(
    state: LedgerState, now: RuleStatusTable, rule: Rule, point: Point | None, own: str | None
) -> Iterator[TopSpender]:
    """The releases that cost most, the dearest first."""
    every = state.groups_charged_to_rule(rule.number, point)
    found = [(content, row) for content, row in every if own in (None, content.by)]
    if not found:
        return
    readout = now.section.formatter_for(rule.number)
    sizes = readout.ranking_keys(np.array([row for _, row in found]))
    left = MAX_SPENDERS_LISTED
    for position in np.argsort(-sizes, kind="stable")[:MAX_SPENDERS_LISTED].tolist():
        content, row = found[position]
        cost = next(iter(readout(row).values()))
        month = f"{date.fromordinal(content.month):%Y-%m}"
        for release in list(state.spending_releases(content))[:left]:
            yield TopSpender(release, content.by, month, cost)
            left -= 1
        if left <= 0:
            return


def _places(
    segments: Segments | None, now: RuleStatusTable, rule: Rule
) -> tuple[tuple[LocationUsage, ...], int]:
    """The fullest places of a rule that is not the same everywhere."""
    if segments is None:
        return (), 0
    parts = segments.to_arrays()
    rows: LossArray = parts["amounts"].T
    used = used_share_of_budget(rule.budget, now.section.formatter_for(rule.number), rows)
    charged = np.flatnonzero(rows.any(axis=1))
    fullest = charged[np.argsort(-used[charged], kind="stable")]
    return tuple(
        LocationUsage(
            _named(now, rule, parts["low"][:, cell]),
            _named(now, rule, parts["high"][:, cell] - 1),
            None if np.isnan(used[cell]) else float(used[cell]),
        )
        for cell in fullest[:MAX_SPENDERS_LISTED].tolist()
    ), len(charged)


def _named(now: RuleStatusTable, rule: Rule, corner: LossArray) -> Mapping[str, str | int]:
    return now.section.granularities.location_for_rule(
        tuple(corner.tolist()), rule.number, now.cutoff
    )
