"""Group privacy: the cost for every unit from statements for some (closure of theory 0.1).

Nodes are (unit, relation). An edge states: neighbours at this node are at most n steps of
neighbours at that node. Steps multiply along a path. The cost at a node is the mechanism's cost for
a group of as many units as the shortest path has steps, minimised over all statements:

    AR(u) ≤ CH(u)               CH(u), RP(u) ≤ 2 steps of AR(u)
    CH(v) ≤ k steps of CH(u)    AR(v) ≤ k steps of AR(u), 2 for a unit that is removed in part

k is the group size for the days that are read (4.3). A mechanism flagged as additive (5.3) may lose
a part of a unit in one step. If no path reaches a node, its cost is infinite.

δ-sides: a certificate is a bound given the δ-side of its derivation. Bounds are therefore mixed
only if their δ-sides are equal; otherwise the bounds with the smallest δ-side are used. That choice
may differ from unit to unit. If it makes a unit cost more than a larger one, the cost of the larger
unit is raised: costs stay monotone, and raising a cost is always sound. The same holds for a
recorded mechanism that is not additive under a policy that requires additive ones: pruning relies
on the order of units, and the record must obey it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import NamedTuple

from dpolicy.errors import InvalidValue
from dpolicy.privacy.cost import cost_by_size
from dpolicy.privacy.loss import (
    Certificates,
    Loss,
    elementwise_max,
    elementwise_min,
    is_at_most,
    unbounded_loss,
)
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.sampling.changed_sample import ChangedSample
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    TouchedDays,
    add_remove_size,
    group_size,
    tighter_add_remove_size,
)

#: Whether the first entity covers the second: each of the second belongs to one of the first.
Covers = Callable[[str, str], bool]

#: The position of a unit, and a relation.
UnitRelation = tuple[int, NeighbouringRelation]


def no_covers(larger: str, smaller: str) -> bool:
    """Return False: no entity covers another."""
    return False


@dataclass(frozen=True, slots=True)
class GroupContext:
    """Everything that group sizes depend on, besides the unit and relation of the statement.

    `additive` is the flag of theory 5.3; `touched` are the days that the mechanism reads; `rules`
    are the version of the bounds. `ordered_as_additive`: the policy orders its units as for
    additive mechanisms, so the cost of a larger unit must be at least that of a smaller one, also
    for a mechanism that is not additive.
    """

    units: tuple[PrivacyUnit, ...]
    additive: bool = False
    touched: TouchedDays | None = None
    covers: Covers = no_covers
    rules: CostRules = CostRules.FIRST
    ordered_as_additive: bool = False


def cost_by_unit(
    mechanism: Mechanism,
    stated_unit: PrivacyUnit,
    relation: NeighbouringRelation,
    context: GroupContext,
    certificates: Certificates,
    restatements: Mapping[str, Mechanism] | None = None,
) -> dict[str, Loss]:
    """Return the cost for every unit of the context under the relation of that unit, by name.

    `restatements` are the mechanism restated for other units, by unit, under `relation`. Raise
    `InvalidValue` (M018) if one names a unit that the context does not have.
    """
    units = context.units
    if stated_unit not in units:
        context = replace(context, units=(*units, stated_unit))
    position = context.units.index(stated_unit)
    costs_by_statement = [
        _statement_costs(statement, certificates)
        for statement in statements_for(mechanism, position, relation, restatements or {}, context)
    ]
    costs = costs_by_statement[0]
    if len(costs_by_statement) > 1:
        costs = [_best(bounds, certificates) for bounds in zip(*costs_by_statement, strict=True)]
    if _has_several_deltas(costs) or (context.additive and mechanism.is_sampled):
        costs = _make_monotone(costs, context)
    if context.ordered_as_additive and not context.additive:
        costs = _make_monotone(costs, replace(context, additive=True))
    return {unit.name: loss for unit, loss in zip(units, costs, strict=False)}


def _has_several_deltas(costs: list[Loss]) -> bool:
    first = costs[0].delta
    return any(loss.delta is not first and loss.delta != first for loss in costs)


class Statement(NamedTuple):
    """A mechanism stated for the unit at `position`, and the context of its group sizes."""

    mechanism: Mechanism
    position: int
    relation: NeighbouringRelation
    context: GroupContext


def statements_for(
    mechanism: Mechanism,
    position: int,
    relation: NeighbouringRelation,
    restatements: Mapping[str, Mechanism],
    context: GroupContext,
) -> list[Statement]:
    """Return all statements about a mechanism; each is a valid bound without the others.

    A Poisson sample amplifies for the sampled unit, which is the stated one, and for groups of it.
    A restatement for another unit, and a bound for a part of a unit that follows because the
    mechanism is additive, hold only for the mechanism without sampling (theory 3.6).
    """
    names = [unit.name for unit in context.units]
    for name in restatements:
        if name not in names:
            raise InvalidValue("M018", f"`also` names unit `{name}`, which is not defined")
    restated = [
        Statement(restatement.without_sampling(), names.index(name), relation, context)
        for name, restatement in restatements.items()
    ]
    if not mechanism.is_sampled:
        return [Statement(mechanism, position, relation, context), *restated]
    whole = replace(context, additive=False)
    stated = [Statement(mechanism, position, relation, whole)]
    if context.rules >= CostRules.SECOND:
        stated += _implied_by_sample(mechanism, position, relation, whole)
    if context.additive:
        stated.append(Statement(mechanism.without_sampling(), position, relation, context))
    return [*stated, *restated]


def _implied_by_sample(
    mechanism: Mechanism, position: int, relation: NeighbouringRelation, context: GroupContext
) -> Iterator[Statement]:
    """Yield what a sampled Gaussian implies under other relations (theory 3.6).

    A sensitivity under `change` bounds that under `add-remove`, as each pair of neighbours of the
    second relation is one of the first. A sensitivity under `replace` does not.
    """
    ratio = mechanism.gaussian_ratio
    if ratio is None or relation is NeighbouringRelation.REPLACE:
        return
    if relation is NeighbouringRelation.CHANGE:
        yield Statement(mechanism, position, NeighbouringRelation.ADD_REMOVE, context)
    elif set(steps_from(context, position, relation)) == {1}:
        return  # a changed unit costs at least as much as an added one
    changed = ChangedSample(ratio, count=mechanism.run_count, sampling_rate=mechanism.sampling_rate)
    for implied in (NeighbouringRelation.CHANGE, NeighbouringRelation.REPLACE):
        yield Statement(changed, position, implied, context)


def _statement_costs(statement: Statement, certificates: Certificates) -> list[Loss]:
    """Return the cost for every unit that follows from one statement."""
    mechanism, position, relation, context = statement
    sizes = steps_from(context, position, relation)
    return cost_by_size(mechanism, sizes, relation, certificates, context.rules)


def _best(bounds: Iterable[Loss], certificates: Certificates) -> Loss:
    """Return the minimum of bounds on one loss, among those with the smallest δ-side."""
    useful = [loss for loss in bounds if any(amount is not None for amount in loss)]
    if not useful:
        return unbounded_loss(certificates)
    delta = min(loss.delta for loss in useful)
    return reduce(elementwise_min, (loss for loss in useful if loss.delta == delta))


def _make_monotone(costs: list[Loss], context: GroupContext) -> list[Loss]:
    """Raise the cost of a unit to the cost of every smaller unit.

    The choice of δ-sides, or sampling, may have put it below.
    """
    raised = list(costs)
    for larger, unit in enumerate(context.units):
        for smaller, steps in enumerate(steps_from(context, larger, unit.relation)):
            if steps == 1 and not is_at_most(costs[smaller], raised[larger]):
                raised[larger] = elementwise_max(raised[larger], costs[smaller])
    return raised


@lru_cache(maxsize=65_536)
def steps_from(
    context: GroupContext, position: int, relation: NeighbouringRelation
) -> tuple[int | None, ...]:
    """Return the number of steps from a statement to every unit under the relation of that unit.

    `position` is that of the stated unit. None: no path reaches the unit.
    """
    steps_to: dict[UnitRelation, int] = {(position, relation): 1}
    edges = tuple(_edges(context))
    changed = True
    while changed:  # shortest paths; a step is at least one, so there are no more rounds than nodes
        changed = False
        for source, target, steps in edges:
            reached = steps_to.get(source)
            if reached is not None and reached * steps < steps_to.get(target, reached * steps + 1):
                steps_to[target] = reached * steps
                changed = True
    return tuple(steps_to.get((number, unit.relation)) for number, unit in enumerate(context.units))


def _edges(context: GroupContext) -> Iterator[tuple[UnitRelation, UnitRelation, int]]:
    """Yield source, target, steps: neighbours at the target are so many steps at the source."""
    add_remove, change = NeighbouringRelation.ADD_REMOVE, NeighbouringRelation.CHANGE
    removal_size = add_remove_size if context.rules < CostRules.SECOND else tighter_add_remove_size
    for number, unit in enumerate(context.units):
        yield (number, change), (number, add_remove), 1
        yield (number, add_remove), (number, change), 2
        yield (number, add_remove), (number, NeighbouringRelation.REPLACE), 2
        for other, target in enumerate(context.units):
            same = unit.entity == target.entity
            if number == other or not (same or context.covers(unit.entity, target.entity)):
                continue
            k = group_size(unit.period, target.period, context.touched)
            if k is None:
                continue
            yield (number, change), (other, change), k
            whole = removal_size(unit.period, target.period, context.touched) if same else 2 * k
            removed = k if context.additive else whole
            if removed is not None:
                yield (number, add_remove), (other, add_remove), removed
