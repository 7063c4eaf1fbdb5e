"""A rule → the rules next to it in the Hasse diagram, found without drawing the others.

Rules are a product, and so is their order: the next wider rule differs in one factor only. Those
that differ in one factor and are wider or narrower are few; the covers among them are the answer.
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

#: A drawing with more boxes than this on either side of a rule is hard to read.
MAX_RULES_DRAWN = 6
#: How thick the border of the rule itself is.
_BORDER = "4.5"


@dataclass(frozen=True, slots=True)
class RuleNeighbours:
    """The numbers of the next wider and the next narrower rules, and of equally wide ones."""

    number: int
    wider: tuple[int, ...]
    narrower: tuple[int, ...]
    equal: tuple[int, ...]

    def drawn(self) -> tuple[int, ...]:
        """The rules of a drawing that can be read."""
        near = (self.wider, self.narrower, self.equal)
        return (self.number, *(n for some in near for n in some[:MAX_RULES_DRAWN]))


def rule_neighbours(section: CompiledSection, number: int) -> RuleNeighbours:
    """The rules next to one."""
    above, below, equal = _beside(section, number)
    near = {number, *above[: MAX_NODES // 3], *below[: MAX_NODES // 3]}
    edges = hasse_edges(section, near)
    own = _first_alike(number, equal, near)
    return RuleNeighbours(
        number,
        tuple(sorted(b for a, b in edges if a == own and b in set(above))),
        tuple(sorted(a for a, b in edges if b == own and a in set(below))),
        tuple(equal),
    )


def neighbourhood_svg(section: CompiledSection, number: int) -> str:
    """The drawing of a rule, with a thick border, and of what is next to it."""
    rule = section.rules[number]
    own = re.escape(escape(f"{rule.name}: {rule.unit},"))
    drawn = hasse_svg(section, rule_neighbours(section, number).drawn())
    border = rf'(<title>{own}[^<]*</title><rect [^>]*stroke-width=")[^"]*'
    return re.sub(border, rf"\g<1>{_BORDER}", drawn, count=1)


def _first_alike(number: int, equal: list[int], near: set[int]) -> int:
    """Rules of one scope and unit are one node, named by its first rule."""
    return min([number, *(n for n in equal if n in near)])


def _beside(section: CompiledSection, number: int) -> tuple[list[int], list[int], list[int]]:
    """The rules that are wider, narrower or equal, and differ in one factor at most."""
    wider = np.zeros(len(section.rules), np.int8)
    narrower, others = wider.copy(), wider.copy()
    for order, class_of in _factors(section):
        above, below = _tables(order, int(class_of[number]))
        wider += above[class_of]
        narrower += below[class_of]
        others += class_of != class_of[number]
    one = others == 1
    found = (one & (wider == 1), one & (narrower == 1), others == 0)
    up, down, same = (np.flatnonzero(mask).tolist() for mask in found)
    return up, down, [n for n in same if n != number]


def _factors(section: CompiledSection) -> list[tuple[Preorder, NDArray[np.intp]]]:
    """Each factor with the class of every rule in it."""
    arrangement, width = section.factor_orders, section.rules.width
    base, combination = np.divmod(np.arange(len(section.rules)), width)
    found = []
    for order in reversed(arrangement.settings):
        combination, position = np.divmod(combination, len(order.classes))
        found.append((order, np.array(order.classes, np.intp)[position]))
    for order, place in (
        (arrangement.scopes, arrangement.scope_of_base),
        (arrangement.units, arrangement.unit_of_base),
    ):
        found.append((order, np.array(order.classes, np.intp)[np.array(place, np.intp)[base]]))
    return found


def _tables(order: Preorder, own: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """By class: whether it lies above one class, and whether below."""
    above, below = np.zeros(len(order.above), np.int8), np.zeros(len(order.above), np.int8)
    above[list(order.above[own])] = 1
    for smaller, larger in enumerate(order.above):
        below[smaller] = own in larger
    return above, below
