"""What a release states for one unit → the cost for every unit: the closure of theory 0.1.

Nodes are (unit, relation). An edge says: neighbours at this node are at most n steps of neighbours
at that one. Steps multiply along a path, so the cost at a node is the mechanism's for a group of as
many units as the shortest path has steps, and the minimum over all statements:

    AR(u) ≤ CH(u)               CH(u), RP(u) ≤ 2 steps of AR(u)
    CH(v) ≤ k steps of CH(u)    AR(v) ≤ k steps of AR(u), 2 for a unit that is removed in part

with k the touch-aware group size (4.3). A mechanism flagged as additive (5.3) may lose a part of a
unit in one step. What no path reaches is unknown, hence infinite.

δ-sides. A certificate is a bound given the δ-side of its own derivation, so bounds are mixed only
where the δ-sides are equal; of the others the smallest δ-side wins. Since that choice may differ
from unit to unit, a cost that then is above that of a larger unit raises the larger one: costs
stay monotone, and raising one is always sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from dpolicy.errors import InvalidValue
from dpolicy.privacy.cost import cost, is_sampled, without_sampling
from dpolicy.privacy.loss import (
    Certificates,
    Loss,
    elementwise_max,
    elementwise_min,
    is_at_most,
    unbounded_loss,
)
from dpolicy.privacy.mechanisms.registry import Mechanism
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    TouchedDays,
    add_remove_size,
    group_size,
)

#: Whether the first entity covers the second: each of the second belongs to one of the first.
Covers = Callable[[str, str], bool]

#: The position of a unit, and a relation.
UnitRelation = tuple[int, NeighbouringRelation]


@dataclass(frozen=True, slots=True)
class GroupContext:
    """All that group sizes depend on besides the statement."""

    units: tuple[PrivacyUnit, ...]
    additive: bool
    touched: TouchedDays | None
    covers: Covers


def no_covers(larger: str, smaller: str) -> bool:
    """Every entity stands alone."""
    return False


def cost_by_unit(
    mechanism: Mechanism,
    stated_unit: PrivacyUnit,
    relation: NeighbouringRelation,
    *,
    units: Sequence[PrivacyUnit],
    certificates: Certificates,
    additive: bool = False,
    also: Mapping[str, Mechanism] | None = None,
    touched: TouchedDays | None = None,
    covers: Covers = no_covers,
) -> dict[str, Loss]:
    """The cost for every unit under the unit's own relation, by name.

    `also` holds the same mechanism restated for other units, under the same relation.
    """
    known = tuple(units) if stated_unit in units else (*units, stated_unit)
    setting = GroupContext(known, additive, touched, covers)
    statements = statements_for(mechanism, known.index(stated_unit), also or {}, setting)
    rows = [
        _costs(under, position, relation, said, certificates)
        for said, position, under in statements
    ]
    costs = rows[0]
    if len(rows) > 1:
        costs = [_best(row, certificates) for row in zip(*rows, strict=True)]
    if len({loss.delta for loss in costs}) > 1 or (additive and is_sampled(mechanism)):
        costs = _raised(costs, setting)
    return {unit.name: loss for unit, loss in zip(units, costs, strict=False)}


#: A mechanism, the position of the unit it is stated for, and what its steps may rest on.
Statement = tuple[Mechanism, int, GroupContext]


def statements_for(
    mechanism: Mechanism, position: int, also: Mapping[str, Mechanism], setting: GroupContext
) -> list[Statement]:
    """All that is stated of a mechanism, as bounds that each hold on their own.

    A Poisson sample amplifies for the unit that is sampled, which is the one stated, and for groups
    of it. What is restated for another unit, and what follows for a part of a unit because the
    mechanism is additive, holds only of the mechanism without its sample (theory 3.6).
    """
    names = [unit.name for unit in setting.units]
    for name in also:
        if name not in names:
            raise InvalidValue("M018", f"`also` names the unit `{name}`, which is not defined")
    restated: list[Statement] = [
        (without_sampling(said), names.index(name), setting) for name, said in also.items()
    ]
    if not is_sampled(mechanism):
        return [(mechanism, position, setting), *restated]
    plain = replace(setting, additive=False)
    first: list[Statement] = [(mechanism, position, plain)]
    if setting.additive:
        first.append((without_sampling(mechanism), position, setting))
    return [*first, *restated]


def _costs(
    setting: GroupContext,
    position: int,
    relation: NeighbouringRelation,
    mechanism: Mechanism,
    certificates: Certificates,
) -> list[Loss]:
    """What one statement gives for every unit."""
    steps = steps_from(setting, position, relation)
    return [
        unbounded_loss(certificates) if k is None else cost(mechanism, k, relation, certificates)
        for k in steps
    ]


def _best(bounds: Iterable[Loss], certificates: Certificates) -> Loss:
    """The minimum of bounds on one loss, among those with the smallest δ-side."""
    useful = [loss for loss in bounds if any(amount is not None for amount in loss)]
    if not useful:
        return unbounded_loss(certificates)
    delta = min(loss.delta for loss in useful)
    return reduce(elementwise_min, (loss for loss in useful if loss.delta == delta))


def _raised(costs: list[Loss], setting: GroupContext) -> list[Loss]:
    """Costs made monotone again where the choice of δ-sides, or a sample, broke it."""
    raised = list(costs)
    for larger, unit in enumerate(setting.units):
        for smaller, steps in enumerate(steps_from(setting, larger, unit.relation)):
            if steps == 1 and not is_at_most(costs[smaller], raised[larger]):
                raised[larger] = elementwise_max(raised[larger], costs[smaller])
    return raised


@lru_cache(maxsize=65_536)
def steps_from(
    setting: GroupContext, position: int, relation: NeighbouringRelation
) -> tuple[int | None, ...]:
    """For every unit under its own relation, the steps from a statement; None if unknown."""
    found: dict[UnitRelation, int] = {(position, relation): 1}
    edges = tuple(_edges(setting))
    changed = True
    while changed:  # shortest paths; no more rounds than nodes, as steps are at least one
        changed = False
        for source, target, steps in edges:
            reached = found.get(source)
            if reached is not None and reached * steps < found.get(target, reached * steps + 1):
                found[target] = reached * steps
                changed = True
    return tuple(found.get((place, unit.relation)) for place, unit in enumerate(setting.units))


def _edges(setting: GroupContext) -> Iterator[tuple[UnitRelation, UnitRelation, int]]:
    """Source, target, steps: neighbours at the target are so many steps at the source."""
    for place, unit in enumerate(setting.units):
        yield (place, NeighbouringRelation.CHANGE), (place, NeighbouringRelation.ADD_REMOVE), 1
        yield (place, NeighbouringRelation.ADD_REMOVE), (place, NeighbouringRelation.CHANGE), 2
        yield (place, NeighbouringRelation.ADD_REMOVE), (place, NeighbouringRelation.REPLACE), 2
        for other, target in enumerate(setting.units):
            same = unit.entity == target.entity
            if place == other or not (same or setting.covers(unit.entity, target.entity)):
                continue
            k = group_size(unit.period, target.period, setting.touched)
            if k is None:
                continue
            yield (place, NeighbouringRelation.CHANGE), (other, NeighbouringRelation.CHANGE), k
            whole = add_remove_size(unit.period, target.period, setting.touched) if same else 2 * k
            removed = k if setting.additive else whole
            if removed is not None:
                yield (
                    (place, NeighbouringRelation.ADD_REMOVE),
                    (other, NeighbouringRelation.ADD_REMOVE),
                    removed,
                )
