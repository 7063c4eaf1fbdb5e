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

from dpolicy.enforcement.balances import Balances, Numbers
from dpolicy.enforcement.check import Prepared, prepared
from dpolicy.enforcement.state import State
from dpolicy.language.model import PolicySet
from dpolicy.predicates.expression import Always
from dpolicy.privacy.budget import EpsilonDelta, as_json
from dpolicy.privacy.loss import Loss
from dpolicy.privacy.report import shown_up
from dpolicy.privacy.rows import Rows, loss_of
from dpolicy.privacy.thresholds import binds
from dpolicy.releases.decision import Shown
from dpolicy.releases.regions import Point, Region
from dpolicy.rules.compiler import CompiledPolicy, Section
from dpolicy.rules.rule import Rule

#: For so many rules, the fullest, releases are named.
MOST_TOLD = 1_000
#: How many releases are named for a rule.
MOST_SPENDERS = 5


@dataclass(frozen=True, slots=True)
class Balance:
    """How one rule stands: its budget, what was spent, and whether it holds."""

    rule: Rule
    spent: Shown
    loss: Loss
    holds: bool
    spenders: tuple[str, ...]
    at: Mapping[str, str | int]

    def as_json(self) -> dict[str, Any]:
        """The balance for programs."""
        return {
            "rule": self.rule.name,
            "unit": self.rule.unit,
            "policies": list(self.rule.policies),
            "at": dict(self.at),
            "budget": as_json(self.rule.budget),
            "spent": dict(self.spent),
            "holds": self.holds,
            "spent-most": list(self.spenders),
            "source": str(self.rule.base.span),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Standings:
    """How kept rules over all releases stand, each at its worst place: cheap for many rules.

    `points` are the worst places by position, of those rules that are not the same everywhere.
    """

    of: Prepared
    numbers: Numbers
    rows: Rows
    points: Mapping[int, Point]
    held: NDArray[np.bool_]
    cutoff: int

    def at(self, position: int) -> dict[str, str | int]:
        """The worst place of a rule, for people."""
        if position not in self.points:
            return {}
        number = int(self.numbers[position])
        return self.of.layout.named(self.points[position], number, self.cutoff)


def standings(
    state: State,
    policy: CompiledPolicy,
    within: Region | None = None,
    wanted: Callable[[Rule], bool] | None = None,
) -> Standings:
    """The kept rules over all releases of the policy in force, in the order of the text.

    Only places in `within` and rules that are `wanted` are looked at, if these are given.
    """
    of, _ = prepared(policy)
    spent, numbers = state.balances, of.section.pruned.kept.nonzero()[0]
    if wanted is not None:
        chosen = [wanted(of.section.rules[number]) for number in numbers.tolist()]
        numbers = numbers[np.array(chosen, dtype=bool)]
    rows, points = spent.spent(numbers), {}
    for position in np.flatnonzero(spent.has_segments[numbers]).tolist():
        number = int(numbers[position])
        points[position], rows[position] = _worst(of, spent, number, within)
    held = of.gates_of(numbers).hold(rows)
    return Standings(of, numbers, rows, points, held, of.layout.cutoff(state.today))


def balances(
    state: State,
    within: Region | None = None,
    wanted: Callable[[Rule], bool] | None = None,
    told: int | None = None,
) -> list[Balance]:
    """Every kept rule over all releases, in the order of the text, at its worst place.

    Only places in `within` and rules that are `wanted` are looked at, if these are given. Who spent
    most is `told` for the fullest rules, which are first of all those that are broken.
    """
    if state.policy is None:
        return []
    now = standings(state, state.policy, within, wanted)
    of, rows = now.of, now.rows
    room = of.gates_of(now.numbers).room(rows)
    fullest = set(np.lexsort((room, now.held))[: MOST_TOLD if told is None else told].tolist())
    return [
        Balance(
            of.section.rules[number],
            of.readout_of(number)(rows[position]),
            loss_of(rows[position], of.certificates),
            bool(now.held[position]),
            most_spent(state, number, now.points.get(position)) if position in fullest else (),
            now.at(position),
        )
        for position, number in enumerate(now.numbers.tolist())
    ]


def _worst(of: Prepared, spent: Balances, number: int, within: Region | None) -> tuple[Point, Rows]:
    """Where a rule breaks or has spent most, and how much: the smallest such place."""
    segments = spent.segments[number]
    region = of.layout.blocks(within, number)
    nothing = np.zeros(len(of.certificates) + 1, dtype=np.int64)
    every = segments.touching(region)
    gate = of.gates_of(np.array([number]))
    broken, _ = gate.tell_apart(segments.amounts, every, nothing)
    cells = broken if len(broken) else every
    sizes = of.readout_of(number).sizes(segments.columns(cells).T)
    point = segments.first_point(cells[sizes == sizes.max()], region) or ()
    return point, segments.row_at(point)


def most_spent(state: State, number: int, at: Point | None = None) -> tuple[str, ...]:
    """The releases that a rule was charged most for, here or anywhere, in its own notion."""
    if state.policy is None:
        return ()
    found = list(state.spenders(number, at))
    if not found:
        return ()
    sizes = prepared(state.policy)[0].readout_of(number).sizes(np.array([row for _, row in found]))
    ranked = (found[position][0] for position in np.argsort(-sizes, kind="stable").tolist())
    releases = chain.from_iterable(state.counted(content) for content in ranked)
    return tuple(islice(dict.fromkeys(islice(releases, 2 * MOST_SPENDERS)), MOST_SPENDERS))


def conflicts(state: State) -> list[Balance]:
    """The kept rules that the past has already broken."""
    return [balance for balance in balances(state) if not balance.holds]


@dataclass(frozen=True, slots=True)
class Difference:
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


def differences(old: CompiledPolicy, new: CompiledPolicy) -> list[Difference]:
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
    kinds = {difference.kind for difference in differences(old, new)}
    everything = any(all(p == Always() for p in rule.predicates) for rule in old.cumulative.rules)
    return kinds <= ({"tightened", "added"} if everything else {"tightened"})


def _rest(policy: CompiledPolicy) -> PolicySet:
    return replace(policy.policies, name=None, policies=(), each_release=())


def _by_name(section: Section) -> dict[tuple[str, str], Rule]:
    return {(rule.name, rule.unit): rule for rule in section.rules}


def _change(old: Rule | None, new: Rule | None) -> Difference | None:
    either = new or old
    if either is None or (old is not None and new is not None and _same(old, new)):
        return None
    return Difference(
        _kind(old, new),
        either.name,
        either.unit,
        as_json(old.budget) if old else None,
        as_json(new.budget) if new else None,
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
    if binds(new.bound, old.bound):
        return "tightened"
    return "loosened" if binds(old.bound, new.bound) else "changed"


def smallest_budget(balance: Balance) -> dict[str, float | None]:
    """The least budget that the history satisfies, in the notion of the rule's own.

    None where no budget of this notion would do: an infinite loss, or leaks where none are allowed.
    """
    budget, bound = balance.rule.budget, balance.rule.bound
    leaks = balance.loss.delta
    spent = {key: value for key, value in balance.spent.items() if key != "delta"}
    if not leaks or bound.delta is None or leaks <= bound.delta:
        return spent
    if isinstance(budget, EpsilonDelta) and bound.delta:
        return {**spent, "delta": shown_up(leaks * budget.delta / bound.delta)}
    return dict.fromkeys(spent)


def conflict_json(conflict: Balance) -> dict[str, Any]:
    """A conflict for programs: the rule, who is at fault, and the smallest budget that would do."""
    return {
        **conflict.as_json(),
        "releases": list(conflict.spenders),
        "smallest-budget": smallest_budget(conflict),
    }


def share_used(balance: Balance) -> Fraction | None:
    """How much of its budget a rule has used; None where that is no number."""
    budget = as_json(balance.rule.budget)
    if isinstance(budget, str):
        return None
    notion, used = next(iter(balance.spent.items()))
    limit = budget.get(notion)
    if used is None or not isinstance(limit, float) or not limit:
        return None
    return Fraction(used) / Fraction(limit)
