"""Neighbours of a rule in the Hasse diagram, computed without the diagram of all rules.

Rules are a product of factors, and so is their order: a rule and the next wider rule differ in one
factor only. Few rules differ in one factor and are wider or narrower; the neighbours are the covers
among them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from dpolicy.rules.compiler import CompiledSection
from dpolicy.rules.hasse.diagram import MAX_NODES, hasse_edges, hasse_svg
from dpolicy.rules.scope_order import Preorder

#: Largest number of wider, narrower or equal rules in a diagram; more are hard to read.
MAX_RULES_DRAWN = 6
#: Border width of the rule itself in the diagram.
_BORDER = "4.5"


@dataclass(frozen=True, slots=True)
class RuleNeighbours:
    """Numbers of the next wider and next narrower rules, and of rules of equal scope and unit."""

    number: int
    wider: tuple[int, ...]
    narrower: tuple[int, ...]
    equal: tuple[int, ...]

    def rules_to_draw(self) -> tuple[int, ...]:
        """Return the rule and at most `MAX_RULES_DRAWN` neighbours of each kind."""
        return (
            self.number,
            *self.wider[:MAX_RULES_DRAWN],
            *self.narrower[:MAX_RULES_DRAWN],
            *self.equal[:MAX_RULES_DRAWN],
        )


def find_neighbours(section: CompiledSection, number: int) -> RuleNeighbours:
    """Find the neighbours of rule `number`."""
    above, below, equal = _comparable_rules(section, number)
    nearby = {number, *above[: MAX_NODES // 3], *below[: MAX_NODES // 3]}
    edges = hasse_edges(section, nearby)
    node = _node_number(number, equal, nearby)
    return RuleNeighbours(
        number,
        tuple(sorted(upper for lower, upper in edges if lower == node and upper in set(above))),
        tuple(sorted(lower for lower, upper in edges if upper == node and lower in set(below))),
        tuple(equal),
    )


def neighbourhood_svg(section: CompiledSection, number: int) -> str:
    """Draw the rule, with a thick border, and its neighbours."""
    rule = section.rules[number]
    title = re.escape(escape(f"{rule.name}: {rule.unit},"))
    svg = hasse_svg(section, find_neighbours(section, number).rules_to_draw())
    border = rf'(<title>{title}[^<]*</title><rect [^>]*stroke-width=")[^"]*'
    return re.sub(border, rf"\g<1>{_BORDER}", svg, count=1)


def _node_number(number: int, equal: list[int], nearby: set[int]) -> int:
    """Return the number of the node that has the rule: the first of its equal rules."""
    return min([number, *(n for n in equal if n in nearby)])


def _comparable_rules(
    section: CompiledSection, number: int
) -> tuple[list[int], list[int], list[int]]:
    """Return the wider and the narrower rules that differ in one factor, and the equal rules."""
    wider = np.zeros(len(section.rules), np.int8)
    narrower, different = wider.copy(), wider.copy()
    for order, classes in _factors(section):
        above, below = _comparable_classes(order, int(classes[number]))
        wider += above[classes]
        narrower += below[classes]
        different += classes != classes[number]
    one_factor = different == 1
    above_rules = np.flatnonzero(one_factor & (wider == 1)).tolist()
    below_rules = np.flatnonzero(one_factor & (narrower == 1)).tolist()
    equal_rules = np.flatnonzero(different == 0).tolist()
    return above_rules, below_rules, [n for n in equal_rules if n != number]


def _factors(section: CompiledSection) -> list[tuple[Preorder, NDArray[np.intp]]]:
    """Return the order of each factor, and the class of every rule in it."""
    orders, width = section.factor_orders, section.rules.width
    base, combination = np.divmod(np.arange(len(section.rules)), width)
    factors = []
    for order in reversed(orders.settings):
        combination, position = np.divmod(combination, len(order.classes))
        factors.append((order, np.array(order.classes, np.intp)[position]))
    for order, positions in (
        (orders.scopes, orders.scope_of_base),
        (orders.units, orders.unit_of_base),
    ):
        position = np.array(positions, np.intp)[base]
        factors.append((order, np.array(order.classes, np.intp)[position]))
    return factors


def _comparable_classes(
    order: Preorder, class_number: int
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return for each class whether it is above and whether it is below one class, as 0 or 1."""
    above, below = np.zeros(len(order.above), np.int8), np.zeros(len(order.above), np.int8)
    above[list(order.above[class_number])] = 1
    for smaller, larger in enumerate(order.above):
        below[smaller] = class_number in larger
    return above, below
