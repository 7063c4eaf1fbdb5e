"""Squared sensitivity of tree aggregation for a unit that takes part in several steps (theory 3.8).

A node of the tree is released once, when its last step is complete, so n steps have the complete
dyadic nodes of n leaves. A unit that takes part in p steps, at most 1 in each, moves a node by at
most its number of participations below the node. The sum of the squares of these numbers, for the
worst choice of steps, is a dynamic program over the levels (docs/theory/tighter-costs.md, 5).
"""

from __future__ import annotations

from functools import lru_cache

#: Largest number of participations for the dynamic program; above it a closed form is used.
MAX_PARTICIPATIONS = 64


def squared_sensitivity(steps: int, participations: int) -> int:
    """Return an upper bound of Σ (participations below a node)²; exact up to the limit."""
    p = min(participations, steps)
    if p > MAX_PARTICIPATIONS:
        # The squares of a level are at most its largest number times the sum of its numbers.
        return p * sum(min(p, 1 << level) for level in range(steps.bit_length()))
    return _squares_of_forest(steps, p)


@lru_cache(maxsize=1024)
def _squares_of_forest(steps: int, p: int) -> int:
    """Return the largest sum for p participations in the complete trees of the steps."""
    tree, forest = [0, 1], [0]
    for level in range(steps.bit_length()):
        if steps >> level & 1:
            forest = _best_split(forest, tree, p)
        tree = [n * n + best for n, best in enumerate(_best_split(tree, tree, p))]
    return forest[p]


def _best_split(first: list[int], second: list[int], p: int) -> list[int]:
    """Return the largest sum of two entries, for each total of their indices up to p."""
    top = min(p, len(first) + len(second) - 2)
    return [
        max(
            first[n] + second[total - n]
            for n in range(max(0, total - len(second) + 1), min(total, len(first) - 1) + 1)
        )
        for total in range(top + 1)
    ]
