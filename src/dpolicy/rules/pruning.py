"""Rules → the kept ones, and for every other rule a kept one that implies it (theory 1.5, A).

Dropping a rule never changes a decision: its witness has a wider scope, covers its unit, and a
bound that binds at every certificate. The order of rules is a product, so the tightest bounds above
each rule are found by carrying them down one factor after the other, as one sums over a product
lattice; no two rules are ever compared.

Bounds are ordered only partly. They are covered by chains of tighter and looser ones; along a chain
the tightest says all, so one pass a chain carries every minimal bound. What is carried is one
integer: the place in the chain, then the depth of the scope, then the rule's number. Its minimum
is the tightest bound above a rule, held by the rule of widest scope, first in the text: such a rule
is itself implied by no other, so every witness is kept. A last pass checks exactly that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.errors import InvariantBroken
from dpolicy.privacy.thresholds import BudgetBound, implies_bound
from dpolicy.rules.rule import RuleProduct
from dpolicy.rules.scope_order import Preorder

#: How many bits of the carried integer each part has; 63 in all.
_NUMBER_BITS, _HEIGHT_BITS = 23, 20
_NOTHING = np.iinfo(np.int64).max

PruningKeys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FactorOrders:
    """The order of each factor: of base scopes, of units, and of the settings of each extension."""

    scope_of: tuple[int, ...]
    scopes: Preorder
    unit_of: tuple[int, ...]
    units: Preorder
    settings: tuple[Preorder, ...]

    @property
    def factors(self) -> tuple[Preorder, ...]:
        """All orders, in the sequence of the axes of the product."""
        return (self.scopes, self.units, *self.settings)


@dataclass(frozen=True, slots=True, eq=False)
class PruningResult:
    """For every rule whether it is kept, and the kept rule that implies it (itself, if kept)."""

    kept: NDArray[np.bool_]
    implied_by: NDArray[np.int32]


def prune(rules: RuleProduct, arrangement: FactorOrders) -> PruningResult:
    """Find the rules that no other rule implies; of equal ones, the first."""
    count = len(rules)
    witness = np.arange(count, dtype=np.int32)
    if count >= 1 << _NUMBER_BITS:
        raise InvariantBroken(f"{count} rules do not fit the pruning key")
    if count:
        cells, heights = _cells(rules, arrangement)
        shape = [len(order.above) for order in arrangement.factors]
        for chain in bound_chains(rules.bounds):
            best = _carried(rules, chain, cells, heights, shape, arrangement)
            _adopt(witness, best[cells], chain, rules)
    kept = witness == np.arange(count, dtype=np.int32)
    if not kept[witness].all():
        raise InvariantBroken("a pruned rule is implied by a rule that was pruned too")
    return PruningResult(kept, witness)


def bases_with_kept_rules(rules: RuleProduct, pruned: PruningResult) -> list[bool]:
    """For every base whether any of its rules is kept."""
    rows = pruned.kept.reshape(len(rules.bases), rules.width)
    return [bool(row.any()) for row in rows]


def bound_chains(bounds: Sequence[BudgetBound]) -> list[list[int]]:
    """Bounds in few chains, tightest first: along a chain each binds all that follow."""
    found: list[list[int]] = []
    for number in sorted(range(len(bounds)), key=lambda n: _sort_key(bounds[n])):
        for chain in found:
            if implies_bound(bounds[chain[-1]], bounds[number]):
                chain.append(number)
                break
        else:
            found.append([number])
    return found


def _sort_key(bound: BudgetBound) -> tuple[object, ...]:
    """Puts a bound after those that could bind it: fewer and smaller thresholds first."""
    first = bound.clauses[0] if bound.clauses else ()
    certificates = tuple(c for c, _ in first)
    return (
        not first,
        certificates,
        tuple(most for _, most in first),
        bound.delta is None,
        bound.delta or 0,
        len(bound.clauses),
    )


def _cells(rules: RuleProduct, arrangement: FactorOrders) -> tuple[PruningKeys, PruningKeys]:
    """For every rule its cell in the product of classes, and how far its scope is from the top."""
    cells = np.zeros(1, dtype=np.int64)
    heights = np.zeros(1, dtype=np.int64)
    for order in arrangement.settings:
        classes = np.array(order.classes, dtype=np.int64)
        depth = np.array([len(above) for above in order.above], dtype=np.int64)[classes]
        cells = (cells[:, None] * len(order.above) + classes).reshape(-1)
        heights = (heights[:, None] + depth).reshape(-1)
    scopes, units = arrangement.scopes, arrangement.units
    scope = np.array([scopes.classes[s] for s in arrangement.scope_of], dtype=np.int64)
    unit = np.array([units.classes[u] for u in arrangement.unit_of], dtype=np.int64)
    width = _size(arrangement.settings)
    start = (scope * len(units.above) + unit) * width
    depth = np.array([len(above) for above in scopes.above], dtype=np.int64)[scope]
    depth += np.array([len(above) for above in units.above], dtype=np.int64)[unit]
    every = start[:, None] + cells, depth[:, None] + heights
    return every[0].reshape(-1), every[1].reshape(-1)


def _size(orders: Sequence[Preorder]) -> int:
    size = 1
    for order in orders:
        size *= len(order.above)
    return size


def _carried(
    rules: RuleProduct,
    chain: Sequence[int],
    cells: PruningKeys,
    heights: PruningKeys,
    shape: Sequence[int],
    arrangement: FactorOrders,
) -> PruningKeys:
    """For every cell the least key of this chain at or above it."""
    place = np.full(len(rules.bounds), -1, dtype=np.int64)
    place[list(chain)] = np.arange(len(chain))
    places = place[rules.bound_numbers]
    member = np.flatnonzero(places >= 0)
    keys = (places[member] << (_HEIGHT_BITS + _NUMBER_BITS)) | (heights[member] << _NUMBER_BITS)
    best = np.full(_size(arrangement.factors), _NOTHING, dtype=np.int64)
    np.minimum.at(best, cells[member], keys | member)
    for axis, order in enumerate(arrangement.factors):
        best = _down(best, shape, axis, order)
    return best


def _down(best: PruningKeys, shape: Sequence[int], axis: int, order: Preorder) -> PruningKeys:
    """Give every class of one factor the least key of the classes above it."""
    before = int(np.prod(shape[:axis], dtype=np.int64))
    cube = best.reshape(before, shape[axis], -1)
    lowered = cube.copy()
    for number, above in enumerate(order.above):
        for higher in above:
            np.minimum(lowered[:, number], cube[:, higher], out=lowered[:, number])
    return lowered.reshape(-1)


def _adopt(
    witness: NDArray[np.int32], keys: PruningKeys, chain: Sequence[int], rules: RuleProduct
) -> None:
    """Take the witness that a chain offers wherever it is tighter than the one there is."""
    numbers = rules.bound_numbers
    present = keys != _NOTHING
    offered = np.where(present, keys & ((1 << _NUMBER_BITS) - 1), 0).astype(np.int32)
    pairs = numbers[offered].astype(np.int64) * len(rules.bounds) + numbers[witness]
    distinct, inverse = np.unique(np.where(present, pairs, -1), return_inverse=True)
    tighter = np.array([_replaces(int(pair), rules.bounds) for pair in distinct], dtype=bool)
    own = np.arange(len(witness), dtype=np.int32)
    equal = numbers[offered] == numbers[witness]
    better = tighter[inverse.reshape(-1)] & (~equal | (witness == own)) & present
    witness[better] = offered[better]


def _replaces(pair: int, bounds: Sequence[BudgetBound]) -> bool:
    """Whether the offered bound is the one that is there, or strictly tighter."""
    if pair < 0:
        return False
    offered, present = divmod(pair, len(bounds))
    if offered == present:
        return True
    return implies_bound(bounds[offered], bounds[present]) and not implies_bound(
        bounds[present], bounds[offered]
    )
