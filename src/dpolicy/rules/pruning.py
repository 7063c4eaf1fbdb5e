"""Pruning: find the rules that a kept rule implies, each with a kept witness (theory 1.5, A).

Pruning never changes a decision: the witness of a pruned rule has a wider scope, covers its unit,
and has a bound that is at least as tight in every certificate. The order of rules is a product. So
pruning propagates the tightest bound downwards, one factor after the other, as in a sum over a
product lattice. It never compares two rules.

Bounds are only partially ordered. `bound_chains` covers them with chains, tightest first, and
pruning makes one pass for each chain. A pass propagates one integer per cell: position in the
chain, then depth of the scope, then number of the rule. The minimum is the tightest bound above a
rule; it belongs to the rule with the widest scope that comes first in the text. No rule implies
that rule, so every witness is kept. `prune` verifies this at the end.
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

#: Bits of the rule number and of the depth in a pruning key; the chain position has the rest of 63.
_NUMBER_BITS, _HEIGHT_BITS = 23, 20
_NO_KEY = np.iinfo(np.int64).max

PruningKeys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FactorOrders:
    """Order of each factor: base scopes, units, and the settings of each extension."""

    scope_of_base: tuple[int, ...]
    scopes: Preorder
    unit_of_base: tuple[int, ...]
    units: Preorder
    settings: tuple[Preorder, ...]

    @property
    def factors(self) -> tuple[Preorder, ...]:
        """All orders, in the sequence of the axes of the rule product."""
        return (self.scopes, self.units, *self.settings)


@dataclass(frozen=True, slots=True, eq=False)
class PruningResult:
    """For every rule: whether it is kept, and its witness (itself if it is kept)."""

    kept: NDArray[np.bool_]
    implied_by: NDArray[np.int32]


def prune(rules: RuleProduct, orders: FactorOrders) -> PruningResult:
    """Find the rules that no other rule implies. Of equivalent rules, keep the first."""
    count = len(rules)
    witness = np.arange(count, dtype=np.int32)
    if count >= 1 << _NUMBER_BITS:
        raise InvariantBroken(f"{count} rules do not fit the pruning key")
    if count:
        cells, heights = _cells(rules, orders)
        shape = [len(order.above) for order in orders.factors]
        for chain in bound_chains(rules.bounds):
            best = _least_keys(rules, chain, cells, heights, shape, orders)
            _adopt_tighter(witness, best[cells], rules)
    kept = witness == np.arange(count, dtype=np.int32)
    if not kept[witness].all():
        raise InvariantBroken("the witness of a pruned rule was pruned")
    return PruningResult(kept, witness)


def bases_with_kept_rules(rules: RuleProduct, pruned: PruningResult) -> list[bool]:
    """Return, for every base rule, whether any of its rules is kept."""
    rows = pruned.kept.reshape(len(rules.bases), rules.width)
    return [bool(row.any()) for row in rows]


def bound_chains(bounds: Sequence[BudgetBound]) -> list[list[int]]:
    """Cover the bounds with few chains; in a chain each bound implies all bounds after it."""
    chains: list[list[int]] = []
    for number in sorted(range(len(bounds)), key=lambda n: _sort_key(bounds[n])):
        for chain in chains:
            if implies_bound(bounds[chain[-1]], bounds[number]):
                chain.append(number)
                break
        else:
            chains.append([number])
    return chains


def _sort_key(bound: BudgetBound) -> tuple[object, ...]:
    """Return a key that sorts a bound after the bounds that can imply it."""
    first = bound.clauses[0] if bound.clauses else ()
    certificates = tuple(c for c, _ in first)
    return (
        not first,
        certificates,
        tuple(threshold for _, threshold in first),
        bound.delta is None,
        bound.delta or 0,
        len(bound.clauses),
    )


def _cells(rules: RuleProduct, orders: FactorOrders) -> tuple[PruningKeys, PruningKeys]:
    """Return, for every rule, its cell in the product of classes and the depth of its scope."""
    cells = np.zeros(1, dtype=np.int64)
    heights = np.zeros(1, dtype=np.int64)
    for order in orders.settings:
        classes = np.array(order.classes, dtype=np.int64)
        depth = np.array([len(above) for above in order.above], dtype=np.int64)[classes]
        cells = (cells[:, None] * len(order.above) + classes).reshape(-1)
        heights = (heights[:, None] + depth).reshape(-1)
    scopes, units = orders.scopes, orders.units
    scope = np.array([scopes.classes[s] for s in orders.scope_of_base], dtype=np.int64)
    unit = np.array([units.classes[u] for u in orders.unit_of_base], dtype=np.int64)
    width = _cell_count(orders.settings)
    start = (scope * len(units.above) + unit) * width
    depth = np.array([len(above) for above in scopes.above], dtype=np.int64)[scope]
    depth += np.array([len(above) for above in units.above], dtype=np.int64)[unit]
    return (start[:, None] + cells).reshape(-1), (depth[:, None] + heights).reshape(-1)


def _cell_count(orders: Sequence[Preorder]) -> int:
    size = 1
    for order in orders:
        size *= len(order.above)
    return size


def _least_keys(
    rules: RuleProduct,
    chain: Sequence[int],
    cells: PruningKeys,
    heights: PruningKeys,
    shape: Sequence[int],
    orders: FactorOrders,
) -> PruningKeys:
    """Return, for every cell, the least key of this chain at or above the cell."""
    position_of_bound = np.full(len(rules.bounds), -1, dtype=np.int64)
    position_of_bound[list(chain)] = np.arange(len(chain))
    positions = position_of_bound[rules.bound_numbers]
    member = np.flatnonzero(positions >= 0)
    keys = (positions[member] << (_HEIGHT_BITS + _NUMBER_BITS)) | (heights[member] << _NUMBER_BITS)
    best = np.full(_cell_count(orders.factors), _NO_KEY, dtype=np.int64)
    np.minimum.at(best, cells[member], keys | member)
    for axis, order in enumerate(orders.factors):
        best = _propagate_down(best, shape, axis, order)
    return best


def _propagate_down(
    best: PruningKeys, shape: Sequence[int], axis: int, order: Preorder
) -> PruningKeys:
    """Lower the key of every class of one factor to the least key of the classes above it."""
    before = int(np.prod(shape[:axis], dtype=np.int64))
    cube = best.reshape(before, shape[axis], -1)
    lowered = cube.copy()
    for number, above in enumerate(order.above):
        for higher in above:
            np.minimum(lowered[:, number], cube[:, higher], out=lowered[:, number])
    return lowered.reshape(-1)


def _adopt_tighter(witness: NDArray[np.int32], keys: PruningKeys, rules: RuleProduct) -> None:
    """Replace witnesses, in place, by the rules that a chain offers where those are tighter."""
    numbers = rules.bound_numbers
    present = keys != _NO_KEY
    offered = np.where(present, keys & ((1 << _NUMBER_BITS) - 1), 0).astype(np.int32)
    pairs = numbers[offered].astype(np.int64) * len(rules.bounds) + numbers[witness]
    distinct, inverse = np.unique(np.where(present, pairs, -1), return_inverse=True)
    tighter = np.array([_replaces(int(pair), rules.bounds) for pair in distinct], dtype=bool)
    own = np.arange(len(witness), dtype=np.int32)
    equal = numbers[offered] == numbers[witness]
    better = tighter[inverse.reshape(-1)] & (~equal | (witness == own)) & present
    witness[better] = offered[better]


def _replaces(pair: int, bounds: Sequence[BudgetBound]) -> bool:
    """Return whether the offered bound equals the present one or is strictly tighter."""
    if pair < 0:
        return False
    offered, present = divmod(pair, len(bounds))
    if offered == present:
        return True
    return implies_bound(bounds[offered], bounds[present]) and not implies_bound(
        bounds[present], bounds[offered]
    )
