"""Hasse diagram of groups of rules, for policies with too many rules for one box each.

A group has the rules of one base policy, risk level, membership level and unit, in all settings. A
group is below another one if each of its rules is inside a rule of the other. The settings do not
matter for this order, because every base rule has all of them. Groups that are below each other
share a node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import budget_amount, format_budget, with_amount
from dpolicy.privacy.number_text import format_down
from dpolicy.rules.compiler import CompiledSection
from dpolicy.rules.hasse.diagram import MAX_NODES, masks_in_factor, reduce_order
from dpolicy.rules.hasse.svg import RuleBox, draw_svg
from dpolicy.rules.rule import BaseRule
from dpolicy.rules.scope_order import preorder_from

#: Largest number of rules that a diagram draws as one box each, unless all are requested.
MAX_SINGLE_BOXES = 40

#: Largest number of base rules that are grouped for a drawing; comparing them takes quadratic time.
MAX_BASES = 5_000

_LEGEND = {
    "kept": "rules of one policy, risk and unit",
    "pruned": "all pruned: implied by other rules",
    "thin": "each rule is inside a rule of the group above",
    "frame": "the same widest scopes and unit",
}


@dataclass(frozen=True, slots=True)
class DiagramGroup:
    """Base rules of one policy, risk level, membership level and unit, by their numbers."""

    bases: tuple[int, ...]
    kept: int
    total: int


def rule_groups(section: CompiledSection, numbers: Collection[int]) -> list[DiagramGroup]:
    """Group rules by policy, risk level, membership level and unit, in the order of the policy.

    Raise `InvalidValue` if there are too many groups or base rules to draw.
    """
    width = section.rules.width
    members: dict[tuple[str, ...], list[int]] = {}
    for number in sorted(set(numbers)):
        base = section.rules.bases[number // width]
        key = (base.policy, base.risk, base.level, base.unit)
        members.setdefault(key, []).append(number)
    groups = [
        DiagramGroup(
            tuple(dict.fromkeys(number // width for number in rules)),
            int(np.count_nonzero(section.pruning.kept[rules])),
            len(rules),
        )
        for rules in members.values()
    ]
    bases = sum(len(group.bases) for group in groups)
    if len(groups) > MAX_NODES or bases > MAX_BASES:
        raise InvalidValue(
            "P047",
            f"{len(groups)} groups with {bases} scopes are too many to draw; the limits are "
            f"{MAX_NODES} groups and {MAX_BASES} scopes; select one unit with `--unit` or one base "
            "policy with `--policy`",
        )
    return groups


def group_nodes(
    section: CompiledSection, groups: Sequence[DiagramGroup]
) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Return nodes of groups, and the edges (smaller, larger) between nodes.

    The edges are the transitive reduction of the order of the groups.
    """
    above = _groups_above(section, groups)
    order = preorder_from(len(groups), lambda smaller, larger: larger in above[smaller])
    nodes: dict[int, tuple[int, ...]] = {}
    for group, number in enumerate(order.classes):
        nodes[number] = (*nodes.get(number, ()), group)
    up = [sum(1 << wider for wider in order.above[number]) for number in range(len(nodes))]
    return [nodes[number] for number in range(len(nodes))], reduce_order(up)


def _groups_above(section: CompiledSection, groups: Sequence[DiagramGroup]) -> list[set[int]]:
    """Return, for every group, the groups that have a wider or equal rule for each of its rules."""
    orders = section.factor_orders
    bases = [base for group in groups for base in group.bases]
    scopes = [orders.scopes.classes[orders.scope_of_base[base]] for base in bases]
    units = [orders.units.classes[orders.unit_of_base[base]] for base in bases]
    wider_scopes = masks_in_factor(orders.scopes, scopes)
    wider_units = masks_in_factor(orders.units, units)
    ends = np.cumsum([0, *(len(group.bases) for group in groups)]).tolist()
    masks = [(1 << end) - (1 << start) for start, end in pairwise(ends)]
    above = []
    for start, end in pairwise(ends):
        pairs = set(zip(scopes[start:end], units[start:end], strict=True))
        wider = [wider_scopes[scope] & wider_units[unit] for scope, unit in pairs]
        above.append({n for n, mask in enumerate(masks) if all(mask & up for up in wider)})
    return above


def groups_svg(section: CompiledSection, numbers: Collection[int]) -> str:
    """Draw the diagram of the groups of these rules as one self-contained SVG."""
    groups = rule_groups(section, numbers)
    nodes, edges = group_nodes(section, groups)
    boxes = [[_group_box(section, groups[number]) for number in node] for node in nodes]
    return draw_svg(_heading(section, groups), boxes, edges, (), _LEGEND)


def _heading(section: CompiledSection, groups: Sequence[DiagramGroup]) -> str:
    kept, total = sum(group.kept for group in groups), sum(group.total for group in groups)
    kind = "Per-release rules" if section.rules.each_release else "Cumulative rules"
    return f"{kind} in {len(groups)} groups: {kept} kept, {total - kept} pruned"


def _group_box(section: CompiledSection, group: DiagramGroup) -> RuleBox:
    """Return the box of a group: policy, levels, unit, members, budgets and counts."""
    base = section.rules.bases[group.bases[0]]
    name = ", ".join(part for part in (base.policy, base.risk, base.level) if part)
    counts = f"{group.kept} of {group.total} rules kept"
    facts = (base.unit, *_members(base, len(group.bases)), *_budgets(section, group), counts)
    return RuleBox(name, facts, None if group.kept else "other rules")


def _members(base: BaseRule, count: int) -> list[str]:
    if not base.subject:
        return []
    nouns = ("category", "categories") if base.level else ("attribute", "attributes")
    return [f"{count} {nouns[count != 1]}"]


def _budgets(section: CompiledSection, group: DiagramGroup) -> list[str]:
    """Return the smallest and the largest budget, or how many there are if they do not compare."""
    rules = section.rules
    numbers = rules.budget_numbers.reshape(-1, rules.width)[list(group.bases)]
    budgets = {rules.budgets[number] for number in np.unique(numbers)}
    first = next(iter(budgets))
    if len(budgets) == 1:
        return format_budget(first).split("  ")
    amounts = [amount[1] for amount in map(budget_amount, budgets) if amount]
    smallest = {with_amount(budget, min(amounts, default=Fraction(0))) for budget in budgets}
    if len(smallest) > 1:
        return [f"{len(budgets)} budgets"]
    amount, *delta = format_budget(smallest.pop()).split("  ")
    return [f"{amount} to {format_down(max(amounts))}", *delta]
