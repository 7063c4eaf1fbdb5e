"""Hasse diagram of the rules of a section (paper, figure `hasse`).

Wide scopes are at the top; a line connects a rule with the next wider rules. Pruned rules are grey
and dashed, and the path from a pruned rule to its witness is bold.

The order of rules is a preorder: two rules can have equivalent scopes and the same unit. The
diagram draws such rules as one node, several boxes in one frame. A chain by number would be wrong,
because the witness of a rule with an equivalent scope can come earlier or later. An edge names each
node by its first rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import format_budget
from dpolicy.rules.compiler import CompiledSection
from dpolicy.rules.hasse.svg import RuleBox, draw_svg
from dpolicy.rules.scope_order import Preorder

#: Largest readable diagram: twenty by twenty boxes.
MAX_NODES = 400

DiagramNode = tuple[int, ...]


def select_rules(section: CompiledSection, unit: str | None, policy: str | None) -> list[int]:
    """Return the numbers of the rules of one unit and one base policy; None selects all."""
    width = section.rules.width
    return [
        base * width + combination
        for base, rule in enumerate(section.rules.bases)
        if unit in (None, rule.unit) and policy in (None, rule.policy)
        for combination in range(width)
    ]


def diagram_nodes(section: CompiledSection, numbers: Collection[int]) -> list[DiagramNode]:
    """Group rules into nodes of equivalent scope and unit, ordered by number.

    Raise `InvalidValue` if there are more than `MAX_NODES` rules.
    """
    return list(_rules_by_cell(section, numbers).values())


def hasse_edges(section: CompiledSection, numbers: Collection[int]) -> list[tuple[int, int]]:
    """Return the edges (smaller, larger): the transitive reduction of the order of these rules."""
    members = _rules_by_cell(section, numbers)
    first = [node[0] for node in members.values()]
    edges = reduce_order(_masks_above(section, list(members)))
    return [(first[smaller], first[larger]) for smaller, larger in edges]


def reduce_order(up: Sequence[int]) -> list[tuple[int, int]]:
    """Return the transitive reduction of a strict order, as edges (smaller, larger).

    `up` has, for every position, the mask of the positions above it.
    """
    edges = []
    for position, mask in enumerate(up):
        beyond = 0
        for wider in _bits(mask):
            beyond |= up[wider]
        edges += [(position, wider) for wider in _bits(mask & ~beyond)]
    return edges


def _rules_by_cell(
    section: CompiledSection, numbers: Collection[int]
) -> dict[DiagramNode, DiagramNode]:
    """Group rules by their cell in the product of classes."""
    drawn = sorted(set(numbers))
    if len(drawn) > MAX_NODES:
        raise InvalidValue(
            "P047",
            f"{len(drawn)} rules are too many to draw; the limit is {MAX_NODES}; "
            "select one unit with `--unit` or one base policy with `--policy`, or draw groups "
            "(without `--flat` and `--all`)",
        )
    cells: dict[DiagramNode, DiagramNode] = {}
    for number in drawn:
        cell = _cell(section, number)
        cells[cell] = (*cells.get(cell, ()), number)
    return cells


def _cell(section: CompiledSection, number: int) -> DiagramNode:
    """Return the class of a rule in every factor."""
    orders = section.factor_orders
    base, combination = divmod(number, section.rules.width)
    settings = []
    for order in reversed(orders.settings):
        combination, position = divmod(combination, len(order.classes))
        settings.append(order.classes[position])
    scope = orders.scopes.classes[orders.scope_of_base[base]]
    unit = orders.units.classes[orders.unit_of_base[base]]
    return (scope, unit, *reversed(settings))


def _masks_above(section: CompiledSection, cells: Sequence[DiagramNode]) -> list[int]:
    """Return, for every cell, the mask of the cells strictly above it in the product order."""
    up = [~(1 << position) & ((1 << len(cells)) - 1) for position in range(len(cells))]
    for factor, order in enumerate(section.factor_orders.factors):
        wider = masks_in_factor(order, [cell[factor] for cell in cells])
        up = [mask & wider[cell[factor]] for mask, cell in zip(up, cells, strict=True)]
    return up


def masks_in_factor(order: Preorder, classes: Sequence[int]) -> dict[int, int]:
    """Return, for every class, the mask of the positions with this class or a class above it."""
    positions: dict[int, int] = {}
    for position, number in enumerate(classes):
        positions[number] = positions.get(number, 0) | 1 << position
    masks = dict(positions)
    for number in masks:
        for higher in order.above[number]:
            masks[number] |= positions.get(higher, 0)
    return masks


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def implication_edges(section: CompiledSection, numbers: Collection[int]) -> set[tuple[int, int]]:
    """Return the edges on the paths from pruned rules to their witnesses, if both are drawn.

    The paths to one witness form a tree of shortest paths, so that few edges are bold.
    """
    first = {number: node[0] for node in diagram_nodes(section, numbers) for number in node}
    below: dict[int, list[int]] = {}
    for smaller, larger in hasse_edges(section, numbers):
        below.setdefault(larger, []).append(smaller)
    implied: dict[int, list[int]] = {}
    for number in sorted(first):
        witness = int(section.pruning.implied_by[number])
        if witness in first:
            implied.setdefault(first[witness], []).append(first[number])
    path = set()
    for top, starts in implied.items():
        towards = _paths_to(top, below)
        for step in starts:
            while step != top:
                path.add((step, towards[step]))
                step = towards[step]
    return path


def _paths_to(top: int, below: dict[int, list[int]]) -> dict[int, int]:
    """Return, for every node below `top`, the next node on a shortest path to `top`."""
    towards = {top: top}
    queue = deque([top])
    while queue:
        node = queue.popleft()
        for lower in below.get(node, ()):
            if lower not in towards:
                towards[lower] = node
                queue.append(lower)
    return towards


def hasse_svg(section: CompiledSection, numbers: Collection[int]) -> str:
    """Draw the Hasse diagram of these rules as one self-contained SVG."""
    drawn = frozenset(numbers)
    groups = diagram_nodes(section, drawn)
    position = {node[0]: place for place, node in enumerate(groups)}
    return draw_svg(
        _heading(section, drawn),
        [[_rule_box(section, number, drawn) for number in node] for node in groups],
        [(position[a], position[b]) for a, b in hasse_edges(section, drawn)],
        {(position[a], position[b]) for a, b in implication_edges(section, drawn)},
    )


def _heading(section: CompiledSection, drawn: frozenset[int]) -> str:
    kept = sum(bool(section.pruning.kept[number]) for number in drawn)
    kind = "Per-release rules" if section.rules.each_release else "Cumulative rules"
    total = len(section.rules)
    part = f" ({len(drawn)} of {total} rules)" if len(drawn) < total else ""
    return f"{kind}: {kept} kept, {len(drawn) - kept} pruned{part}"


def _rule_box(section: CompiledSection, number: int, drawn: frozenset[int]) -> RuleBox:
    """Return the box of a rule: name, unit, budget and witness."""
    rule = section.rules[number]
    witness = section.implied_by(rule)
    implied_by = None
    if witness is not None:
        unit = f" for {witness.unit}" if witness.unit != rule.unit else ""
        absent = "" if witness.number in drawn else " (not drawn)"
        implied_by = f"{witness.name}{unit}{absent}"
    return RuleBox(rule.name, (rule.unit, *format_budget(rule.budget).split("  ")), implied_by)
