"""Two policies and a history → what changes, what conflicts, and what would do instead (theory 8).

A conflict is a rule whose budget the past has already exceeded. Its remedy is the smallest budget
that the history satisfies; who is at fault are the releases that spent most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.balances import Balances, RuleNumbers
from dpolicy.decisions.decide import EnforcedSection, enforced_sections
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.policy.model import PolicySet
from dpolicy.predicates.expression import Always
from dpolicy.privacy.budget import EpsilonDelta, budget_to_json
from dpolicy.privacy.cost_report import round_up_to_printed_float
from dpolicy.privacy.loss import Loss
from dpolicy.privacy.loss_arrays import LossArray, row_to_loss
from dpolicy.privacy.thresholds import implies_bound
from dpolicy.releases.decision import DisplayedLoss
from dpolicy.releases.regions import Point, Region
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
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


def find_conflicts(state: LedgerState) -> list[RuleStatus]:
    """The kept rules that the past has already broken."""
    return [balance for balance in rule_statuses(state) if not balance.holds]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One rule that two policies have differently."""

    kind: str
    name: str
    unit: str
    before: Any
    after: Any
    each_release: bool

    def as_json(self) -> dict[str, Any]:
        """The difference for programs."""
        return {
            "change": self.kind,
            "rule": self.name,
            "unit": self.unit,
            "before": self.before,
            "after": self.after,
            "each-release": self.each_release,
        }


def diff_policies(old: CompiledPolicy, new: CompiledPolicy) -> list[RuleChange]:
    """Rules that were added, removed, tightened, loosened or changed, by name and unit."""
    found = []
    for before, after in zip(old.sections, new.sections, strict=True):
        mine, theirs = _by_name(before), _by_name(after)
        for key in dict.fromkeys([*mine, *theirs]):
            change = _change(mine.get(key), theirs.get(key))
            if change is not None:
                found.append(change)
    return found


def only_tightens(old: CompiledPolicy | None, new: CompiledPolicy) -> bool:
    """Whether whatever the new policy allows, the old one would have allowed; in doubt, it is not.

    Everything but the rules must be said alike. A rule that is added only binds, unless it is the
    first to cover some mechanism, which would have been denied for want of any rule.
    """
    if old is None or _rest(old) != _rest(new):
        return False
    kinds = {difference.kind for difference in diff_policies(old, new)}
    everything = any(all(p == Always() for p in rule.predicates) for rule in old.cumulative.rules)
    return kinds <= ({"tightened", "added"} if everything else {"tightened"})


def _rest(policy: CompiledPolicy) -> PolicySet:
    return replace(policy.policy_set, name=None, policies=(), each_release=())


def _by_name(section: CompiledSection) -> dict[tuple[str, str], Rule]:
    return {(rule.name, rule.unit): rule for rule in section.rules}


def _change(old: Rule | None, new: Rule | None) -> RuleChange | None:
    either = new or old
    if either is None or (old is not None and new is not None and _same(old, new)):
        return None
    return RuleChange(
        _kind(old, new),
        either.name,
        either.unit,
        budget_to_json(old.budget) if old else None,
        budget_to_json(new.budget) if new else None,
        either.each_release,
    )


def _same(old: Rule, new: Rule) -> bool:
    return old.bound == new.bound and old.predicates == new.predicates


def _kind(old: Rule | None, new: Rule | None) -> str:
    if old is None:
        return "added"
    if new is None:
        return "removed"
    if old.predicates != new.predicates:
        return "changed scope"
    if implies_bound(new.bound, old.bound):
        return "tightened"
    return "loosened" if implies_bound(old.bound, new.bound) else "changed"


def smallest_sufficient_budget(balance: RuleStatus) -> dict[str, float | None]:
    """The least budget that the history satisfies, in the notion of the rule's own.

    None where no budget of this notion would do: an infinite loss, or leaks where none are allowed.
    """
    budget, bound = balance.rule.budget, balance.rule.bound
    leaks = balance.loss.delta
    spent = {key: value for key, value in balance.spent.items() if key != "delta"}
    if not leaks or bound.delta is None or leaks <= bound.delta:
        return spent
    if isinstance(budget, EpsilonDelta) and bound.delta:
        return {**spent, "delta": round_up_to_printed_float(leaks * budget.delta / bound.delta)}
    return dict.fromkeys(spent)


def conflict_to_json(conflict: RuleStatus) -> dict[str, Any]:
    """A conflict for programs: the rule, who is at fault, and the smallest budget that would do."""
    return {
        **conflict.as_json(),
        "releases": list(conflict.spenders),
        "smallest-budget": smallest_sufficient_budget(conflict),
    }


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
