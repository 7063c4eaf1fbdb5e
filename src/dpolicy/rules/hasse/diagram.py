"""Rules of a section → their Hasse diagram as a picture (paper, figure `hasse`).

Wide scopes stand on top, a line leads from a rule to the next wider ones. A pruned rule is grey and
dashed, and the way from it to the rule that implies it is bold.

The order of rules is a preorder: two rules can have equivalent scopes and the same unit. They are
one node here, drawn as several boxes in one frame. (A chain by number would be wrong: the rule that
implies another of equal scope may be the earlier or the later one.) An edge between nodes names
each by its first rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import format_budget
from dpolicy.rules.compiler import CompiledSection
from dpolicy.rules.hasse.svg import RuleBox, draw_svg
from dpolicy.rules.scope_order import Preorder

#: A square of twenty by twenty boxes; nobody follows lines in more.
MAX_NODES = 400

DiagramNode = tuple[int, ...]


def select_rules(section: CompiledSection, unit: str | None, policy: str | None) -> list[int]:
    """The numbers of the rules of one unit and of one base policy; None takes all."""
    width = section.rules.width
    return [
        base * width + combination
        for base, of in enumerate(section.rules.bases)
        if unit in (None, of.unit) and policy in (None, of.policy)
        for combination in range(width)
    ]


def diagram_nodes(section: CompiledSection, numbers: Collection[int]) -> list[DiagramNode]:
    """The rules by node: those of equivalent scope and unit together, in the order of numbers.

    Raises `InvalidValue` if there are more than anybody can read.
    """
    return list(_members(section, numbers).values())


def hasse_edges(section: CompiledSection, numbers: Collection[int]) -> list[tuple[int, int]]:
    """The edges (smaller, larger) of the Hasse diagram of these rules.

    Their transitive closure is the order; none of them follows from the others.
    """
    members = _members(section, numbers)
    first = [node[0] for node in members.values()]
    up = _masks_above(section, list(members))
    edges = []
    for position, mask in enumerate(up):
        beyond = 0
        for wider in _bits(mask):
            beyond |= up[wider]
        edges += [(first[position], first[wider]) for wider in _bits(mask & ~beyond)]
    return edges


def _members(section: CompiledSection, numbers: Collection[int]) -> dict[DiagramNode, DiagramNode]:
    """The rules of each cell of the product of classes, for those cells that have any."""
    drawn = sorted(set(numbers))
    if len(drawn) > MAX_NODES:
        raise InvalidValue(
            "P047",
            f"{len(drawn)} rules are too many to draw, the most is {MAX_NODES}: "
            "choose one unit with `--unit` or one base policy with `--policy`",
        )
    found: dict[DiagramNode, DiagramNode] = {}
    for number in drawn:
        cell = _cell(section, number)
        found[cell] = (*found.get(cell, ()), number)
    return found


def _cell(section: CompiledSection, number: int) -> DiagramNode:
    """The class of a rule in every factor."""
    arrangement = section.factor_orders
    base, combination = divmod(number, section.rules.width)
    settings = []
    for order in reversed(arrangement.settings):
        combination, position = divmod(combination, len(order.classes))
        settings.append(order.classes[position])
    scope = arrangement.scopes.classes[arrangement.scope_of[base]]
    unit = arrangement.units.classes[arrangement.unit_of[base]]
    return (scope, unit, *reversed(settings))


def _masks_above(section: CompiledSection, cells: Sequence[DiagramNode]) -> list[int]:
    """For every cell the bit mask of those strictly above it: wider or equal in every factor."""
    up = [~(1 << position) & ((1 << len(cells)) - 1) for position in range(len(cells))]
    for factor, order in enumerate(section.factor_orders.factors):
        wider = _masks_of_factor(order, [cell[factor] for cell in cells])
        up = [mask & wider[cell[factor]] for mask, cell in zip(up, cells, strict=True)]
    return up


def _masks_of_factor(order: Preorder, classes: Sequence[int]) -> dict[int, int]:
    """For every class that occurs, the mask of the positions that hold it or one above it."""
    holding: dict[int, int] = {}
    for position, number in enumerate(classes):
        holding[number] = holding.get(number, 0) | 1 << position
    masks = dict(holding)
    for number in masks:
        for higher in order.above[number]:
            masks[number] |= holding.get(higher, 0)
    return masks


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def implication_edges(section: CompiledSection, numbers: Collection[int]) -> set[tuple[int, int]]:
    """The edges on the ways from pruned rules to the rules that imply them, where both are drawn.

    All ways to one rule form a tree of shortest ways, so that as little as possible is bold.
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
        towards = _ways_down(top, below)
        for step in starts:
            while step != top:
                path.add((step, towards[step]))
                step = towards[step]
    return path


def _ways_down(top: int, below: dict[int, list[int]]) -> dict[int, int]:
    """For every node under one, the next step of a shortest way up to it."""
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
    """The Hasse diagram of these rules: one SVG that needs nothing else."""
    drawn = frozenset(numbers)
    groups = diagram_nodes(section, drawn)
    position = {node[0]: place for place, node in enumerate(groups)}
    return draw_svg(
        _heading(section, drawn),
        [[_card(section, number, drawn) for number in node] for node in groups],
        [(position[a], position[b]) for a, b in hasse_edges(section, drawn)],
        {(position[a], position[b]) for a, b in implication_edges(section, drawn)},
    )


def _heading(section: CompiledSection, drawn: frozenset[int]) -> str:
    kept = sum(bool(section.pruning.kept[number]) for number in drawn)
    kind = "Rules for each release" if section.rules.each_release else "Rules for all releases"
    total = len(section.rules)
    some = f" ({len(drawn)} of {total} rules)" if len(drawn) < total else ""
    return f"{kind}: {kept} kept, {len(drawn) - kept} pruned{some}"


def _card(section: CompiledSection, number: int, drawn: frozenset[int]) -> RuleBox:
    """What the box of a rule says; a rule's name is without its unit, so that is said too."""
    rule = section.rules[number]
    witness = section.implied_by(rule)
    implied_by = None
    if witness is not None:
        unit = f" for {witness.unit}" if witness.unit != rule.unit else ""
        absent = "" if witness.number in drawn else " (not drawn)"
        implied_by = f"{witness.name}{unit}{absent}"
    return RuleBox(rule.name, (rule.unit, *format_budget(rule.budget).split("  ")), implied_by)
